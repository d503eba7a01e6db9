"""A caller that has used up what it had is sold more: the next request is on the new terms, not the next period."""

from __future__ import annotations

from typing import Any

import pytest

from enforcer.policies.model import Policy
from enforcer.types import Source
from tests.unit.enforcer.harness import Fleet, make_policy


def _asks(fleet: Fleet) -> int:
    return fleet.owner._asked


def _last_ask_us(fleet: Fleet) -> int:
    """When the owner was last asked for the day's quota."""
    bucket = fleet.owner.bucket("acme", "day")
    assert bucket is not None
    return bucket.clock_us


def _plan(version: int, **plan: Any) -> Policy:
    return make_policy(version=version, plans={"standard": {"rate_per_s": 1e4, "burst": 10_000, **plan}})


def _day(version: int, quota: int) -> Policy:
    return _plan(version, limits={"day": {"quota": quota, "per": "day"}})


def _used_up(policy: Policy) -> Fleet:
    fleet = Fleet(policy)
    while fleet.limiter.check("acme").allowed:
        pass
    for _ in range(10):
        fleet.advance(1)
        assert not fleet.limiter.check("acme").allowed
    return fleet


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (_day(1, 20), _day(2, 100_000)),
        (_plan(1, rate_per_s=1 / 36_000, burst=5), _plan(2, rate_per_s=100, burst=200)),
        (_day(1, 20), _plan(2, limits={"day": {"rate_per_s": 100, "burst": 200}})),
    ],
    ids=["quota", "plan", "quota to bucket"],
)
def test_an_upgrade_is_in_force_for_whoever_was_told_to_come_back_tomorrow(before: Policy, after: Policy) -> None:
    """Who pays for more must get it now, also where this copy has long known that nothing is left."""
    fleet = _used_up(before)
    fleet.limiter.apply(after)
    fleet.advance(1)
    first = fleet.limiter.check("acme")
    fleet.advance(1)
    assert first.allowed or fleet.limiter.check("acme").allowed, "a plan fills up at its new rate from its first ask on"


def test_a_policy_that_leaves_the_terms_as_they_were_costs_no_ask() -> None:
    """E18: each new version would have every spent caller of the fleet asked for at once."""
    fleet = _used_up(_day(1, 20))
    asked = _asks(fleet)
    fleet.limiter.apply(_day(2, 20))
    verdict = fleet.limiter.check("acme")
    assert (False, 2, asked) == (verdict.allowed, verdict.basis.policy_version, _asks(fleet))


def test_a_quota_that_became_a_bucket_says_when_the_bucket_has_more() -> None:
    """Its month's end is nobody's any more."""
    fleet = _used_up(_plan(1, limits={"day": {"quota": 20, "per": "month"}}))
    fleet.limiter.apply(_plan(2, limits={"day": {"rate_per_s": 10, "burst": 20}}))
    waits = []
    for _ in range(4):
        waits.append(fleet.limiter.check("acme", cost=15).retry_after_ms)
        fleet.advance(0.5)
    assert max(waits) <= 1_500
    assert 0 in waits


def test_a_quota_that_is_spent_is_asked_for_again_and_its_end_stays_true() -> None:
    """What an owner has again, for whatever reason, is seen long before the period ends; refusing stays cheap."""
    fleet = _used_up(_day(1, 20))
    asked = _last_ask_us(fleet)
    for _ in range(10):
        fleet.advance(1)
        refused = fleet.limiter.check("acme")
        assert not refused.allowed
        assert refused.retry_after_ms > 60_000, "the client is told when there will be more, not when this copy asks"
    assert asked == _last_ask_us(fleet), "refusing is cheap"
    fleet.owner.lose_state()
    fleet.advance(20)
    assert fleet.limiter.check("acme").allowed


def test_without_its_owner_a_spent_quota_stays_spent_to_its_end() -> None:
    """An outage must not sell it again only because the copy would like to ask."""
    fleet = _used_up(_day(1, 20))
    fleet.owner.away = "unplugged"
    assert fleet.limiter.check("globex").source is Source.DEGRADED
    for _ in range(10):
        fleet.advance(60, step_s=10)
        assert not fleet.limiter.check("acme").allowed


def test_of_two_spent_limits_the_longest_wait_is_told_also_when_it_would_be_asked_for_again() -> None:
    """A client that is sent back in a second, for ever, would never learn that its day is over."""
    plan = {"rate_per_s": 0.02, "burst": 20, "limits": {"day": {"quota": 20, "per": "day"}}}
    fleet = Fleet(make_policy(plans={"standard": plan}), evict_after_s=300)
    while fleet.limiter.check("acme").allowed:
        pass
    assert fleet.limiter.check("acme").basis.limit == "day"
    for _ in range(50):
        fleet.advance(1)
        verdict = fleet.limiter.check("acme")
        assert (False, "day") == (verdict.allowed, verdict.basis.limit)


def test_a_copy_where_the_caller_is_idle_does_not_cut_its_bucket_to_the_old_burst() -> None:
    """It settles what it held; on the terms of before that would take tokens that were just sold."""
    fleet = Fleet(make_policy(rate_per_s=100, burst=20), copies=2)
    idle, busy = (copy.limiter for copy in fleet.copies)
    for limiter in (idle, busy):
        limiter.check("acme")
    fleet.advance(0.25)
    for limiter in (idle, busy):
        limiter.apply(make_policy(version=2, rate_per_s=1_000, burst=2_000))
    busy.check("acme", cost=2)
    before = 0.0
    for _ in range(40):
        fleet.clock.advance(0.1)
        busy.check("acme", cost=10)
        idle.tend()
        busy.tend()
        bucket = fleet.owner.bucket("acme", "rate")
        assert bucket is not None
        assert bucket.tokens_micro / 1e6 > before - 50
        before = bucket.tokens_micro / 1e6
    assert before > 1_500
