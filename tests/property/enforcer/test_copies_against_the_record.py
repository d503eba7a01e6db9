"""Whatever happens to copies and owner, the settlements say what the decisions spent, and the plan holds."""

from __future__ import annotations

from collections.abc import Iterator

from hypothesis import example, given
from hypothesis import strategies as st

from enforcer.core.dials import epsilon_tokens
from enforcer.sink import CostChanged
from enforcer.types import Reason, Source, Verdict
from tests.unit.enforcer.harness import Copy, Fleet, make_policy

COPIES = 3
RATE_PER_S = 20.0
BURST = 40
MOST_COST = 7

#: (what, copy, number): checks of a cost, time that passes (in 10 ms), outages, another caller, whose asks notice an
#: outage while grants are held, and what the last admitted request cost, once it is known.
_STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("check"), st.integers(0, COPIES - 1), st.integers(1, MOST_COST)),
        st.tuples(st.just("burst"), st.integers(0, COPIES - 1), st.integers(1, 30)),
        st.tuples(st.just("wait"), st.just(0), st.integers(1, 400)),
        st.tuples(st.just("outage"), st.just(0), st.integers(0, 1)),
        st.tuples(st.just("other"), st.integers(0, COPIES - 1), st.just(0)),
        st.tuples(st.just("cost"), st.integers(0, COPIES - 1), st.integers(0, 2 * MOST_COST)),
        st.tuples(st.just("close"), st.integers(0, COPIES - 1), st.just(0)),
    ),
    max_size=60,
)


def _change(copy: Copy, changed: set[int], cost: int) -> None:
    """Charge or refund the last request that was admitted and not changed yet."""
    for verdict in reversed(copy.sink.verdicts):
        if verdict.allowed and verdict.cost != cost and verdict.seq not in changed:
            changed.add(verdict.seq)
            copy.limiter.charge(verdict, cost)
            return


def _cost_changes(fleet: Fleet) -> Iterator[tuple[int, CostChanged]]:
    for number, copy in enumerate(fleet.copies):
        for fact in copy.sink.events:
            if isinstance(fact, CostChanged):
                yield number, fact


def _run(steps: list[tuple[str, int, int]], *, outages: bool) -> Fleet:
    fleet = Fleet(make_policy(rate_per_s=RATE_PER_S, burst=BURST, fleet={"copies": COPIES}), copies=COPIES)
    closed: set[int] = set()
    changed: list[set[int]] = [set() for _ in range(COPIES)]
    for what, number, amount in steps:
        limiter = fleet.copies[number].limiter
        if what == "wait":
            for copy in (copy for at, copy in enumerate(fleet.copies) if at not in closed):
                copy.limiter.tend()
            fleet.clock.advance(amount / 100)
        elif what == "outage":
            fleet.owner.away = "tested" if amount and outages else None
        elif number in closed:
            continue
        elif what == "close":
            limiter.close()
            closed.add(number)
        elif what == "cost":
            _change(fleet.copies[number], changed[number], amount)
        elif what == "other":
            limiter.check("other")
        elif what == "check":
            limiter.check("acme", cost=amount)
        else:
            for _ in range(amount):
                limiter.check("acme")
    for copy in fleet.copies:
        copy.limiter.close()
    return fleet


#: A grant in hand expires during an outage that was noticed, and is spent all the same.
_SPENT_PAST_EXPIRY = [
    ("burst", 0, 5), ("outage", 0, 1), ("other", 0, 0), ("wait", 0, 400), ("wait", 0, 400), ("burst", 0, 5)
]  # fmt: skip


@given(_STEPS)
@example(_SPENT_PAST_EXPIRY)
def test_settlements_say_what_was_spent(steps: list[tuple[str, int, int]]) -> None:
    """Spent = cost of the decisions that name the grant, and its changes: the ledger stands on it, through outages."""
    fleet = _run(steps, outages=True)
    for copy in fleet.copies:
        assert list(range(len(copy.sink.verdicts))) == [verdict.seq for verdict in copy.sink.verdicts]
        spent = copy.sink.spent_by_grant()
        finals = copy.sink.final_totals()
        assert all(total.spent == spent.get(key, 0) + total.adjusted for key, total in finals.items())
        assert spent.keys() <= finals.keys()
        granted = {(fact.caller, fact.limit, fact.grant.grant_id): fact.grant.size for fact in copy.sink.grants}
        assert granted.keys() == finals.keys()
        assert all(total.spent <= granted[key] for key, total in finals.items())


@given(_STEPS)
def test_copies_together_admit_no_more_than_plan_and_epsilon(steps: list[tuple[str, int, int]]) -> None:
    """Wrong about the burst by a declared amount, and about the rate not at all."""
    fleet = _run(steps, outages=False)
    admitted = sorted(
        (v for copy in fleet.copies for v in copy.sink.verdicts if v.allowed and v.basis.caller == "acme"),
        key=lambda v: v.at_ns,
    )
    # What was given back may be spent again, at any later time.
    told = {(number, fact.scope): fact.refunded for number, fact in _cost_changes(fleet) if fact.caller == "acme"}
    bound = BURST + epsilon_tokens(BURST, copies=COPIES, largest_cost=MOST_COST) + sum(told.values())
    for start in range(0, len(admitted), 7):
        total = 0
        for verdict in admitted[start:]:
            total += verdict.cost
            elapsed_s = (verdict.at_ns - admitted[start].at_ns) / 1e9
            assert total <= bound + RATE_PER_S * elapsed_s + 1e-6


@given(_STEPS)
@example(_SPENT_PAST_EXPIRY)
def test_every_verdict_explains_itself(steps: list[tuple[str, int, int]]) -> None:
    """A refusal without a reason or a wait, or an admission with one, could not be defended."""

    def is_sound(verdict: Verdict) -> bool:
        if verdict.allowed:
            return verdict.reason is Reason.NONE and verdict.retry_after_ms == 0
        return verdict.reason is not Reason.NONE and verdict.retry_after_ms != 0

    fleet = _run(steps, outages=True)
    for copy in fleet.copies:
        assert all(is_sound(verdict) for verdict in copy.sink.verdicts)
        for verdict in copy.sink.verdicts:
            if verdict.source is Source.DEGRADED:
                # A grant that is spent past its expiry is named, for the ledger.
                assert verdict.allowed or verdict.basis.grant_id == 0
            elif verdict.allowed:
                assert verdict.basis.grant_id > 0
