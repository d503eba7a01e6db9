"""The live totals' shell: takes messages one by one, keeps the state of each partition, and writes what changed.

Knows nothing of Faust. A message is acknowledged only after the rows that cover it are stored; whatever is uncertain
(a partition taken away, a write by another worker, a hole in the delivery) drops state and starts again from the
table, and is never guessed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from contextlib import suppress

from aggregator.core.live_load import Moved, open_shard, put_blank, put_copies, put_minutes
from aggregator.core.live_rows import MAX_ROWS, Cut, cut, group_cuts
from aggregator.core.live_shard import Kept, Shard, is_outgrown
from aggregator.core.live_totals import ahead_of, fold, missing
from aggregator.worker.partition import OpenPartition
from aggregator.worker.ports import LiveStats, LogMessage, LogView
from aggregator.worker.table import LiveTable
from aggregator.worker.thread import NotWanted, TableThread
from stream.contract.block import DecisionBlock
from stream.contract.layout import MAX_DECISIONS, CorruptBlock

log = logging.getLogger("tallygate.worker")

#: Changed rows (or loaded ones) at which a shard is written before it takes more: one more block (a decision changes
#: at most a usage, a caller and a fleet row) still fits into one INSERT then.
_FULL_ROWS = MAX_ROWS - 3 * MAX_DECISIONS - 2
_FULL_BYTES = 64 * 1024 * 1024
_KEPT = Kept()
_US_PER_S = 1_000_000


Wanted = Callable[[], bool]


class LiveJob:
    """All partitions that this process has. Its methods run on one event loop, the table's in one thread."""

    def __init__(
        self,
        table: LiveTable,
        view: LogView,
        *,
        decode: Callable[[bytes], DecisionBlock],
        now_s: Callable[[], float],
        full_rows: int = _FULL_ROWS,
        full_bytes: int = _FULL_BYTES,
        kept: Kept = _KEPT,
    ) -> None:
        self._table = table
        self._view = view
        self._decode = decode
        self._now_s = now_s
        self._full_rows = full_rows
        self._full_bytes = full_bytes
        self._kept = kept
        self._open: dict[int, OpenPartition] = {}
        self._generation = 0
        self._closing = False
        self._flushing = asyncio.Lock()
        self._full = asyncio.Event()
        self._stored = asyncio.Event()
        self._thread = TableThread(now_s)
        self.stats = LiveStats()
        #: Partition -> offset before which everything is stored: what may be committed.
        self.durable: dict[int, int] = {}

    @property
    def positions(self) -> dict[int, int]:
        """Partition -> the offset that is due next."""
        return {partition: opened.shard.next_offset for partition, opened in self._open.items()}

    @property
    def names(self) -> int:
        """Names in memory, over all partitions."""
        return sum(opened.shard.names for opened in self._open.values())

    @property
    def rows(self) -> int:
        """Rows in memory, over all partitions."""
        return sum(opened.shard.rows for opened in self._open.values())

    @property
    def blocked_since(self) -> float | None:
        """Since when the database takes nothing, on the job's clock; None while it does."""
        return self._thread.blocked_since

    def torn_since(self) -> float | None:
        """Since when the oldest missing message has been awaited; None if none is."""
        return min((one.torn_since for one in self._open.values() if one.torn_since is not None), default=None)

    async def take(self, message: LogMessage) -> None:
        """Count one message, or leave it unacknowledged if it is not its turn. One call at a time.

        Raises:
            StoreRefused: the table is not what this release expects.
        """
        generation = self._generation

        def wanted() -> bool:
            return generation == self._generation and not self._closing

        try:
            await self._take_all([message], wanted)
        except NotWanted:
            # Nothing of it was counted; whoever has the partition next is given the message again.
            return

    async def _take_all(self, messages: Iterable[LogMessage], wanted: Wanted) -> None:
        for message in messages:
            while wanted() and not await self._take_in_turn(message, wanted):
                pass

    async def _take_in_turn(self, message: LogMessage, wanted: Wanted) -> bool:
        """Whether the message is dealt with; if not, the state has moved and it is to be looked at again."""
        opened = self._open.get(message.partition) or await self._open_partition(message.partition, wanted)
        if message.offset == opened.shard.next_offset:
            opened.torn_since = None
            if self._is_full(opened):
                await self._room(wanted)
                return False
        # From here on the database may be waited for, and a write may end meanwhile.
        with opened.in_use():
            return await self._take_into(opened, message, wanted)

    async def _take_into(self, opened: OpenPartition, message: LogMessage, wanted: Wanted) -> bool:
        shard = opened.shard
        if message.offset > shard.next_offset:
            return await self._meet_hole(opened, message, wanted)
        if message.offset < shard.next_offset:
            self.stats.replays += 1
        else:
            try:
                await self._count(shard, message, wanted)
            except Moved as error:
                log.warning("%s; opening it anew", error)
                self.stats.reopened += 1
                del self._open[message.partition]
                # What it had taken is covered by what the table says now, or has to be counted anew.
                await self._take_all(opened.held, wanted)
                return False
        opened.hold(message, self.durable.get(message.partition, 0))
        return True

    async def _open_partition(self, partition: int, wanted: Wanted) -> OpenPartition:
        log_id = await self._view.log_id()
        progress = await self._thread.call(self._table.progress, partition, wanted=wanted)
        shard = open_shard(partition, log_id, progress)
        recent = await self._thread.call(self._table.recent_copies, partition, wanted=wanted)
        try:
            put_copies(shard, [], recent)
        except Moved:
            # Written between the two reads. They are loaded one by one when they are heard of.
            log.info("partition %d is still being written by another worker", partition)
        opened = self._open[partition] = OpenPartition(shard)
        self.durable[partition] = shard.next_offset
        log.info("partition %d: totals are stored up to offset %d", partition, shard.next_offset)
        return opened

    async def _count(self, shard: Shard, message: LogMessage, wanted: Wanted) -> None:
        try:
            block = self._decode(message.value)
        except CorruptBlock as error:
            self.stats.corrupt += 1
            # A warning and no trace: the block is at fault, not this process, and the recorder keeps it.
            log.warning("partition %d offset %d is not a block: %s; left out", shard.partition, message.offset, error)
            shard.skip_to(message.offset + 1)
            return
        await self._load_missing(shard, block, wanted)
        folded = fold(shard, block, message.offset)
        self.stats.blocks += 1
        self.stats.decisions += folded.counted
        self.stats.duplicates += folded.duplicates
        self.stats.missing_seqs += folded.gap

    async def _load_missing(self, shard: Shard, block: DecisionBlock, wanted: Wanted) -> None:
        minutes, copies = missing(shard, block)
        if minutes:
            asked = ahead_of(minutes[0])
            stored = await self._thread.call(
                self._table.stored_minutes, shard.partition, asked[0], asked[-1], wanted=wanted
            )
            put_blank(shard, asked, stored)
            minutes, _ = missing(shard, block)
        if minutes:
            usage, fleet, callers = await self._thread.call(
                self._table.minutes, shard.partition, minutes, wanted=wanted
            )
            put_minutes(shard, minutes, usage=usage, fleet=fleet, callers=callers)
        if copies:
            rows = await self._thread.call(self._table.copies, shard.partition, copies, wanted=wanted)
            put_copies(shard, copies, rows)

    async def _meet_hole(self, opened: OpenPartition, message: LogMessage, wanted: Wanted) -> bool:
        """A message came before the one that is due: leave it, unless the broker no longer has what is due."""
        shard = opened.shard
        if opened.torn_since is None:
            opened.torn_since = self._now_s()
            log.warning("partition %d: offset %d came, %d is due", shard.partition, message.offset, shard.next_offset)
        low = await self._view.low_watermark(shard.partition)
        if not wanted() or message.offset > low:
            return True
        log.error(
            "partition %d: the broker removed offsets %d to %d before they were counted; recorded as lost",
            *(shard.partition, shard.next_offset, message.offset - 1),
        )
        span = (shard.partition, shard.next_offset, message.offset, int(message.timestamp_s * _US_PER_S))
        await self._thread.call(self._table.write_loss, *span, wanted=wanted)
        self.stats.lost_offsets += message.offset - shard.next_offset
        shard.skip_to(message.offset)
        return False

    def _is_full(self, opened: OpenPartition) -> bool:
        """Whether something must be written, and then forgotten, before more is taken."""
        shard = opened.shard
        return (
            max(shard.changed_rows, shard.loaded_rows) >= self._full_rows
            or sum(one.held_bytes for one in self._open.values()) >= self._full_bytes
            or is_outgrown(shard, self._kept)
            or (self._flushing.locked() and self._thread.blocked_since is not None)
        )

    async def _room(self, wanted: Wanted) -> None:
        """Wait until something was written, or the message is not wanted any more."""
        self._stored.clear()
        self._full.set()
        await self._stored.wait()
        if not wanted():
            raise NotWanted

    # -- writing ---------------------------------------------------------------------------------------------------

    async def run(self, interval_s: float) -> None:
        """Write what changed every `interval_s`, earlier if a partition is full, until `stop_taking`.

        Raises:
            StoreRefused: the table is not what this release expects.
        """
        while not self._closing:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._full.wait(), interval_s)
            self._full.clear()
            await self.flush(wanted=lambda: True)

    async def flush(self, *, wanted: Wanted) -> None:
        """Write everything that changed so far, then acknowledge what it covers.

        Raises:
            NotWanted: the database is away and nobody wants to wait any more.
            StoreRefused: the table is not what this release expects.
        """
        async with self._flushing:
            changed = {p: one for p, one in self._open.items() if one.shard.unwritten}
            for group in group_cuts(cut(one.shard) for one in changed.values()):
                started_s = self._now_s()
                self.stats.rows += await self._thread.call(self._table.write, group, wanted=wanted)
                self.stats.flushes += 1
                self.stats.flush_s = self._now_s() - started_s
                for one in group:
                    self._settle(one, changed[one.partition])
            self._trim()
            self._stored.set()

    def _settle(self, stored: Cut, opened: OpenPartition) -> None:
        """Acknowledge what a stored cut covers."""
        if self._open.get(stored.partition) is not opened:
            # Taken away meanwhile. The rows are true all the same; what they cover is for the next owner to say.
            return
        self.durable[stored.partition] = stored.next_offset
        opened.release(stored.next_offset)

    def _trim(self) -> None:
        """Forget what need not be kept. What is in use just now stays until the next time."""
        for partition, opened in list(self._open.items()):
            if opened.trim(self._kept):
                self.stats.outgrown += 1
                del self._open[partition]

    def drop_all(self) -> None:
        """The partitions were taken away, or may have been: forget everything about them."""
        if self._open:
            log.info("partitions %s were taken away; dropping what is not written of them", sorted(self._open))
        self._generation += 1
        self._open.clear()
        self.durable.clear()
        self._stored.set()

    def stop_taking(self) -> None:
        """From now on leave every message unacknowledged."""
        self._closing = True
        self._full.set()
        self._stored.set()

    def close(self) -> None:
        """End the thread; what was not flushed is taken again after a restart."""
        self._thread.close()
