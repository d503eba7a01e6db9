"""The ledger adds up to the token, whatever becomes of copies, asks, answers, refunds and debts."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator
from contextlib import closing

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from aggregator.audit.counts.grants import LedgerHour, ledger_hours
from aggregator.audit.counts.reconcile import compare
from aggregator.migrate import migrate
from aggregator.store_clickhouse import ClickHouseStore
from aggregator.words import Span
from enforcer.core.resolution import EVERYONE
from enforcer.messages import SettleCause
from tests.property.aggregator.ledger_world import LedgerWorld
from tests.unit.enforcer.harness import make_policy

COPIES = 3
QUOTA = 400
DAY_US = 86_400_000_000
START_US = 1_767_312_000_000_000

#: A plan of one bucket, which each caller has; and a quota that all share, so that decisions name two grants.
POLICY = make_policy(
    rate_per_s=20.0,
    burst=40,
    fleet={"copies": COPIES},
    limits={"site": {"by": "everyone", "quota": QUOTA, "per": "day"}},
)

#: (what, copy, number).
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("check"), st.integers(0, COPIES - 1), st.integers(1, 7)),
        st.tuples(st.just("burst"), st.integers(0, COPIES - 1), st.integers(1, 30)),
        st.tuples(st.just("wait"), st.just(0), st.integers(1, 800)),
        st.tuples(st.just("outage"), st.just(0), st.integers(0, 1)),
        st.tuples(st.just("change"), st.integers(0, COPIES - 1), st.integers(0, 20)),
        st.tuples(st.just("kill"), st.integers(0, COPIES - 1), st.just(0)),
        st.tuples(st.just("lose ask"), st.integers(0, COPIES - 1), st.just(0)),
        st.tuples(st.just("lose answer"), st.integers(0, COPIES - 1), st.just(0)),
    ),
    max_size=60,
)

#: Killed with tokens spent that the owner was not told of: it gives back what is gone.
KILLED_HOLDING = [("burst", 0, 9), ("kill", 0, 0), ("wait", 0, 800), ("burst", 1, 9)]
#: Its total comes after the owner has given the grant back.
LATE = [("burst", 0, 9), ("wait", 0, 50), ("outage", 0, 1), ("wait", 0, 700), ("outage", 0, 0), ("burst", 1, 9),
        ("wait", 0, 300)]  # fmt: skip
#: All of it refunded: a final total of 0.
REFUNDED = [("check", 0, 1), ("change", 0, 0), ("wait", 0, 300)]
#: More charged than is held: a debt, paid by grants to come.
IN_DEBT = [("check", 0, 1), ("change", 0, 20), ("wait", 0, 800), ("burst", 0, 5)]

_worlds = itertools.count()


@pytest.fixture(scope="module")
def store(clickhouse_dsn: str) -> Iterator[ClickHouseStore]:
    """One record for all examples; each has a day of its own."""
    base = clickhouse_dsn.rpartition("/")[0]
    with closing(ClickHouseStore.connect(clickhouse_dsn)) as server:
        server.command("DROP DATABASE IF EXISTS test_ledger")
        server.command("CREATE DATABASE test_ledger ENGINE = Atomic")
        migrate(f"{base}/test_ledger")
        with closing(ClickHouseStore.connect(f"{base}/test_ledger")) as opened:
            yield opened
        server.command("DROP DATABASE test_ledger SYNC")


def run(steps: list[tuple[str, int, int]]) -> tuple[LedgerWorld, Span]:
    """What became of a fleet to which this happened, and the day on which it did."""
    start_us = START_US + next(_worlds) * DAY_US
    world = LedgerWorld(POLICY, copies=COPIES, start_us=start_us + 3_600_000_000)
    for what, place, number in steps:
        limiter = world.alive[place].limiter
        if what == "check":
            limiter.check("acme", cost=number)
        elif what == "burst":
            for _ in range(number):
                limiter.check("acme")
        elif what == "wait":
            world.wait(number / 100)
        elif what == "outage":
            world.owner.away = "tested" if number else None
        elif what == "change":
            world.change(place, number)
        elif what == "kill":
            world.kill(place)
        else:
            world.lose(place, what.removeprefix("lose "))
    world.owner.away = None
    world.end()
    return world, Span(start_us, start_us + DAY_US)


def summed(hours: list[LedgerHour]) -> Counter[str]:
    """The hours' numbers, added up."""
    total: Counter[str] = Counter()
    for hour in hours:
        total.update({name: getattr(hour, name) for name in LedgerHour.__slots__})
    return total


def truth(world: LedgerWorld) -> Counter[str]:
    """The same from what the copies told, one grant at a time."""
    named: Counter[tuple[str, str, int]] = Counter()
    for life in world.lives:
        named.update(life.sink.spent_by_grant())
    finals = {key: total for life in world.lives for key, total in life.sink.final_totals().items()}
    given_back = {
        (fact.caller, fact.limit, fact.settlement.grant_id): fact.settlement.spent
        for life in world.lives
        for fact in life.sink.settlements
        if fact.settlement.cause is SettleCause.CREDITED
    }
    total: Counter[str] = Counter()
    for issued in (fact for life in world.lives for fact in life.sink.grants):
        key = (issued.caller, issued.limit, issued.grant.grant_id)
        size, spent = issued.grant.size, named.pop(key, 0)
        if key in finals:
            spent += finals[key].adjusted
            assert spent == finals[key].spent
            total["returned"] += size - spent
        elif key in given_back:
            total["credited"] += size - max(spent, given_back[key])
        total.update(grants=1, granted=size, spent=spent)
        if key in given_back:
            total["given_back_and_spent"] += max(0, spent - given_back[key])
    assert not named, "every decision names a grant that was told of"
    total["outstanding"] = total["granted"] - total["spent"] - total["returned"] - total["credited"]
    return total


@settings(max_examples=12, suppress_health_check=[HealthCheck.too_slow])
@given(steps=STEPS)
@example(steps=KILLED_HOLDING)
@example(steps=LATE)
@example(steps=REFUNDED)
@example(steps=IN_DEBT)
def test_every_token_that_was_lent_is_accounted_for(store: ClickHouseStore, steps: list[tuple[str, int, int]]) -> None:
    """Granted = spent + returned + credited + outstanding: to the token, or the ledger proves nothing."""
    world, day = run(steps)
    world.record(store)
    hours = ledger_hours(store, day)
    assert all(hour.agrees for hour in hours)
    found, expected = summed(hours), truth(world)
    assert found["granted"] == found["spent"] + found["returned"] + found["credited"] + found["outstanding"]
    assert {name: found[name] for name in expected} == dict(expected)
    reconciled = compare(store, day)
    assert reconciled.agrees, reconciled.text()
    quota = summed(ledger_hours(store, day, EVERYONE))
    bucket = world.owner.bucket(EVERYONE, "site")
    if bucket is not None and not world.lost:
        # The owner's own count, kept by other code: of a quota nothing refills. What the dead held it takes for spent.
        used = QUOTA - round(bucket.tokens_micro / 1e6)
        assert used >= quota["spent"] + quota["outstanding"]
        assert world.killed or used == quota["spent"]


def test_examples_show_every_term(store: ClickHouseStore) -> None:
    """A term that no example reaches is a term that nobody has tested."""
    found: Counter[str] = Counter()
    for steps in (KILLED_HOLDING, LATE, REFUNDED, IN_DEBT):
        world, day = run(steps)
        world.record(store)
        found.update({name: abs(number) for name, number in summed(ledger_hours(store, day)).items()})
    terms = ("spent", "returned", "credited", "outstanding", "adjusted", "given_back_and_spent")
    assert all(found[term] for term in terms), found
