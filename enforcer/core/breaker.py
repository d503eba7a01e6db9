"""Whether to ask the owner at all: a circuit breaker that treats slow as down.

Pure: every method takes the time. It never asks anybody; the asker does, and reports back.
"""

from __future__ import annotations

from enum import Enum


class BreakerState(Enum):
    """What the breaker lets through."""

    CLOSED = "closed"
    """Asks go to the owner."""
    OPEN = "open"
    """Nothing goes to the owner until the next probe is due."""
    HALF_OPEN = "half_open"
    """One probe is under way."""


class Breaker:
    """Opens on the first failure; then one probe at a time, each failure doubling the wait for the next.

    One failure is enough because it already cost requests their whole timeout. Wrongly open for one probe's wait
    costs degraded verdicts; wrongly closed costs every request a timeout. Only an ask that was answered ends the
    doubling: an owner that passes its probe and then fails again has not come back.
    """

    __slots__ = ("_base_ns", "_cap_ns", "_failures", "_probe_at_ns", "_state")

    def __init__(self, *, base_ns: int = 100_000_000, cap_ns: int = 1_000_000_000) -> None:
        self._base_ns = base_ns
        self._cap_ns = cap_ns
        self._failures = 0
        self._probe_at_ns = 0
        self._state = BreakerState.CLOSED

    @property
    def state(self) -> BreakerState:
        """What the breaker lets through now."""
        return self._state

    @property
    def probe_at_ns(self) -> int:
        """When the next probe is due; meaningful while open."""
        return self._probe_at_ns

    def proved(self) -> bool:
        """The probe passed: asks may go out. Returns whether this closed the breaker."""
        changed = self._state is not BreakerState.CLOSED
        self._state = BreakerState.CLOSED
        return changed

    def answered(self) -> None:
        """An ask was answered: the next outage starts with the shortest wait."""
        self._failures = 0

    def failed(self, now_ns: int, jitter: float) -> bool:
        """The owner did not answer. Returns whether this opened the breaker.

        Args:
            now_ns: the copy's monotonic clock, after the failure.
            jitter: uniform in [0, 1); spreads the probes of many copies over half to all of the wait.
        """
        opened = self._state is BreakerState.CLOSED
        wait_ns = min(self._cap_ns, self._base_ns << min(self._failures, 20))
        self._failures += 1
        self._probe_at_ns = now_ns + int(wait_ns * (0.5 + 0.5 * jitter))
        self._state = BreakerState.OPEN
        return opened

    def take_probe(self, now_ns: int) -> bool:
        """Whether the one probe may go out now; it then must be followed by `proved` or `failed`."""
        if self._state is not BreakerState.OPEN or now_ns < self._probe_at_ns:
            return False
        self._state = BreakerState.HALF_OPEN
        return True
