"""The breaker: slow is down, and finding out costs one probe."""

from __future__ import annotations

from enforcer.core.breaker import Breaker, BreakerState

MS = 1_000_000


def _state(breaker: Breaker) -> BreakerState:
    """Read anew at each call: a property may have changed since."""
    return breaker.state


def test_breaker_opens_on_the_first_failure_and_lets_one_probe_through() -> None:
    """One failure has already cost requests a whole timeout; a second probe would cost another."""
    breaker = Breaker(base_ns=100 * MS, cap_ns=1_000 * MS)
    assert breaker.failed(0, 1.0)
    assert _state(breaker) is BreakerState.OPEN
    assert not breaker.take_probe(99 * MS)
    assert breaker.take_probe(100 * MS)
    assert _state(breaker) is BreakerState.HALF_OPEN
    assert not breaker.take_probe(100 * MS)


def test_failed_probes_wait_twice_as_long_up_to_the_cap() -> None:
    """A dead owner must not be hammered, and a returning one must be found within a second or so."""
    breaker = Breaker(base_ns=100 * MS, cap_ns=1_000 * MS)
    waits = []
    now = 0
    for number in range(6):
        assert (number == 0) == breaker.failed(now, 1.0)
        waits.append((breaker.probe_at_ns - now) // MS)
        now = breaker.probe_at_ns
        assert breaker.take_probe(now)
    assert [100, 200, 400, 800, 1_000, 1_000] == waits


def test_jitter_spreads_probes_over_half_to_all_of_the_wait() -> None:
    """Two hundred copies that lost one owner must not return to it at once."""
    breaker = Breaker(base_ns=100 * MS, cap_ns=1_000 * MS)
    breaker.failed(0, 0.0)
    assert 50 * MS == breaker.probe_at_ns


def test_a_passed_probe_closes_and_remembers_earlier_failures() -> None:
    """What a probe cannot see fails again at the first ask: the wait must go on growing, or requests pay each time."""
    breaker = Breaker(base_ns=100 * MS, cap_ns=1_000 * MS)
    waits = []
    now = 0
    for _ in range(5):
        assert breaker.failed(now, 1.0)
        waits.append((breaker.probe_at_ns - now) // MS)
        now = breaker.probe_at_ns
        assert breaker.take_probe(now)
        assert breaker.proved()
        assert _state(breaker) is BreakerState.CLOSED
    assert [100, 200, 400, 800, 1_000] == waits


def test_an_answered_ask_forgets_earlier_failures() -> None:
    """The next outage starts with the short wait again."""
    breaker = Breaker(base_ns=100 * MS, cap_ns=1_000 * MS)
    assert not breaker.proved()
    breaker.failed(0, 1.0)
    breaker.take_probe(100 * MS)
    breaker.failed(100 * MS, 1.0)
    breaker.take_probe(300 * MS)
    assert breaker.proved()
    breaker.answered()
    breaker.failed(1_000 * MS, 1.0)
    assert 1_100 * MS == breaker.probe_at_ns
