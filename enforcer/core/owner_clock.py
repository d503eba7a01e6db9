"""What time it is at the owner, as far as its answers show: the smallest round trip of late says it best.

Pure: times are arguments. Several owners are one clock here, for they are set by one time service or nobody can merge
what they say; whichever answers fastest is believed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

#: An answer is recent for one to two of these.
_RECENT_NS: Final = 30_000_000_000
#: The sink is told at once of a change by more than this, of a smaller one once in a while.
_MOVED_US: Final = 20_000
_TELL_EVERY_NS: Final = 60_000_000_000


@dataclass(frozen=True, slots=True)
class _Heard:
    owner: str
    round_trip_ns: int
    ahead_us: int
    """The owner's clock minus the copy's monotonic clock."""


class OwnerClockEstimate:
    """Of one copy. Not thread-safe."""

    def __init__(self) -> None:
        self._best: _Heard | None = None
        self._best_before: _Heard | None = None
        self._since_ns = 0
        self._told_us: int | None = None
        self._told_ns = 0

    def heard(self, owner: str, owner_now_us: int, *, sent_ns: int, now_ns: int) -> None:
        """An owner has said its time in a round trip that lasted from `sent_ns` to `now_ns`, by the monotonic clock.

        The owner read its clock somewhere in between: the middle is wrong by half the round trip at most.
        """
        if now_ns - self._since_ns >= _RECENT_NS:
            self._best_before = self._best if now_ns - self._since_ns < 2 * _RECENT_NS else None
            self._best, self._since_ns = None, now_ns
        heard = _Heard(owner, now_ns - sent_ns, owner_now_us - (sent_ns + now_ns) // 2_000)
        if self._best is None or heard.round_trip_ns <= self._best.round_trip_ns:
            self._best = heard

    def due(self, *, now_ns: int, unix_us: int) -> tuple[str, int] | None:
        """What the sink is to be told now: an owner's name, and its clock minus the wall clock, in microseconds.

        Args:
            now_ns: the monotonic clock.
            unix_us: the wall clock at the same moment; it may have been set anew since an owner answered.
        """
        best = min(
            (heard for heard in (self._best, self._best_before) if heard is not None),
            key=lambda heard: heard.round_trip_ns,
            default=None,
        )
        if best is None:
            return None
        offset_us = best.ahead_us + now_ns // 1_000 - unix_us
        if not self._is_news(offset_us, now_ns):
            return None
        self._told_us, self._told_ns = offset_us, now_ns
        return best.owner, offset_us

    def _is_news(self, offset_us: int, now_ns: int) -> bool:
        if self._told_us is None or abs(offset_us - self._told_us) > _MOVED_US:
            return True
        return offset_us != self._told_us and now_ns - self._told_ns >= _TELL_EVERY_NS
