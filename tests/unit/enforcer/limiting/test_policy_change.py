"""A policy that changes under way: on the next verdict, without losing a token or a total."""

from __future__ import annotations

import pytest

from enforcer.errors import PolicyError
from tests.unit.enforcer.harness import Fleet, make_policy


def test_a_new_policy_stands_on_the_next_verdict_and_grants_live_on() -> None:
    """E19: a plan is edited while its callers are busy."""
    fleet = Fleet(make_policy(rate_per_s=100, burst=200))
    for _ in range(20):
        fleet.limiter.check("acme")
    held = fleet.limiter._lanes["acme", "default"].account.held
    assert held > 0
    fleet.limiter.apply(make_policy(version=2, rate_per_s=50, burst=100))
    verdict = fleet.limiter.check("acme")
    assert (2, 50.0, held - 1) == (verdict.basis.policy_version, verdict.basis.plan.rate_per_s, verdict.remaining)
    fleet.limiter.close()
    totals = {key: total.spent for key, total in fleet.sink.final_totals().items() if total.spent}
    assert totals == fleet.sink.spent_by_grant()


def test_the_same_version_with_other_content_is_refused() -> None:
    """E19: two gateways that say version 7 must mean the same."""
    fleet = Fleet(make_policy(version=7))
    fleet.limiter.apply(make_policy(version=7))
    with pytest.raises(PolicyError, match="is 7, with other content"):
        fleet.limiter.apply(make_policy(version=7, rate_per_s=1))
    with pytest.raises(PolicyError, match="allowed: above 7"):
        fleet.limiter.apply(make_policy(version=6))
    assert 100.0 == fleet.limiter.check("acme").basis.plan.rate_per_s


@pytest.mark.parametrize(("burst", "left"), [(200, 40), (20, 20)])
def test_what_is_left_stays_and_the_new_burst_caps_it(burst: int, left: int) -> None:
    """E20: 40 of 100 left. A larger plan fills up at its rate, a smaller one caps what is there."""
    fleet = Fleet(make_policy(rate_per_s=0.001, burst=100))
    assert 60 == sum(fleet.limiter.check("acme").allowed for _ in range(60))
    # Until they expire, grants of before are spent: what is left is all at the owner after that.
    fleet.advance(8)
    fleet.limiter.apply(make_policy(version=2, rate_per_s=0.001, burst=burst))
    assert left == sum(fleet.limiter.check("acme").allowed for _ in range(300))


def test_a_limit_that_is_gone_settles_what_it_holds() -> None:
    """A removed rule must not keep tokens that a later one of its name would miss."""
    fleet = Fleet(make_policy(limits={"site": {"by": "everyone", "rate_per_s": 9, "burst": 90}}), evict_after_s=5)
    for _ in range(9):
        fleet.limiter.check("acme")
    fleet.limiter.apply(make_policy(version=2))
    assert () == fleet.limiter.check("acme").basis.also
    fleet.advance(12)
    assert 0 == len(fleet.limiter._directory.accounts)
    bucket = fleet.owner.bucket("(everyone)", "site")
    assert bucket is not None
    assert 0 == bucket.stock_out


def test_who_waits_while_the_policy_changes_is_decided() -> None:
    """A request holds the lane of before; it must end on the account that is there now."""
    fleet = Fleet(make_policy(rate_per_s=1, burst=50))
    lane = fleet.limiter._new_lane("acme", "default")
    fleet.limiter.apply(make_policy(version=2, rate_per_s=1, burst=50))
    waiter = fleet.limiter._slow(lane, 1, fleet.clock.monotonic_ns(), None)
    fleet.limiter.tend()
    assert fleet.limiter._outcome(waiter).allowed  # type: ignore[arg-type]  # nothing was held, so it waited
