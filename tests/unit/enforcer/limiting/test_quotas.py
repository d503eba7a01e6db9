"""Calendar quotas through the limiter: the amount, then nothing until the turn, then the amount again."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from tests.unit.enforcer.harness import Fleet, make_policy

TEN_A_DAY = {"day": {"by": "caller", "quota": 10, "per": "day"}}


def _seconds_to_midnight(fleet: Fleet) -> float:
    now = datetime.fromtimestamp(fleet.clock.unix_us() / 1e6, UTC)
    midnight = datetime(now.year, now.month, now.day, tzinfo=UTC) + timedelta(days=1)
    return (midnight - now).total_seconds()


def test_quota_admits_its_amount_and_then_says_midnight() -> None:
    """What was sold as ten a day is ten, and the caller is told when there are ten more."""
    fleet = Fleet(make_policy(limits=TEN_A_DAY))
    assert [True] * 10 + [False] * 3 == [fleet.limiter.check("acme").allowed for _ in range(13)]
    refused = fleet.limiter.check("acme")
    assert refused.basis.limit == "day"
    assert refused.retry_after_ms == round(_seconds_to_midnight(fleet) * 1_000)
    fleet.clock.advance(_seconds_to_midnight(fleet) - 1)
    assert not fleet.limiter.check("acme").allowed
    fleet.clock.advance(1)
    assert [True] * 10 + [False] * 3 == [fleet.limiter.check("acme").allowed for _ in range(13)]


def test_a_monthly_quota_that_is_used_up_says_the_first_of_the_next_month() -> None:
    """The record cannot carry more than 24.8 days, but a client that obeys must not be refused again."""
    fleet = Fleet(make_policy(limits={"month": {"by": "caller", "quota": 5, "per": "month"}}))
    first, next_first = datetime(2025, 7, 1, 1, tzinfo=UTC), datetime(2025, 8, 1, tzinfo=UTC)
    fleet.clock.step_wall(first.timestamp() - fleet.clock.unix_us() / 1e6)
    for _ in range(7):
        refused = fleet.limiter.check("acme")
    assert (next_first - first) / timedelta(milliseconds=1) == refused.retry_after_ms


def test_copies_share_one_quota() -> None:
    """Ten in all, whoever is asked; what one copy holds unspent comes back to the others within the day."""
    fleet = Fleet(make_policy(limits=TEN_A_DAY), copies=3)
    admitted = 0
    for number in range(60):
        admitted += fleet.copies[number % 3].limiter.check("acme").allowed
        fleet.advance(1)
    assert admitted == 10


def test_stock_of_a_crashed_copy_is_not_sold_twice() -> None:
    """Its tokens may have been spent: they are gone until the turn, and then all ten are there."""
    fleet = Fleet(make_policy(limits=TEN_A_DAY), copies=2)
    alive = fleet.copies[0].limiter
    lost = sum(fleet.copies.pop().limiter.check("acme").allowed for _ in range(1))
    admitted = 0
    for _ in range(60):
        admitted += alive.check("acme").allowed
        fleet.advance(1)
    assert lost + admitted <= 10
    assert admitted >= 8
    fleet.clock.advance(_seconds_to_midnight(fleet))
    assert sum(alive.check("acme").allowed for _ in range(15)) == 10


def test_copy_whose_clock_is_days_off_finds_the_owners_day() -> None:
    """The owner's calendar counts: the first ask is wrong about it, and every one after that is right."""
    fleet = Fleet(make_policy(limits=TEN_A_DAY))
    ahead_us = 9 * 86_400 * 1_000_000
    fleet.owner._now_us = lambda: fleet.clock.unix_us() + ahead_us
    fleet.limiter.check("acme")
    fleet.advance(5)
    for _ in range(15):
        fleet.limiter.check("acme")
    bucket = fleet.owner.bucket("acme", "day")
    assert bucket is not None
    assert bucket.tokens_micro == 0
    assert bucket.period_start_us <= fleet.clock.unix_us() + ahead_us < bucket.period_start_us + 86_400 * 1_000_000
