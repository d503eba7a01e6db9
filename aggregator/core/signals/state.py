"""The state of the second stage for one partition of the usage topic: the last minutes' totals of its callers.

Each total stands under (source partition, minute, caller) at a version, and only a higher version replaces it. So the
state is a function of what was told, in whatever order and however often. Never talks to Kafka or ClickHouse, never
reads a clock.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from aggregator.core.live.tables import Bools, Interner, RowIndex, Rows, grown, names_interner
from stream.contract.block import Int64s
from stream.contract.usage import USAGE_COUNTS, Octets, UsageBlock, UsageMinute

#: Minutes before one that it is compared with.
BASE_MINUTES = 10
#: Minutes held, the present one included: a minute that is late by a few still finds all that it is compared with.
KEPT_MINUTES = 15
#: How far ahead of the clock a minute may be, as copies' clocks are before they are corrected.
_AHEAD_MINUTES = 6
_FIRST_ROWS = 64
_COUNTS = len(USAGE_COUNTS)
OFFERED, ADMITTED = USAGE_COUNTS.index("offered"), USAGE_COUNTS.index("admitted")


class SourceMinute:
    """What one source partition says of one minute."""

    __slots__ = ("_counts", "_index", "_versions")

    def __init__(self) -> None:
        self._index = RowIndex()
        self._counts = np.zeros((_FIRST_ROWS, _COUNTS), np.int64)
        self._versions = np.zeros(_FIRST_ROWS, np.int64)

    def replace(self, ids: Int64s, versions: Int64s, counts: Int64s) -> tuple[Rows, Int64s, Int64s]:
        """Take what is newer than what is held.

        Args:
            ids: callers, distinct.
            versions: of each line.
            counts: of each line.

        Returns:
            Which lines were newer, and by how much versions and counts of these have grown.
        """
        rows = self._index.rows_of(ids)
        self._counts, self._versions = grown(self._counts, self._index.count), grown(self._versions, self._index.count)
        newer = np.flatnonzero(versions > self._versions[rows])
        rows = rows[newer]
        by_version, by_count = versions[newer] - self._versions[rows], counts[newer] - self._counts[rows]
        self._versions[rows], self._counts[rows] = versions[newer], counts[newer]
        return newer, by_version, by_count


class FleetMinute:
    """One minute over all source partitions: by caller, sums of what they say."""

    __slots__ = ("counts", "dirty", "index", "k_counted", "reached", "sources", "touched", "versions")

    def __init__(self) -> None:
        self.index = RowIndex()
        self.sources: dict[int, SourceMinute] = {}
        self.counts = np.zeros((_FIRST_ROWS, _COUNTS), np.int64)
        #: Sums of the versions that stand behind each row.
        self.versions = np.zeros(_FIRST_ROWS, np.int64)
        self.k_counted = np.zeros(_FIRST_ROWS, np.int64)
        #: One bit a copy, as the shard numbers them.
        self.reached = np.zeros((_FIRST_ROWS, 1), np.uint8)
        self.dirty = np.zeros(_FIRST_ROWS, np.bool_)
        #: Whether anything changed since the last cut.
        self.touched = False

    def rows_of(self, ids: Int64s) -> Rows:
        """The rows of these callers, new ones appended."""
        rows = self.index.rows_of(ids)
        need = self.index.count
        if need > self.dirty.size:
            self.counts, self.versions = grown(self.counts, need), grown(self.versions, need)
            self.k_counted, self.reached = grown(self.k_counted, need), grown(self.reached, need)
            self.dirty = grown(self.dirty, need)
        return rows

    def known_rows(self, ids: Int64s) -> tuple[Rows, Bools]:
        """The rows of those callers that it knows, and which those are."""
        rows = self.index.known(ids)
        known = rows >= 0
        return rows[known], known


@dataclass(slots=True)
class SignalShard:
    """Everything of one partition of the usage topic."""

    partition: int
    minutes: dict[int, FleetMinute] = field(default_factory=dict)
    callers: Interner[str] = field(default_factory=names_interner)
    copies: Interner[str] = field(default_factory=Interner)
    #: By caller id: whether it is anonymous. Kept by `signals_rows`.
    anonymous: Bools = field(default_factory=lambda: np.zeros(0, np.bool_))

    @property
    def names(self) -> int:
        """Names in memory; forgotten only with the whole shard."""
        return len(self.callers) + len(self.copies)


def apply(shard: SignalShard, block: UsageBlock, *, now_minute: int) -> int:
    """Take what a block says; returns how many of its rows were newer than what was held.

    Minutes that are no longer held, or far ahead of the clock, are left out.
    """
    newer = 0
    for part in block.minutes:
        if now_minute - KEPT_MINUTES < part.minute <= now_minute + _AHEAD_MINUTES:
            newer += _apply_minute(shard, block.source_partition, part)
    return newer


def evict(shard: SignalShard, *, now_minute: int) -> None:
    """Forget the minutes that are no longer held. To be called when everything is cut."""
    for number in [number for number in shard.minutes if number <= now_minute - KEPT_MINUTES]:
        del shard.minutes[number]


def _apply_minute(shard: SignalShard, source: int, part: UsageMinute) -> int:
    minute = shard.minutes.get(part.minute)
    if minute is None:
        minute = shard.minutes[part.minute] = FleetMinute()
    ids = shard.callers.ids_of(list(part.callers))
    table = minute.sources.setdefault(source, SourceMinute())
    newer, by_version, by_count = table.replace(ids, part.version, part.counts)
    if newer.size == 0:
        return 0
    ids = ids[newer]
    rows = minute.rows_of(ids)
    minute.counts[rows] += by_count
    minute.versions[rows] += by_version
    minute.k_counted[rows] = np.maximum(minute.k_counted[rows], part.k_counted[newer])
    _reach(shard, minute, rows, part.reached[newer], part.copies)
    minute.dirty[rows] = True
    minute.touched = True
    _touch_later(shard, part.minute, ids)
    return int(newer.size)


def _reach(shard: SignalShard, minute: FleetMinute, rows: Rows, reached: Octets, copies: Iterable[str]) -> None:
    """Add copies to those that the callers have reached; a newer version never names fewer."""
    places = shard.copies.ids_of(list(copies))
    if places.size == 0:
        return
    width = -(-len(shard.copies) // 8)
    if width > minute.reached.shape[1]:
        minute.reached = np.pad(minute.reached, ((0, 0), (0, width - minute.reached.shape[1])))
    flags = np.unpackbits(reached, axis=1, count=places.size, bitorder="little")
    ours = np.zeros((rows.size, 8 * minute.reached.shape[1]), np.uint8)
    ours[:, places] = flags
    minute.reached[rows] |= np.packbits(ours, axis=1, bitorder="little")


def _touch_later(shard: SignalShard, number: int, ids: Int64s) -> None:
    """What is compared with this minute has changed as well."""
    for later, minute in shard.minutes.items():
        if number < later <= number + BASE_MINUTES:
            rows, _ = minute.known_rows(ids)
            minute.dirty[rows] = True
            minute.touched = minute.touched or rows.size > 0
