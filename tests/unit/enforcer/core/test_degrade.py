"""Deciding alone: which error is chosen, and that it stays as small as was said."""

from __future__ import annotations

import pytest

from enforcer.core.degrade import FailRule, Fallback, LocalBucket, fallback, is_large
from enforcer.policies.model import FailMode
from enforcer.types import Plan, Reason

STANDARD = Plan("standard", 100.0, 200)
LARGE = Plan("large", 20_000.0, 40_000)
TINY = Plan("tiny", 10.0, 10)
FLEET = FailRule(copies=240, ceiling_per_s=160_000.0, large_share=1.0)
S = 1_000_000_000


@pytest.mark.parametrize(
    ("plan", "k", "large"),
    [
        (STANDARD, 4, False),
        (STANDARD, 240, False),
        (STANDARD, 0, False),
        (LARGE, 240, True),
        (LARGE, 0, True),
        (LARGE, 4, False),
        (LARGE, 9, True),
    ],
)
def test_a_plan_is_large_by_k_times_its_rate_against_the_ceiling(plan: Plan, k: int, large: bool) -> None:
    """The full plan in each copy gives the largest caller forty times the fleet; the standard one survives it."""
    assert large == is_large(FLEET, plan, k=k)


@pytest.mark.parametrize("small", [Plan("rate", 10.0, 100), Plan("burst", 100.0, 10)])
def test_a_plan_of_which_either_part_is_smaller_than_the_copies_is_not_large(small: Plan) -> None:
    """A share of less than one token refuses everybody, and one of less than one a second nearly so."""
    rule = FailRule(copies=48, ceiling_per_s=20.0, large_share=1.0)
    assert is_large(rule, Plan("as many", 48.0, 48), k=48)
    assert not is_large(rule, small, k=48)


def test_a_plan_smaller_than_the_copies_is_never_divided() -> None:
    """10 per second over 48 copies rounds to nothing, and a limit of nothing refuses everybody."""
    rule = FailRule(copies=48, ceiling_per_s=20.0, large_share=1.0)
    assert not is_large(rule, TINY, k=48)
    chosen = fallback(rule, TINY, FailMode.BY_PLAN, k=48)
    assert Fallback(10.0, 10.0, Reason.SPENT) == chosen


def test_each_route_mode_has_its_bucket() -> None:
    """Which error is taken is written in the policy, not found out in the outage."""
    assert Fallback(100.0, 200.0, Reason.SPENT) == fallback(FLEET, STANDARD, FailMode.BY_PLAN, k=4)
    assert Fallback(20_000 / 240, 40_000 / 240, Reason.EMERGENCY) == fallback(FLEET, LARGE, FailMode.BY_PLAN, k=240)
    assert Fallback(100 / 240, 1.0, Reason.EMERGENCY) == fallback(FLEET, STANDARD, FailMode.EMERGENCY, k=4)
    assert Fallback(0.0, 0.0, Reason.CLOSED) == fallback(FLEET, STANDARD, FailMode.CLOSED, k=4)
    assert not is_large(FailRule(copies=240, ceiling_per_s=None, large_share=1.0), LARGE, k=240)


def test_local_bucket_keeps_fractions_and_its_promise() -> None:
    """Retrying at the stated time is admitted; a millisecond earlier is not."""
    kind = Fallback(0.3, 1.0, Reason.EMERGENCY)
    bucket = LocalBucket(0, kind)
    assert 0 == bucket.take(kind, 1, 0)
    wait_ms = bucket.take(kind, 1, S // 2)
    assert wait_ms is not None
    assert 2_834 == wait_ms
    at_ns = S // 2 + wait_ms * 1_000_000
    assert bucket.take(kind, 1, at_ns - 1_000_000) not in {0, None}
    assert 0 == bucket.take(kind, 1, at_ns)


def test_local_bucket_admits_its_rate_over_time_and_no_more() -> None:
    """An hour of outage must cost what was declared for an hour."""
    kind = Fallback(100.0, 200.0, Reason.SPENT)
    bucket = LocalBucket(0, kind)
    admitted = sum(bucket.take(kind, 1, step * S // 1_000) == 0 for step in range(60_000))
    assert abs(200 + 100 * 60 - admitted) <= 1


def test_local_bucket_never_holds_more_than_its_capacity() -> None:
    """An hour without traffic must not become an hour's worth of burst."""
    kind = Fallback(100.0, 200.0, Reason.SPENT)
    bucket = LocalBucket(0, kind)
    assert 200 == sum(bucket.take(kind, 1, 3_600 * S) == 0 for _ in range(1_000))


def test_local_bucket_says_when_it_can_never_serve_a_cost() -> None:
    """A wait that never ends is not a Retry-After."""
    kind = Fallback(1.0, 4.0, Reason.EMERGENCY)
    assert LocalBucket(0, kind).take(kind, 5, 0) is None
    closed = Fallback(0.0, 0.0, Reason.CLOSED)
    assert LocalBucket(0, closed).take(closed, 1, 0) is None


def test_local_bucket_never_refills_from_a_clock_that_went_back() -> None:
    """Time is an argument; a wrong one must not mint tokens."""
    kind = Fallback(100.0, 1.0, Reason.SPENT)
    bucket = LocalBucket(10 * S, kind)
    assert 0 == bucket.take(kind, 1, 10 * S)
    assert bucket.take(kind, 1, 9 * S) != 0
    assert bucket.take(kind, 1, 10 * S) != 0


def test_local_bucket_starts_with_no_more_than_the_owner_had_left() -> None:
    """One lost answer in a flood must not hand out the burst that was just spent."""
    kind = Fallback(100.0, 200.0, Reason.SPENT)
    bucket = LocalBucket(0, kind, left=30.9)
    assert 30 == sum(bucket.take(kind, 1, 0) == 0 for _ in range(200))


def test_local_bucket_is_lowered_to_what_the_owner_says_and_never_raised() -> None:
    """Between two outages the owner was heard: what it said is the better knowledge, but no second burst."""
    kind = Fallback(100.0, 200.0, Reason.SPENT)
    bucket = LocalBucket(0, kind)
    bucket.lower(kind, 3.0, S)
    assert 3 == sum(bucket.take(kind, 1, S) == 0 for _ in range(200))
    bucket.lower(kind, 150.0, S)
    assert bucket.take(kind, 1, S) != 0
