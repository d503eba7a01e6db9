"""What the second stage is told: totals by caller, as blocks for the partitions of the usage topic.

Made of a cut that was stored, or of rows of the `live` table; both say the same. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TypeAlias

import numpy as np

from aggregator.core.live.callers import CallerTotals
from aggregator.core.live.rows import Cut, MinuteCut
from aggregator.core.live.tables import Interner
from stream.contract.block import Int64s
from stream.contract.partition import caller_partition
from stream.contract.usage import MAX_MINUTES, MAX_ROWS, Octets, UsageBlock, UsageMinute, encode_usage

#: (source partition, unix minute, caller, version, the counts in the order of USAGE_COUNTS, k_counted, copies)
CallerUsageRow: TypeAlias = tuple[int, int, str, int, Sequence[int], int, Sequence[str]]

#: Longest message, far below what a broker takes by default (1 MB).
MAX_MESSAGE_BYTES = 512 * 1024


class CallerTargets:
    """Which partition of the usage topic each caller of a shard belongs to; reckoned once per caller and shard."""

    def __init__(self, partitions: int) -> None:
        self.partitions = partitions
        self._of: dict[int, tuple[Interner[str], Int64s]] = {}

    def of(self, names: Interner[str]) -> Int64s:
        """The partition of each caller id that the interner has by now."""
        kept, targets = self._of.get(id(names), (None, np.zeros(0, np.int64)))
        if kept is not names:
            targets = np.zeros(0, np.int64)
        count = len(names)
        if targets.size < count:
            fresh = [caller_partition(name, self.partitions) for name in names.keys[targets.size : count]]
            targets = np.concatenate([targets, np.array(fresh, np.int64)])
            self._of[id(names)] = (names, targets)
        return targets

    def trim(self, alive: Iterable[Interner[str]]) -> None:
        """Forget the shards that are gone, if they are many."""
        held = {id(names) for names in alive}
        if len(self._of) > 2 * len(held) + 8:
            self._of = {key: kept for key, kept in self._of.items() if key in held}


def blocks_of_cut(one: Cut, table_id: str, targets: CallerTargets) -> Iterator[tuple[int, UsageBlock]]:
    """(usage partition, block) for everything that the cut has to tell."""
    target_of = targets.of(one.callers)
    for target in range(targets.partitions):
        minutes: list[UsageMinute] = []
        for minute in one.minutes:
            if minute.totals is not None:
                lines = np.flatnonzero(target_of[minute.totals.callers] == target)
                minutes.extend(_of_lines(one, minute, minute.totals, lines) if lines.size else ())
        for first in range(0, len(minutes), MAX_MINUTES):
            yield target, UsageBlock(table_id, one.partition, minutes[first : first + MAX_MINUTES])


def _of_lines(one: Cut, minute: MinuteCut, totals: CallerTotals, lines: Int64s) -> Iterator[UsageMinute]:
    octets = -(-len(minute.copies) // 8)
    for first in range(0, lines.size, MAX_ROWS):
        part = lines[first : first + MAX_ROWS]
        words = np.ascontiguousarray(totals.reached[part].astype("<u8"))
        names = one.callers.keys
        yield UsageMinute(
            minute=minute.minute,
            callers=[names[caller] for caller in totals.callers[part].tolist()],
            copies=minute.copies,
            version=np.full(part.size, one.version, np.int64),
            k_counted=totals.k[part],
            counts=totals.counts[part],
            reached=np.ascontiguousarray(words.view(np.uint8)[:, :octets]),
        )


def blocks_of_rows(rows: Iterable[CallerUsageRow], table_id: str, partitions: int) -> Iterator[tuple[int, UsageBlock]]:
    """(usage partition, block) for rows of the table; each key stands in them once."""
    grouped: dict[tuple[int, int, int], list[CallerUsageRow]] = {}
    for row in rows:
        grouped.setdefault((caller_partition(row[2], partitions), row[0], row[1]), []).append(row)
    for (target, source, minute), found in grouped.items():
        for first in range(0, len(found), MAX_ROWS):
            part = _of_rows(minute, found[first : first + MAX_ROWS])
            yield target, UsageBlock(table_id, source, [part])


def _of_rows(minute: int, rows: Sequence[CallerUsageRow]) -> UsageMinute:
    copies = sorted({copy_id for row in rows for copy_id in row[6]})
    place = {copy_id: number for number, copy_id in enumerate(copies)}
    reached = np.zeros((len(rows), len(copies)), np.uint8)
    for line, row in enumerate(rows):
        reached[line, [place[copy_id] for copy_id in row[6]]] = 1
    return UsageMinute(
        minute=minute,
        callers=[row[2] for row in rows],
        copies=copies,
        version=np.array([row[3] for row in rows], np.int64),
        k_counted=np.array([row[5] for row in rows], np.int64),
        counts=np.array([row[4] for row in rows], np.int64),
        reached=np.packbits(reached, axis=1, bitorder="little"),
    )


def messages_of(block: UsageBlock) -> Iterator[bytes]:
    """The block encoded, in as many messages as its length asks for."""
    data = encode_usage(block)
    rows = sum(len(one.callers) for one in block.minutes)
    if len(data) <= MAX_MESSAGE_BYTES or rows <= 1:
        yield data
        return
    for half in _halves(block):
        yield from messages_of(half)


def _halves(block: UsageBlock) -> Iterator[UsageBlock]:
    if len(block.minutes) > 1:
        middle = len(block.minutes) // 2
        parts: list[Sequence[UsageMinute]] = [block.minutes[:middle], block.minutes[middle:]]
    else:
        (one,) = block.minutes
        middle = len(one.callers) // 2
        parts = [[_lines(one, slice(None, middle))], [_lines(one, slice(middle, None))]]
    for minutes in parts:
        yield UsageBlock(block.table_id, block.source_partition, minutes)


def _lines(one: UsageMinute, part: slice) -> UsageMinute:
    reached: Octets = one.reached[part]
    return UsageMinute(
        one.minute, one.callers[part], one.copies, one.version[part], one.k_counted[part], one.counts[part], reached
    )
