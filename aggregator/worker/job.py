"""The live totals' shell: takes messages one by one, keeps the state of each partition, and writes what changed.

Knows nothing of Faust. A message is acknowledged only after the rows that cover it are stored; whatever is uncertain
(a partition taken away, a write by another worker, a hole in the delivery) drops state and starts again from the
table, and is never guessed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from contextlib import suppress

from aggregator.core.live.load import Moved, open_shard, put_blank, put_copies, put_minutes
from aggregator.core.live.rows import Cut, cut, group_cuts
from aggregator.core.live.shard import Shard, ShardBounds, is_outgrown
from aggregator.core.live.totals import ahead_of, fold, missing
from aggregator.core.record.acceptance import Accepted
from aggregator.worker.life import Life, Wanted
from aggregator.worker.partition import FULL_BYTES, FULL_ROWS, OpenPartition
from aggregator.worker.ports import NO_FEED, Feed, LiveStats, LogMessage, LogView
from aggregator.worker.table import LiveTable
from aggregator.worker.thread import NotWanted
from stream.contract.block import DecisionBlock
from stream.contract.layout import CorruptBlock

log = logging.getLogger("tallygate.worker")

_KEPT = ShardBounds()
_US_PER_S = 1_000_000
#: A message that did not come for so long, though it was read again and again, is not just shown late.
_CERTAIN_S = 5.0
#: The broker is asked what it has at most so often: each message that came too early would else ask.
_LOOK_EVERY_S = 0.25


class LiveJob(Life[OpenPartition]):
    """All partitions that this process has. Its methods run on one event loop, the table's in one thread."""

    def __init__(
        self,
        table: LiveTable,
        view: LogView,
        *,
        decode: Callable[[LogMessage], Accepted],
        now_s: Callable[[], float],
        full_rows: int = FULL_ROWS,
        full_bytes: int = FULL_BYTES,
        kept: ShardBounds = _KEPT,
        feed: Feed = NO_FEED,
    ) -> None:
        self._table = table
        self._view = view
        self._feed = feed
        self._decode = decode
        super().__init__(now_s=now_s)
        self._full_rows = full_rows
        self._full_bytes = full_bytes
        self._kept = kept
        self.stats = LiveStats()

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

    def torn(self) -> dict[int, int]:
        """Partition -> offset of each message that others came before."""
        return {p: one.shard.next_offset for p, one in self._open.items() if one.torn_since is not None}

    async def take(self, message: LogMessage) -> None:
        """Count one message, or leave it unacknowledged if it is not its turn. One call at a time.

        Raises:
            StoreRefused: the table is not what this release expects.
        """
        # If it is not wanted, nothing of it was counted; whoever has the partition next is given the message again.
        with suppress(NotWanted):
            await self._take_all([message], self._while_ours())

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
        self._feed.opened(partition, log_id)
        log.info("partition %d: totals are stored up to offset %d", partition, shard.next_offset)
        return opened

    async def _count(self, shard: Shard, message: LogMessage, wanted: Wanted) -> None:
        try:
            accepted = self._decode(message)
        except CorruptBlock as error:
            self.stats.corrupt += 1
            # A warning and no trace: the block is at fault, not this process, and the recorder keeps it.
            log.warning("partition %d offset %d is not a block: %s; left out", shard.partition, message.offset, error)
            shard.skip_to(message.offset + 1)
            return
        await self._load_missing(shard, accepted.block, wanted)
        folded = fold(shard, accepted.block, message.offset, shift_us=accepted.shift_us)
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
        """A message came before the one that is due: leave it, unless the broker does not have what is due."""
        shard = opened.shard
        if opened.torn_since is None:
            opened.torn_since = self._now_s()
            log.warning("partition %d: offset %d came, %d is due", shard.partition, message.offset, shard.next_offset)
        held = min(await self._first_held(opened), message.offset)
        if not wanted() or held <= shard.next_offset:
            return True
        log.error(
            "partition %d: the broker has no offsets %d to %d, which were not counted; recorded as lost",
            *(shard.partition, shard.next_offset, held - 1),
        )
        span = (shard.partition, shard.next_offset, held, int(message.timestamp_s * _US_PER_S))
        await self._thread.call(self._table.write_loss, *span, wanted=wanted)
        self.stats.lost_offsets += held - shard.next_offset
        shard.skip_to(held)
        opened.torn_since = self._now_s()
        return False

    async def _first_held(self, opened: OpenPartition) -> int:
        """The first offset from the due one on that the broker has; the due one while that is not certain."""
        shard, now_s = opened.shard, self._now_s()
        if now_s - opened.looked_s < _LOOK_EVERY_S:
            return shard.next_offset
        opened.looked_s = now_s
        low = await self._view.low_watermark(shard.partition)
        if low > shard.next_offset or opened.torn_since is None or now_s - opened.torn_since < _CERTAIN_S:
            return max(low, shard.next_offset)
        return await self._view.first_held(shard.partition, shard.next_offset)

    def _is_full(self, opened: OpenPartition) -> bool:
        """Whether something must be written, and then forgotten, before more is taken."""
        shard = opened.shard
        return (
            max(shard.changed_rows, shard.loaded_rows) >= self._full_rows
            or sum(one.held_bytes for one in self._open.values()) >= self._full_bytes
            or is_outgrown(shard, self._kept)
            or (self._flushing.locked() and self._thread.blocked_since is not None)
        )

    # -- writing ---------------------------------------------------------------------------------------------------

    async def flush(self, *, wanted: Wanted) -> None:
        """Write everything that changed so far, then acknowledge what it covers.

        Raises:
            NotWanted: the database is away and nobody wants to wait any more.
            StoreRefused: the table is not what this release expects.
        """
        async with self._flushing:
            changed = {p: one for p, one in self._open.items() if one.shard.unwritten}
            told_from = self._feed.told_from()
            cuts = (cut(one.shard, told_from=told_from, sent=self._feed.sent(p)) for p, one in changed.items())
            for group in group_cuts(cuts):
                started_s = self._now_s()
                self.stats.rows += await self._thread.call(self._table.write, group, wanted=wanted)
                self.stats.flushes += 1
                self.stats.flush_s = self._now_s() - started_s
                for one in group:
                    self._settle(one, changed[one.partition])
                self._feed.offer(group)
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
        super().drop_all()
        self._feed.dropped()
