"""Tells the second stage what was stored: after each INSERT, the totals of the callers that changed.

Nothing waits for it. What could not be told at once (the broker is away, the last telling still runs, the process was
killed between an INSERT and its telling) is read back from the `live` table and told later: the progress row says up to
which version the second stage has heard, and everything newer is told again. Telling twice changes nothing.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Protocol

from aggregator.core.live.rows import Cut
from aggregator.core.live.usage_blocks import CallerTargets, CallerUsageRow, blocks_of_cut, blocks_of_rows, messages_of
from aggregator.store import StoreUnavailable
from stream.contract.usage import UsageBlock

log = logging.getLogger("tallygate.worker")

#: How far back the second stage looks.
KEPT_MINUTES = 15
#: Cuts of a partition that may wait for their turn; what is more is found in the table.
_MOST_WAITING = 5


class UsageTable(Protocol):
    """What is asked of the database; all block."""

    def sent(self, partition: int, log_id: str) -> int:
        """The version up to which the second stage was told; 0 if never."""
        ...

    def untold_minutes(self, partition: int, sent: int, first_minute: int) -> Sequence[int]:
        """The minutes from `first_minute` on of which there is anything newer than `sent`."""
        ...

    def untold(self, partition: int, sent: int, minute: int) -> Sequence[CallerUsageRow]:
        """Totals by caller of a minute that are newer than `sent`."""
        ...


class UsageSender(Protocol):
    """The usage topic."""

    def send(self, messages: Iterator[tuple[int, bytes]]) -> bool:
        """Send (partition, value) and wait; whether the broker has all of them."""
        ...


@dataclass(slots=True)
class _Mark:
    """How far one partition was told."""

    log_id: str
    #: None: the table knows.
    sent: int | None = None
    #: Something stored was not told: the table has it.
    behind: bool = True
    #: Cuts that wait for their turn.
    waiting: int = 0


class UsageFeed:
    """`Feed` over the usage topic. Its methods run on one event loop, what blocks in one thread of its own."""

    def __init__(
        self,
        table: UsageTable,
        sender: UsageSender,
        *,
        table_id: str,
        partitions: int,
        now_minute: Callable[[], int],
    ) -> None:
        self._table = table
        self._sender = sender
        self._table_id = table_id
        self._now_minute = now_minute
        self._targets = CallerTargets(partitions)
        self._pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="usage")
        self._marks: dict[int, _Mark] = {}
        self._queue: deque[tuple[Cut, _Mark]] = deque()
        self._telling: asyncio.Task[None] | None = None
        self._silent = False

    def told_from(self) -> int | None:
        """See `Feed.told_from`."""
        return self._now_minute() - KEPT_MINUTES

    def sent(self, partition: int) -> int:
        """See `Feed.sent`."""
        mark = self._marks.get(partition)
        return mark.sent or 0 if mark is not None else 0

    def opened(self, partition: int, log_id: str) -> None:
        """See `Feed.opened`."""
        self._marks[partition] = _Mark(log_id)

    def dropped(self) -> None:
        """See `Feed.dropped`."""
        self._marks.clear()

    def offer(self, cuts: Sequence[Cut]) -> None:
        """See `Feed.offer`.

        Raises:
            StoreRefused: an earlier telling found that the table is not what this release expects.
        """
        for one in cuts:
            mark = self._marks.get(one.partition)
            if mark is None:
                continue
            if mark.waiting < _MOST_WAITING:
                mark.waiting += 1
                self._queue.append((one, mark))
            else:
                mark.behind = True
        if self._telling is None or self._telling.done():
            if self._telling is not None:
                self._telling.result()
            self._telling = asyncio.create_task(self._tell())

    async def finish(self, timeout_s: float) -> None:
        """Wait for the telling that runs; what it does not reach is told after the next start."""
        if self._telling is not None:
            await asyncio.wait([self._telling], timeout=timeout_s)

    def close(self) -> None:
        """End the thread after what it does just now."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    async def _tell(self) -> None:
        loop = asyncio.get_running_loop()
        self._targets.trim([one.callers for one, _ in self._queue])
        while self._queue:
            one, mark = self._queue.popleft()
            mark.waiting -= 1
            from_table = mark.behind
            # Whatever is left out from here on marks it again.
            mark.behind = False
            try:
                told = await loop.run_in_executor(self._pool, self._tell_one, one, mark, from_table)
            except StoreUnavailable:
                told = False
            if told:
                mark.sent = one.version
            else:
                mark.behind = True
            self._note(told=told)

    def _tell_one(self, one: Cut, mark: _Mark, from_table: bool) -> bool:
        if mark.sent is None:
            mark.sent = self._table.sent(one.partition, mark.log_id)
        return self._sender.send(self._messages(one, mark.sent, from_table))

    def _messages(self, one: Cut, sent: int, from_table: bool) -> Iterator[tuple[int, bytes]]:
        blocks = self._untold(one.partition, sent) if from_table else blocks_of_cut(one, self._table_id, self._targets)
        for target, block in blocks:
            for data in messages_of(block):
                yield target, data

    def _untold(self, partition: int, sent: int) -> Iterator[tuple[int, UsageBlock]]:
        """What the table holds beyond `sent`, minute by minute, for it may be much."""
        for minute in self._table.untold_minutes(partition, sent, self._now_minute() - KEPT_MINUTES):
            rows = self._table.untold(partition, sent, minute)
            yield from blocks_of_rows(rows, self._table_id, self._targets.partitions)

    def _note(self, *, told: bool) -> None:
        if told == self._silent:
            self._silent = not told
            if told:
                log.warning("the second stage is told again; what it missed is told from the table")
            else:
                log.error("the second stage cannot be told; the totals go on, and it is told later")
