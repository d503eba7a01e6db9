"""The fairness pass over blocks that went through the recorder's writer: the founding case, late blocks, causes."""

from __future__ import annotations

import argparse
import json
import urllib.parse
import uuid
from collections.abc import Iterable, Iterator
from contextlib import closing
from typing import Any

import pytest

from aggregator.audit import fairness
from aggregator.migrate import migrate
from aggregator.settler.passes.due import Due
from aggregator.settler.passes.fairness import Fairness
from aggregator.settler.passes.minutes import MinutesPass
from aggregator.store_clickhouse import ClickHouseStore
from enforcer.types import Grant, Plan, Reason, Source, outcome_code
from tests.fairblocks import ADMITTED, MONDAY_US, SPENT, Fleet, Request, connected, divided_with_floor, in_turns

pytestmark = pytest.mark.services
S, MINUTE = 1_000_000, 60_000_000
FIRST = MONDAY_US // MINUTE
TOTALS = "offered, admitted, refused, wrongful, wrongful_divided, over_admitted"


@pytest.fixture(scope="module")
def shared_dsn(clickhouse_dsn: str) -> Iterator[str]:
    """A record with its tables, for all tests of this file: making them takes longer than most tests."""
    name = f"fair_{uuid.uuid4().hex[:12]}"
    dsn = urllib.parse.urlsplit(clickhouse_dsn)._replace(path=f"/{name}").geturl()
    migrate(dsn)
    yield dsn
    with closing(ClickHouseStore.connect(clickhouse_dsn)) as server:
        server.command(f"DROP DATABASE IF EXISTS {name} SYNC")


@pytest.fixture
def store(shared_dsn: str) -> Iterator[ClickHouseStore]:
    """That record, empty."""
    with closing(ClickHouseStore.connect(shared_dsn)) as opened:
        for table in ("decisions", "blocks", "terms", "grants", "settlements", "fairness"):
            opened.command(f"TRUNCATE TABLE {table}")
        yield opened


def settle(store: ClickHouseStore, minutes: Iterable[int], *, version: int = 1, most: int = 2_000_000) -> None:
    """What the settler does when these minutes are due."""
    MinutesPass([], Fairness(), most_decisions=most).settle(store, Due(sorted(minutes), version, MONDAY_US))


def span(minutes: int) -> range:
    """So many minutes from Monday night on."""
    return range(FIRST, FIRST + minutes)


def summed(store: ClickHouseStore, columns: str = TOTALS) -> tuple[int, ...]:
    """Sums over all of the table."""
    sums = ", ".join(f"sum({name})" for name in columns.split(", "))
    return tuple(int(number) for number in store.rows(f"SELECT {sums} FROM fairness FINAL")[0])


def all_rows(store: ClickHouseStore) -> list[tuple[Any, ...]]:
    """Everything that is stored, without when."""
    return list(store.rows("SELECT * EXCEPT (version, stored_at, full_at) FROM fairness FINAL ORDER BY ALL"))


def audit(store: ClickHouseStore, capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, list[str]]:
    """What ``tallygate audit fairness`` says."""
    parser = argparse.ArgumentParser()
    fairness.add_arguments(parser)
    exit_code = fairness.run(parser.parse_args(words), store)
    return exit_code, capsys.readouterr().out.splitlines()


def causes(store: ClickHouseStore) -> dict[str, int]:
    """How many wrongful refusals there are by each cause that has any."""
    names = [
        row[0]
        for row in store.rows(
            "SELECT name FROM system.columns WHERE database = currentDatabase() AND table = 'fairness' "
            "AND startsWith(name, 'wrongful_')"
        )
    ]
    return {
        name.removeprefix("wrongful_"): number
        for name, number in zip(names, summed(store, ", ".join(names)), strict=True)
        if number
    }


def test_one_connection_at_six_a_second_was_refused_wrongfully_thirty_thousand_times(
    store: ClickHouseStore, capsys: pytest.CaptureFixture[str]
) -> None:
    """R12: the distributor saw a caller at a tenth of its limit, the founder five refusals of six. Both are here."""
    arrivals = in_turns(connected(1), rate_per_s=6, start_us=MONDAY_US, seconds=6_000)
    Fleet(store).record(divided_with_floor(arrivals))
    settle(store, span(100))
    assert (36_000, 6_000, 30_000, 30_000, 30_000, 0) == summed(store)
    exit_code, told = audit(store, capsys, "--caller", "marlow", "--from", "2026-10-05T22:00", "--to", "2026-10-06")
    assert 1 == exit_code
    assert "does not agree: of 30,000 refusals 30,000 were wrongful (30,000 divided)" == told[0]
    assert told[1] == (
        "marlow rate: 36,000 offered, 6,000 admitted, 30,000 refused, 30,000 of them wrongfully (30,000 divided); "
        "0 over-admitted, at worst 0 tokens beyond the plan, ε 20; busiest second 6 offered, "
        "at 2026-10-05T22:00:00.000000Z; k 1; 29,999 early returns"
    )


def test_twelve_connections_are_refused_no_more_and_admitted_beyond_the_plan(
    store: ClickHouseStore, capsys: pytest.CaptureFixture[str]
) -> None:
    """R12, the second run: 12 a second on a plan of 10, over twelve copies: two a second too many, all the time."""
    arrivals = in_turns(connected(12), rate_per_s=12, start_us=MONDAY_US, seconds=600)
    Fleet(store).record(divided_with_floor(arrivals))
    settle(store, span(10))
    offered, admitted, refused, wrongful, _, over = summed(store)
    assert (7_200, 7_200, 0, 0) == (offered, admitted, refused, wrongful)
    assert over == pytest.approx(7_200 - 20 - 6_000, abs=10)
    exit_code, told = audit(store, capsys)
    assert (1, "does not agree: 1 bucket was admitted more than ε beyond the plan") == (exit_code, told[0])
    assert 12 == store.rows("SELECT max(k) FROM fairness FINAL")[0][0]


def test_hundred_and_twenty_connections_are_never_refused_and_far_beyond_epsilon(
    store: ClickHouseStore, capsys: pytest.CaptureFixture[str]
) -> None:
    """R12, the third run: 44 a second on a plan of 10, and no refusal that could have told anybody."""
    reached = sorted(set(connected(120)))
    arrivals = in_turns(reached, rate_per_s=len(reached), start_us=MONDAY_US, seconds=600)
    Fleet(store).record(divided_with_floor(arrivals))
    settle(store, span(10))
    offered, admitted, refused, wrongful, _, over = summed(store)
    assert (44, 26_400, 26_400, 0, 0) == (len(reached), offered, admitted, refused, wrongful)
    assert over == pytest.approx(26_400 - 20 - 6_000, abs=10)
    excess, epsilon = store.rows("SELECT max(excess_tokens), max(epsilon_tokens) FROM fairness FINAL")[0]
    assert excess == pytest.approx(26_400 - 20 - 6_000, abs=10)
    assert epsilon == 20.0
    exit_code, told = audit(store, capsys, "--json")
    found = json.loads(told[0])
    assert (1, False, 0, over) == (exit_code, found["agrees"], found["wrongful"], found["over_admitted"])
    assert excess == found["findings"][0]["excess_tokens"]


def _mixed(seconds: int) -> list[Request]:
    """Two callers beyond their plans on three copies, and a third that keeps to it."""
    requests = []
    for number in range(seconds * 15):
        at_us = MONDAY_US + number * S // 15 + number % 7
        caller = ("acme", "beta", "marlow")[number % 3 if number % 45 < 30 else 0]
        code = SPENT if number % 11 == 0 else ADMITTED
        plan = Plan("three", 3.0, 9) if number < 60 * 15 * 2 else Plan("four", 4.0, 8)
        requests.append(
            Request(at_us, f"gw-{number % 3}", caller, code, 1 + number % 2, 700 if code else 0, plan=plan,
                    policy_version=1 if plan.burst == 9 else 2)
        )  # fmt: skip
    return requests


@pytest.mark.parametrize("most", [2_000_000, 700])
def test_minutes_settled_one_by_one_backwards_or_in_slices_say_the_same(store: ClickHouseStore, most: int) -> None:
    """Which minute is settled first is chance; the answer to a customer must not be."""
    Fleet(store).record(_mixed(180))
    settle(store, span(3), most=most)
    at_once = all_rows(store)
    assert {"acme", "beta", "marlow"} == {row[0] for row in at_once}
    store.command("TRUNCATE TABLE fairness")
    for version, minute in enumerate(reversed(span(3)), 2):
        settle(store, [minute], version=version, most=most)
    assert at_once == all_rows(store)


def test_settling_again_writes_nothing(store: ClickHouseStore) -> None:
    """A settler that was killed repeats its round."""
    Fleet(store).record(_mixed(120))
    settle(store, span(2))
    settle(store, span(2), version=9)
    assert [(1,)] == list(store.rows("SELECT DISTINCT version FROM fairness"))


def test_late_block_changes_the_minutes_after_it_as_far_as_it_matters(store: ClickHouseStore) -> None:
    """A spooled block of the first minute: later minutes judge by a bucket that it has drained."""
    fleet, late = Fleet(store), [Request(MONDAY_US + 50 * S + n, "gw-9") for n in range(1_000)]
    steady = [Request(MONDAY_US + n * S // 8, code=ADMITTED if n % 2 else SPENT) for n in range(8 * 60 * 8)]
    fleet.record(steady)
    settle(store, span(8))
    fleet.record(late)
    settle(store, [FIRST], version=2)
    after = list(store.rows("SELECT minute, version, excess_tokens FROM fairness FINAL ORDER BY minute"))
    assert 8 == len(after)
    changed = [version == 2 for _, version, _ in after]
    assert changed == sorted(changed, reverse=True)
    assert 2 <= sum(changed) < 8
    told = all_rows(store)
    store.command("TRUNCATE TABLE fairness")
    settle(store, span(8), version=3)
    assert told == all_rows(store)


def test_causes_are_those_that_the_record_supports(store: ClickHouseStore) -> None:
    """One refusal of each kind, each inside its plan; the rules are in docs/fairness.md."""
    fleet = Fleet(store)
    codes = {
        "cap": outcome_code(Source.CAP, Reason.CEILING),
        "closed": outcome_code(Source.DEGRADED, Reason.CLOSED),
        "ceiling": outcome_code(Source.DEGRADED, Reason.CEILING),
        "degraded": outcome_code(Source.DEGRADED, Reason.SPENT),
    }
    fleet.record([Request(MONDAY_US + n * S, caller=name, code=code) for n, (name, code) in enumerate(codes.items())])
    changed = [Request(MONDAY_US, caller="policy"), Request(MONDAY_US + S, caller="policy", code=SPENT,
               policy_version=2, plan=Plan("ten", 11.0, 20))]  # fmt: skip
    fleet.record(changed)
    day_us = 400 * 86_400 * S
    fleet.record([Request(MONDAY_US, "gw-8", "clock", SPENT)], owner_offset_us=None, ahead_us=day_us)
    fleet.record([Request(MONDAY_US, "gw-7", "known-clock", SPENT)], ahead_us=day_us)
    flood = [Request(MONDAY_US + n, caller="displaced", code=SPENT if n % 2 else ADMITTED) for n in range(60)]
    fleet.record([*flood, *[Request(MONDAY_US + 100 + n, caller="displaced") for n in range(20)],
                  Request(MONDAY_US + S, caller="displaced", code=SPENT)])  # fmt: skip
    settle(store, span(1))
    assert {
        "cap": 1,
        "closed": 1,
        "ceiling": 1,
        "degraded": 1,
        "policy": 1,
        "clock": 1,
        "displaced": 1,
        "divided": 11,
    } == causes(store)


def test_tokens_in_other_copies_grants_are_stranded_and_those_at_the_owner_were_forgotten(
    store: ClickHouseStore,
) -> None:
    """Where the tokens lay is told by the grants: who could have spent them, and whether anybody asked."""
    fleet, grant_id = Fleet(store), MONDAY_US
    grant = Grant(grant_id, 20, 2, grant_id, grant_id + 5 * S)
    fleet.lend("gw-1", [grant], [(grant_id, 3, MONDAY_US + 4 * S)])
    fleet.record(
        [
            *[Request(MONDAY_US + 10 + n, "gw-1", grant_id=grant_id) for n in range(3)],
            Request(MONDAY_US + 100, "gw-2", code=SPENT),
            Request(MONDAY_US + 200, "gw-1", code=SPENT),
            Request(MONDAY_US + 4 * S + 1, "gw-2", code=SPENT),
            Request(MONDAY_US + 4 * S + 2, "gw-2", code=outcome_code(Source.SHARED, Reason.SPENT)),
        ]
    )
    settle(store, span(1))
    assert {"stranded": 1, "stale_empty": 1, "unknown": 2} == causes(store)


def test_further_limit_of_the_callers_own_has_a_bucket_of_its_own(store: ClickHouseStore) -> None:
    """Its first refusal brings its terms to the record: what it held in the minute before is made up for."""
    fleet, search, every = Fleet(store), Plan("ten", 1.0, 60), (("marlow", "search"),)
    spent = [Request(MONDAY_US + 50 * S + n, charged=every) for n in range(55)]
    fleet.record(spent)
    settle(store, [FIRST])
    fleet.record([Request(MONDAY_US + MINUTE + n, charged=every) for n in range(14)])
    fleet.record([Request(MONDAY_US + MINUTE + 100 + n, code=SPENT, limit="search", plan=search) for n in range(5)])
    settle(store, [FIRST + 1])
    found = store.rows(
        "SELECT judged, offered, admitted, wrongful, excess_tokens FROM fairness FINAL WHERE limit = 'search'"
    )
    assert [(True, 19, 14, 1, 0.0)] == list(found)
    assert [(FIRST, 55), (FIRST + 1, 14)] == list(
        store.rows(
            "SELECT intDiv(toUnixTimestamp(minute), 60), offered FROM fairness FINAL WHERE limit = 'rate' ORDER BY 1"
        )
    )


def test_limits_that_nobody_can_replay_are_counted_and_not_judged(store: ClickHouseStore) -> None:
    """A quota, and a bucket that callers share: counted as refused, and nothing is claimed of them."""
    fleet, shared = Fleet(store), (("books", "tenant"),)
    fleet.record(
        [
            Request(MONDAY_US, charged=shared),
            Request(MONDAY_US + 1, code=SPENT, limit="tenant"),
            Request(MONDAY_US + 2, code=SPENT, limit="day", per="day", plan=Plan("ten", 0.1, 1_000)),
        ]
    )
    settle(store, span(1))
    found = store.rows("SELECT limit, judged, offered, admitted, refused, wrongful FROM fairness FINAL ORDER BY limit")
    assert [("day", False, 1, 0, 1, 0), ("rate", True, 1, 1, 0, 0), ("tenant", False, 1, 0, 1, 0)] == list(found)


def test_audit_agrees_where_everything_was_right(store: ClickHouseStore, capsys: pytest.CaptureFixture[str]) -> None:
    """A caller beyond its plan that got what it paid for is no finding, nor is one whose refusals were displaced."""
    right = [Request(MONDAY_US + n, code=ADMITTED if n < 20 else SPENT) for n in range(30)]
    ahead = [Request(MONDAY_US + n, caller="acme") for n in range(30)]
    displaced = [Request(MONDAY_US + S + n, caller="acme", code=SPENT) for n in range(10)]
    Fleet(store).record([*right, *ahead, *displaced])
    settle(store, span(1))
    exit_code, told = audit(store, capsys)
    assert (0, 1) == (exit_code, len(told))
    assert told[0].startswith("agrees: 70 offered, 50 admitted, 20 refused, 10 of them in another's place")
    assert 3 == audit(store, capsys, "--from", "2026-10-06")[0], "of no request nobody can say anything"
