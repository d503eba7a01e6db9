"""What the live totals' shell needs of the log, and what it counts about itself.

Interfaces and counters only.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


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
