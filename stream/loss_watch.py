"""Says when a copy begins to lose decisions, and when it has ceased to. Pure; the sink writes what it returns."""

from __future__ import annotations

#: Without a further loss for so long, it is over.
_QUIET_S = 5.0


class LossWatch:
    """One line when losing begins, one when it is over; nothing in between."""

    def __init__(self) -> None:
        self._lost = 0
        self._before = 0
        self._last_s: float | None = None

    def line(self, lost: int, *, now_s: float) -> str | None:
        """What is to be said now, if anything.

        Args:
            lost: decisions lost so far in this epoch, a total.
            now_s: any monotonic clock.
        """
        if lost > self._lost:
            begins = self._last_s is None
            if begins:
                self._before = self._lost
            self._lost, self._last_s = lost, now_s
            if begins:
                return (
                    "decisions are being lost: more wait for Kafka than the memory for them holds "
                    "(TALLYGATE_MAX_HELD_DECISIONS, TALLYGATE_MAX_HELD_BYTES), or some could not be shipped; "
                    "the log will name each of them"
                )
        elif self._last_s is not None and now_s - self._last_s >= _QUIET_S:
            self._last_s = None
            return f"no more decisions are being lost; {self._lost - self._before:,} were, all of them named"
        return None
