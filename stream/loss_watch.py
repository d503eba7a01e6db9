"""What a copy says of its losses in its process's log: when they begin, when they are over, what is left at the end.

Pure; the sink writes what it returns.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from stream.buffer import Loss

#: Ranges that the last line names; the rest it counts.
_MAX_RANGES: Final = 20
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


def ending_line(losses: Sequence[Loss], *, facts: int) -> str | None:
    """What is to be said when a copy has ended, if anything.

    Args:
        losses: decisions that no message on the log names.
        facts: grants and settlements that were lost with them.
    """
    if not losses and not facts:
        return None
    named = [
        f"{loss.count:,} from seq {loss.first_seq} to {loss.first_seq + loss.count - 1} ({loss.cause})"
        for loss in losses[:_MAX_RANGES]
    ]
    if len(losses) > _MAX_RANGES:
        named.append(
            f"{sum(loss.count for loss in losses[_MAX_RANGES:]):,} in {len(losses) - _MAX_RANGES} further ranges"
        )
    decisions = sum(loss.count for loss in losses)
    return (
        f"closed before Kafka had taken everything: {decisions:,} decisions and {facts:,} grants and settlements "
        f"are not recorded, and only this line says so: {'; '.join(named) or 'no decisions'}"
    )
