"""What is left to settle: which minutes are dirty, which of them are due, and how far the journal has been heeded.

Pure over (state, time). Never reads the journal, and never counts a decision.

A minute is dirty once the journal says that decisions of it were newly stored. It is due when it is closed (its end and
a grace have passed), and again whenever late blocks make it dirty, but not twice within ten seconds. Of what is due,
minutes that have just closed come first, newest first, because pages and alarms look at them; what is left of a round's
share goes to the rest, oldest first, so that a backlog closes its days in order and nothing in it waits for ever.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

#: A log (its topic's id) and a partition of it.
Log: TypeAlias = tuple[str, int]

MINUTE_US = 60_000_000
MINUTES_PER_DAY = 1_440
DAY_US = MINUTES_PER_DAY * MINUTE_US
#: A minute that closed so long ago or less has just closed.
_FRESH_US = 5 * MINUTE_US
#: The same minute is not settled again before.
_AGAIN_US = 10_000_000
#: How many minutes may wait to be compared with the live totals: a day. The oldest are let go beyond.
MOST_UNCHECKED = MINUTES_PER_DAY


@dataclass(frozen=True, slots=True)
class Progress:
    """What is settled: all that the journal says below `positions`, except what is listed.

    Attributes:
        positions: the next offset of each log and partition.
        minutes: unix minutes that are dirty.
        days: unix days whose sums are to be made again, each with the lowest version that one of its minutes got since.
        unchecked: unix minutes that are settled and not yet compared with the live totals.
    """

    positions: Mapping[Log, int] = field(default_factory=dict)
    minutes: Collection[int] = ()
    days: Mapping[int, int] = field(default_factory=dict)
    unchecked: Collection[int] = ()

    @property
    def version(self) -> int:
        """The position in the log as one number; never falls, because no offset does."""
        return sum(self.positions.values())


class Backlog:
    """The work of a settler, from a stored progress on.

    Args:
        progress: where the settlers stand.
        grace_us: how long after its end a minute closes.
    """

    def __init__(self, progress: Progress, *, grace_us: int) -> None:
        self._positions = dict(progress.positions)
        self._minutes = set(progress.minutes)
        self._days = dict(progress.days)
        self._unchecked = set(progress.unchecked)
        self._grace_us = grace_us
        self._settled_us: dict[int, int] = {}

    @property
    def progress(self) -> Progress:
        """What to write down now."""
        return Progress(
            dict(sorted(self._positions.items())), sorted(self._minutes), dict(sorted(self._days.items())),
            sorted(self._unchecked)[-MOST_UNCHECKED:],
        )  # fmt: skip

    @property
    def version(self) -> int:
        """See `Progress.version`."""
        return sum(self._positions.values())

    @property
    def dirty(self) -> frozenset[int]:
        """All minutes that are to be settled, now or later."""
        return frozenset(self._minutes)

    @property
    def unchecked(self) -> frozenset[int]:
        """Minutes that are settled, clean, and not yet compared with the live totals; the newest."""
        return frozenset(sorted(self._unchecked - self._minutes)[-MOST_UNCHECKED:])

    @property
    def positions(self) -> Mapping[Log, int]:
        """See `Progress.positions`."""
        return self._positions

    def note(self, log: Log, next_offset: int, minutes: Iterable[int]) -> None:
        """The journal of a log reaches to `next_offset`, and names these minutes as dirty."""
        self._positions[log] = max(next_offset, self._positions.get(log, 0))
        self._minutes.update(minutes)

    def due(self, now_us: int, most: int) -> list[int]:
        """Up to `most` minutes to settle now, in the order in which they matter."""
        closed = [
            minute
            for minute in self._minutes
            if self._closed_us(minute) <= now_us and now_us - self._settled_us.get(minute, -_AGAIN_US) >= _AGAIN_US
        ]
        fresh = sorted((minute for minute in closed if now_us - self._closed_us(minute) <= _FRESH_US), reverse=True)
        rest = sorted(minute for minute in closed if now_us - self._closed_us(minute) > _FRESH_US)
        return [*fresh, *rest][:most]

    def settled(self, minutes: Iterable[int], version: int, now_us: int) -> None:
        """These minutes were settled at `version`: clean, to be compared, and their days to be summed."""
        self._settled_us = {minute: at for minute, at in self._settled_us.items() if 0 <= now_us - at < _AGAIN_US}
        for minute in minutes:
            self._minutes.discard(minute)
            self._unchecked.add(minute)
            self._settled_us[minute] = now_us
            day = minute // MINUTES_PER_DAY
            self._days[day] = min(version, self._days.get(day, version))

    def too_late(self, from_us: int, dropped: Collection[tuple[int, int]] = ()) -> list[int]:
        """The dirty minutes that begin before a time or lie in these spans: raw decisions of theirs may be gone."""
        return sorted(
            minute
            for minute in self._minutes
            if minute * MINUTE_US < from_us
            or any(start_us <= minute * MINUTE_US < end_us for start_us, end_us in dropped)
        )

    def let_go(self, minutes: Iterable[int]) -> None:
        """These minutes will not be recounted."""
        self._minutes.difference_update(minutes)

    def again(self, minute: int) -> None:
        """This minute is to be settled again, and its day summed again for everybody."""
        self._minutes.add(minute)
        self._days[minute // MINUTES_PER_DAY] = 0

    def behind_us(self, now_us: int) -> int:
        """How long the closed minute that waits longest has waited, in microseconds; 0 if none does."""
        return max(0, now_us - min(map(self._closed_us, self._minutes), default=now_us))

    def days_due(self, now_us: int) -> list[tuple[int, int]]:
        """Days that are over and whose sums are to be made (again), oldest first, each with its lowest new version."""
        over = (now_us - self._grace_us) // DAY_US
        return sorted((day, since) for day, since in self._days.items() if day < over)

    def day_settled(self, day: int) -> None:
        """A day's sums are those of its minutes."""
        self._days.pop(day, None)

    def checked(self, minutes: Iterable[int]) -> None:
        """These minutes were compared with the live totals, and need not be again unless they change."""
        self._unchecked.difference_update(minutes)

    def _closed_us(self, minute: int) -> int:
        return (minute + 1) * MINUTE_US + self._grace_us


def by_day(minutes: Iterable[int]) -> list[list[int]]:
    """The minutes of each UTC day together, ascending; days in the order in which they first appear."""
    days: dict[int, list[int]] = {}
    for minute in minutes:
        days.setdefault(minute // MINUTES_PER_DAY, []).append(minute)
    return [sorted(group) for group in days.values()]


def covers(live: Mapping[Log, tuple[int, int]], positions: Mapping[Log, int]) -> bool:
    """Whether the live totals have counted everything below these positions.

    Args:
        live: of each log and partition the next offset, and the version, which is higher for a younger log.
        positions: the next offset of each.

    A log that the worker has left for a younger one of the same partition is covered as far as it ever will be.
    """
    youngest: dict[int, int] = {}
    for (_, partition), (_, version) in live.items():
        youngest[partition] = max(version, youngest.get(partition, 0))
    for (log_id, partition), position in positions.items():
        next_offset, version = live.get((log_id, partition), (0, 0))
        if next_offset < position and version >= youngest.get(partition, 0):
            return False
    return True
