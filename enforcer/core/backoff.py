"""How long to leave a bucket alone that its owner could not answer for. Pure: time and chance are arguments."""

from __future__ import annotations

#: Waits before it is asked for again: the first, and the longest.
_FIRST_NS, _LONGEST_NS = 100_000_000, 10_000_000_000


class Backoff:
    """Doubles from fault to fault.

    Attributes:
        until_ns: before then the owner is not asked for this bucket, by the copy's monotonic clock; 0 if it may be.
    """

    __slots__ = ("_faults", "until_ns")

    def __init__(self) -> None:
        self._faults = 0
        self.until_ns = 0

    def faulted(self, now_ns: int, jitter: float, *, longest_ns: int = _LONGEST_NS) -> bool:
        """The owner could not answer.

        Args:
            now_ns: the copy's monotonic clock, after the fault.
            jitter: uniform in [0, 1); spreads the next asks of many copies.
            longest_ns: the wait grows up to this.

        Returns:
            Whether it could answer the time before.
        """
        wait_ns = min(longest_ns, _FIRST_NS << min(self._faults, 20))
        self._faults += 1
        self.until_ns = now_ns + int(wait_ns * (0.5 + 0.5 * jitter))
        return self._faults == 1

    def mended(self) -> bool:
        """The owner answered. Returns whether it could not, the time before."""
        was_faulted = self._faults > 0
        self._faults = 0
        self.until_ns = 0
        return was_faulted
