"""The second stage's shell: takes blocks of totals by caller, and writes what is noteworthy once a second.

Knows nothing of Faust. It begins a partition with what the `live` table says, which holds everything that was told
before: so a hole in the delivery, a partition taken over, or memory that has grown too large are all cured by beginning
anew. Nothing is acknowledged before the rows that it led to are stored.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field

from aggregator.core.live.usage_blocks import blocks_of_rows
from aggregator.core.signals.rows import Noteworthy, SignalRows, cut_signals, signals_table
from aggregator.core.signals.state import KEPT_MINUTES, SignalShard, apply, evict
from aggregator.signals.table import SignalsTable
from aggregator.worker.life import Life, Wanted
from aggregator.worker.ports import LogMessage
from aggregator.worker.thread import NotWanted
from stream.contract.layout import CorruptBlock
from stream.contract.usage import UsageBlock, decode_usage

log = logging.getLogger("tallygate.worker")

#: Rows of one INSERT: rows do not depend on each other, so that more of them make more INSERTs.
_MOST_ROWS = 200_000
#: Messages that are not acknowledged yet, in bytes, at which the writer is waited for.
_FULL_BYTES = 64 * 1024 * 1024
#: Names at which a partition is begun anew.
_MOST_NAMES = 500_000


@dataclass(slots=True)
class SignalsStats:
    """Counters since the start of the process.

    Attributes:
        blocks: blocks taken.
        rows: rows of theirs that were newer than what was held.
        strange: blocks of another database's totals.
        corrupt: messages that are not a block.
        opened: times that a partition was begun.
        written: rows written.
        flush_s: seconds that the last write took.
    """

    blocks: int = 0
    rows: int = 0
    strange: int = 0
    corrupt: int = 0
    opened: int = 0
    written: int = 0
    flush_s: float = 0.0


@dataclass(slots=True)
class _Open:
    """A partition as this process has it."""

    shard: SignalShard
    next_offset: int | None = None
    held: list[LogMessage] = field(default_factory=list)
    held_bytes: int = 0


class SignalsJob(Life[_Open]):
    """All partitions of the usage topic that this process has. Its methods run on one event loop."""

    def __init__(
        self,
        table: SignalsTable,
        *,
        table_id: str,
        partitions: int,
        noteworthy: Noteworthy,
        now_s: Callable[[], float],
        now_minute: Callable[[], int],
        full_bytes: int = _FULL_BYTES,
        most_names: int = _MOST_NAMES,
    ) -> None:
        self._table = table
        self._table_id = table_id
        self._partitions = partitions
        self._noteworthy = noteworthy
        super().__init__(now_s=now_s)
        self._now_minute = now_minute
        self._full_bytes = full_bytes
        self._most_names = most_names
        self.stats = SignalsStats()

    @property
    def positions(self) -> dict[int, int]:
        """Partition -> the offset that is due next, where one was taken."""
        return {p: one.next_offset for p, one in self._open.items() if one.next_offset is not None}

    def torn_since(self) -> float | None:
        """Never: a hole is filled from the table."""
        return None

    def torn(self) -> dict[int, int]:
        """None; see `torn_since`."""
        return {}

    async def take(self, message: LogMessage) -> None:
        """Take one message, or leave it unacknowledged if its partition is taken away meanwhile.

        Raises:
            StoreRefused: the table is not what this release expects.
        """
        with suppress(NotWanted):
            opened = await self._ready(message, self._while_ours())
            if opened.next_offset is None or message.offset >= opened.next_offset:
                self._apply(opened, message)
                opened.next_offset = message.offset + 1
            opened.held.append(message)
            opened.held_bytes += len(message.value)

    async def _ready(self, message: LogMessage, wanted: Wanted) -> _Open:
        """The message's partition, begun and with room."""
        while wanted() and sum(one.held_bytes for one in self._open.values()) >= self._full_bytes:
            await self._room(wanted)
        if not wanted():
            raise NotWanted
        opened = self._open.get(message.partition)
        if opened is not None and (opened.next_offset is None or message.offset <= opened.next_offset):
            return opened
        if opened is not None:
            log.warning("partition %d: offset %d is missing; begun anew", message.partition, opened.next_offset)
        return await self._begin(message.partition, opened, wanted)

    async def _begin(self, partition: int, before: _Open | None, wanted: Wanted) -> _Open:
        opened = _Open(SignalShard(partition))
        if before is not None:
            opened.held, opened.held_bytes = before.held, before.held_bytes
        now_minute = self._now_minute()
        for minute in range(now_minute - KEPT_MINUTES + 1, now_minute + 2):
            rows = await self._thread.call(self._table.load, partition, minute, wanted=wanted)
            for target, block in blocks_of_rows(rows, self._table_id, self._partitions):
                if target == partition:
                    apply(opened.shard, block, now_minute=now_minute)
        self.stats.opened += 1
        self._open[partition] = opened
        return opened

    def _apply(self, opened: _Open, message: LogMessage) -> None:
        try:
            block: UsageBlock = decode_usage(message.value)
        except CorruptBlock as error:
            self.stats.corrupt += 1
            log.warning("partition %d offset %d is not usage: %s; left out", message.partition, message.offset, error)
            return
        if block.table_id != self._table_id:
            self.stats.strange += 1
            return
        self.stats.blocks += 1
        self.stats.rows += apply(opened.shard, block, now_minute=self._now_minute())

    # -- writing ---------------------------------------------------------------------------------------------------

    async def flush(self, *, wanted: Wanted) -> None:
        """Write everything that changed so far, then acknowledge what it covers.

        Raises:
            NotWanted: the database is away and nobody wants to wait any more.
            StoreRefused: the table is not what this release expects.
        """
        async with self._flushing:
            covered = {p: (one, one.next_offset, len(one.held)) for p, one in self._open.items()}
            parts = [rows for one in self._open.values() for rows in cut_signals(one.shard, self._noteworthy)]
            started_s = self._now_s()
            for group in _groups(parts):
                rows = signals_table(group)
                await self._thread.call(self._table.write, rows, wanted=wanted)
                self.stats.written += rows.num_rows
            self.stats.flush_s = self._now_s() - started_s
            for partition, (opened, next_offset, count) in covered.items():
                if self._open.get(partition) is opened:
                    self._settle(partition, opened, next_offset, count)
            self._stored.set()

    def _settle(self, partition: int, opened: _Open, next_offset: int | None, count: int) -> None:
        """Acknowledge what is stored, and forget what is of no use any more."""
        if next_offset is not None:
            self.durable[partition] = next_offset
        for message in opened.held[:count]:
            opened.held_bytes -= len(message.value)
            message.ack()
        del opened.held[:count]
        evict(opened.shard, now_minute=self._now_minute())
        if opened.shard.names > self._most_names and not opened.held:
            del self._open[partition]


def _groups(parts: Iterable[SignalRows]) -> Iterable[list[SignalRows]]:
    """The parts in groups of at most some 200,000 rows, and no group without rows."""
    group: list[SignalRows] = []
    rows = 0
    for part in parts:
        if group and rows + len(part.callers) > _MOST_ROWS:
            yield group
            group, rows = [], 0
        group.append(part)
        rows += len(part.callers)
    if rows:
        yield group
