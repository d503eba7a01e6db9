"""The record is merged by the owner's clock: every copy says how far its own is from it."""

from __future__ import annotations

import pytest

from enforcer.clock import ManualClock
from enforcer.identity import new_identity
from enforcer.limiting.limiter import Limiter
from enforcer.owners.memory import MemoryOwner
from enforcer.settings import LimiterSettings
from enforcer.sink import OwnerClock, SoftLimitReached
from enforcer.testing import RecordingSink
from tests.unit.enforcer.harness import Fleet, MovingOwners, make_policy

DAYS_400_US = 400 * 86_400_000_000


def told(sink: RecordingSink) -> list[OwnerClock]:
    return [fact for fact in sink.events if isinstance(fact, OwnerClock)]


@pytest.mark.parametrize("off_us", [0, DAYS_400_US, -DAYS_400_US])
def test_a_copy_says_how_far_its_clock_is_off(off_us: int) -> None:
    """R18: without it, decisions of a copy that is 400 days ahead would stand in a year that has not begun."""
    clock, sink = ManualClock(), RecordingSink()
    owners = MovingOwners({"A": MemoryOwner(now_us=lambda: clock.unix_us() - off_us)}, where="A")
    settings = LimiterSettings(threaded=False, jitter=lambda: 0.5)
    identity = new_identity("copy", unix_ms=1, pid=1)
    limiter = Limiter(make_policy(), owners, sink, identity, settings=settings, clock=clock)
    limiter.check("acme")
    limiter.tend()
    assert [OwnerClock("A", -off_us, clock.unix_us())] == told(sink)
    limiter.close()
    assert 1 == len(told(sink)), "nothing has moved"


def test_everything_a_copy_tells_is_by_its_own_clock() -> None:
    """Whoever records it adds how far the owner's is from that, and must not add it to a time that is the owner's."""
    clock, sink = ManualClock(), RecordingSink()
    owners = MovingOwners({"A": MemoryOwner(now_us=lambda: clock.unix_us() - DAYS_400_US)}, where="A")
    settings = LimiterSettings(threaded=False, jitter=lambda: 0.5)
    identity = new_identity("copy", unix_ms=1, pid=1)
    limiter = Limiter(make_policy(rate_per_s=0.001, burst=20), owners, sink, identity, settings=settings, clock=clock)
    for _ in range(20):
        limiter.check("acme")
        limiter.tend()
    assert {clock.unix_us()} == {fact.at_us for fact in sink.events if isinstance(fact, SoftLimitReached)}


def test_a_wall_clock_that_is_set_anew_is_told_in_the_next_round() -> None:
    """Also while the owner says nothing."""
    fleet = Fleet()
    fleet.limiter.check("acme")
    fleet.advance(1)
    fleet.owner.away = "dead"
    fleet.clock.step_wall(3_600)
    fleet.limiter.tend()
    assert [0, -3_600_000_000] == [fact.offset_us for fact in told(fleet.sink)]


def test_a_busy_copy_says_it_once_a_minute_at_most() -> None:
    """The owner's answers come by the hundred a second."""
    fleet = Fleet()
    for _ in range(600):
        fleet.limiter.check("acme", cost=20)
        fleet.advance(0.25)
    assert 1 == len(told(fleet.sink))
