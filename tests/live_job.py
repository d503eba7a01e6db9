"""A log in memory and a worker on it, for tests of `LiveJob` without Kafka, Faust and a database."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from aggregator.core.live.shard import ShardBounds
from aggregator.core.record.acceptance import Accepted
from aggregator.worker.job import LiveJob
from aggregator.worker.ports import NO_FEED, Feed
from aggregator.worker.table import LiveTable
from stream.contract.block import DecisionBlock
from stream.contract.layout import CorruptBlock

_KEPT = ShardBounds()


@dataclass
class MemoryMessage:
    """A message of a `MemoryLog`."""

    partition: int
    offset: int
    value: bytes
    timestamp_s: float = 1_700_000_000.0
    appended_us: int | None = None
    acked: bool = False

    def ack(self) -> None:
        self.acked = True


@dataclass
class MemoryLog:
    """Partitions of blocks; None stands for bytes that are no block. Bytes are indices into `blocks`."""

    partitions: dict[int, list[DecisionBlock | None]] = field(default_factory=dict)
    identity: str = "log"
    low: dict[int, int] = field(default_factory=dict)
    #: Partition -> the first offset that a look at the log finds; absent: the one that was asked for.
    held: dict[int, int] = field(default_factory=dict)

    async def log_id(self) -> str:
        return self.identity

    async def low_watermark(self, partition: int) -> int:
        return self.low.get(partition, 0)

    async def first_held(self, partition: int, offset: int) -> int:
        return self.held.get(partition, offset)

    def append(self, partition: int, *blocks: DecisionBlock | None) -> None:
        self.partitions.setdefault(partition, []).extend(blocks)

    def message(self, partition: int, offset: int) -> MemoryMessage:
        """One delivery of the message at this place."""
        return MemoryMessage(partition, offset, f"{partition} {offset}".encode())

    def messages(self, partition: int, first: int = 0, end: int | None = None) -> list[MemoryMessage]:
        """One delivery of each message in a span."""
        last = len(self.partitions[partition]) if end is None else end
        return [self.message(partition, offset) for offset in range(first, last)]

    def decode(self, value: bytes) -> DecisionBlock:
        """What `decode_block` is on a real log."""
        partition, offset = map(int, value.split())
        found = self.partitions[partition][offset]
        if found is None:
            raise CorruptBlock("magic is b'junk'; allowed: b'TGDB'")
        return found


class Clock:
    """A clock that stands still until it is set."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def always() -> bool:
    """Wait for the database as long as it takes."""
    return True


def job_on(
    log: MemoryLog,
    table: LiveTable,
    *,
    now_s: Callable[[], float],
    full_rows: int = 10_000,
    full_bytes: int = 10**6,
    kept: ShardBounds = _KEPT,
    feed: Feed = NO_FEED,
) -> LiveJob:
    """A worker's job on this log and this table."""
    return LiveJob(
        table,
        log,
        decode=lambda message: Accepted(log.decode(message.value), 0),
        now_s=now_s,
        full_rows=full_rows,
        full_bytes=full_bytes,
        kept=kept,
        feed=feed,
    )


async def take_all(job: LiveJob, messages: Sequence[MemoryMessage]) -> None:
    """Deliver messages in order."""
    for message in messages:
        await job.take(message)
