"""What the live totals' shell needs of the log, and what it counts about itself.

Interfaces and counters only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from aggregator.core.live.rows import Cut


class LogMessage(Protocol):
    """One message of the decisions topic."""

    @property
    def partition(self) -> int:
        """Its partition."""
        ...

    @property
    def offset(self) -> int:
        """Its position in the partition."""
        ...

    @property
    def value(self) -> bytes:
        """The block, encoded."""
        ...

    @property
    def timestamp_s(self) -> float:
        """When it was stamped for Kafka, unix seconds; used for nothing but the time of a loss record."""
        ...

    @property
    def appended_us(self) -> int | None:
        """When the broker appended it by its own clock, unix microseconds; None if it does not say."""
        ...

    def ack(self) -> None:
        """Say that what it holds is stored: it need not be delivered again."""
        ...


class LogView(Protocol):
    """What else the job asks of the log."""

    async def log_id(self) -> str:
        """The identity of the topic; another one after it was deleted and made anew."""
        ...

    async def low_watermark(self, partition: int) -> int:
        """The first offset that the broker still has."""
        ...

    async def first_held(self, partition: int, offset: int) -> int:
        """The first offset from this one on that the broker has; this one if it has none yet."""
        ...


class FaustJob(Protocol):
    """A job as the process and the Faust app see it."""

    @property
    def durable(self) -> Mapping[int, int]:
        """Partition -> offset before which everything is stored; the live mapping."""
        ...

    async def take(self, message: LogMessage) -> None:
        """Take one message."""
        ...

    async def run(self, interval_s: float) -> None:
        """Write what changed every so often, until `stop_taking`."""
        ...

    async def flush(self, *, wanted: Callable[[], bool]) -> None:
        """Write what changed so far, then acknowledge what it covers."""
        ...

    def torn_since(self) -> float | None:
        """Since when a message that is missing in the delivery has been awaited; None if none is."""
        ...

    def torn(self) -> Mapping[int, int]:
        """Partition -> offset of each message that others came before."""
        ...

    def drop_all(self) -> None:
        """The partitions were taken away."""
        ...

    def stop_taking(self) -> None:
        """From now on leave every message unacknowledged."""
        ...

    def close(self) -> None:
        """End its threads."""
        ...


class Feed(Protocol):
    """The way to the second stage. What is offered is told, or told later; nothing here waits."""

    def told_from(self) -> int | None:
        """The first minute that the second stage cares for; None: none."""
        ...

    def sent(self, partition: int) -> int:
        """The version up to which it has been told of a partition; 0 if that is not known."""
        ...

    def opened(self, partition: int, log_id: str) -> None:
        """A partition begins at what its table says; what was written and not told is to be found there."""
        ...

    def offer(self, cuts: Sequence[Cut]) -> None:
        """These cuts are stored."""
        ...

    def dropped(self) -> None:
        """All partitions were taken away."""
        ...


class _NoFeed:
    """There is no second stage."""

    def told_from(self) -> int | None:
        return None

    def sent(self, _partition: int) -> int:
        return 0

    def opened(self, _partition: int, _log_id: str) -> None:
        pass

    def offer(self, _cuts: Sequence[Cut]) -> None:
        pass

    def dropped(self) -> None:
        pass


NO_FEED: Feed = _NoFeed()


@dataclass(slots=True)
class LiveStats:
    """Counters since the start of the process.

    Attributes:
        blocks: blocks folded.
        decisions: decisions counted.
        duplicates: decisions left out because their seq had been counted before.
        missing_seqs: seqs that were jumped over in some copy's epoch.
        corrupt: messages that are not a block.
        replays: messages delivered again.
        lost_offsets: offsets that the broker removed before they were counted.
        reopened: partitions opened anew because another worker had written further.
        outgrown: partitions opened anew because most of what they had named is of no use any more.
        flushes, rows: INSERTs and their rows.
        flush_s: seconds that the last flush took.
    """

    blocks: int = 0
    decisions: int = 0
    duplicates: int = 0
    missing_seqs: int = 0
    corrupt: int = 0
    replays: int = 0
    lost_offsets: int = 0
    reopened: int = 0
    outgrown: int = 0
    flushes: int = 0
    rows: int = 0
    flush_s: float = 0.0
