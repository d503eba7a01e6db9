"""Whatever comes in whatever order: with and without the lock, the same requests get the same verdicts."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from enforcer.core.resolution import EVERYONE
from enforcer.types import Verdict
from tests.unit.enforcer.harness import Fleet, make_policy

_LIMITS: tuple[dict[str, object], ...] = (
    {},
    {"site": {"by": "everyone", "rate_per_s": 8, "burst": 12}},
    {
        "site": {"by": "everyone", "rate_per_s": 8, "burst": 12},
        "hour": {"by": "caller", "quota": 30, "per": "hour"},
        "tried": {"by": "caller", "rate_per_s": 1, "burst": 3, "mode": "shadow"},
    },
    {
        "a": {"by": "everyone", "rate_per_s": 9, "burst": 30},
        "b": {"by": "scope", "rate_per_s": 7, "burst": 10},
        "c": {"by": "caller", "rate_per_s": 5, "burst": 9},
        "d": {"by": "caller", "rate_per_s": 20, "burst": 40},
    },
    {"tried": {"by": "everyone", "rate_per_s": 2, "burst": 4, "mode": "shadow"}},
)
_STEPS = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(("ann", "bob")), st.sampled_from((0, 1, 1, 1, 2, 5, 13)), st.integers(1, 12)),
        st.tuples(st.just("wait"), st.sampled_from((1, 40, 400, 3_000)), st.just(1)),
        st.tuples(st.just("away"), st.just(0), st.just(1)),
    ),
    max_size=40,
)


@given(limits=st.sampled_from(_LIMITS), steps=_STEPS)
def test_a_limiter_without_the_lock_decides_as_one_with_it(
    limits: dict[str, object], steps: list[tuple[str, int, int]]
) -> None:
    """The fast path is an optimisation: nobody may be able to tell it from the rules, least of all by the record."""
    policy = make_policy(rate_per_s=10, burst=12, limits=limits)
    fast, locked = Fleet(policy, locked=False), Fleet(policy, locked=True)
    for what, number, times in steps:
        for fleet in (fast, locked):
            if what == "wait":
                fleet.advance(number / 1e3)
            elif what == "away":
                fleet.owner.away = None if fleet.owner.away else "tested"
        if what in {"ann", "bob"}:
            for _ in range(times):
                expected = locked.limiter.check(what, cost=number)
                assert _told(expected) == _told(fast.limiter.check(what, cost=number))
    for fleet in (fast, locked):
        fleet.owner.away = None
        fleet.advance(5)
        fleet.limiter.close()
    assert locked.sink.final_totals() == fast.sink.final_totals()
    spent = fast.sink.spent_by_grant()
    totals = {key: total.spent for key, total in fast.sink.final_totals().items() if total.spent}
    assert spent == totals
    assert fast.owner.bucket(EVERYONE, "site") == locked.owner.bucket(EVERYONE, "site")


def _told(verdict: Verdict) -> tuple[object, ...]:
    basis = verdict.basis
    # What costs nothing is charged to no grant, so it may name one that was just closed.
    paid_by = (basis.grant_id, basis.also) if verdict.cost else None
    return (
        verdict.allowed,
        verdict.source,
        verdict.reason,
        verdict.cost,
        verdict.remaining,
        verdict.retry_after_ms,
        (basis.caller, basis.limit, basis.scope, paid_by),
    )
