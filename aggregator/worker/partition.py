"""One partition as this process has it: its state, the messages that it holds, and whether it may forget.

Never talks to Kafka or ClickHouse: `job` does, and says here what came of it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import inf

from aggregator.core.live.rows import MAX_ROWS
from aggregator.core.live.shard import Shard, ShardBounds, evict, is_outgrown
from aggregator.worker.ports import LogMessage
from stream.contract.layout import MAX_DECISIONS

#: Changed rows (or loaded ones) at which a shard is written before it takes more: one more block (a decision changes
#: at most a usage, a caller and a fleet row) still fits into one INSERT then.
FULL_ROWS = MAX_ROWS - 3 * MAX_DECISIONS - 2
FULL_BYTES = 64 * 1024 * 1024
#: What a message occupies besides its value: an event of Faust with its headers (measured: 2,140 bytes).
_ENVELOPE_BYTES = 2_200


@dataclass(slots=True)
class OpenPartition:
    """A shard, and the messages that it has taken and that are not acknowledged yet."""

    shard: Shard
    held: deque[LogMessage] = field(default_factory=deque)
    held_bytes: int = 0
    #: Since when a message before the ones delivered has been awaited, on the job's clock.
    torn_since: float | None = None
    #: When the broker was last asked what it has of what is missing.
    looked_s: float = -inf
    _in_use: bool = False

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """Somebody works on the state and waits for the database in between: nothing of it may be forgotten."""
        self._in_use = True
        try:
            yield
        finally:
            self._in_use = False

    def hold(self, message: LogMessage, durable: int) -> None:
        """Keep a message until it is stored; acknowledge it at once if what lies before `durable` covers it."""
        if message.offset < durable:
            message.ack()
        else:
            self.held.append(message)
            self.held_bytes += len(message.value) + _ENVELOPE_BYTES

    def release(self, durable: int) -> None:
        """Everything before this offset is stored: acknowledge it."""
        while self.held and self.held[0].offset < durable:
            message = self.held.popleft()
            self.held_bytes -= len(message.value) + _ENVELOPE_BYTES
            message.ack()

    def trim(self, kept: ShardBounds) -> bool:
        """Forget what need not be kept, unless it is in use; whether the whole is to be opened anew.

        Only to be called while nothing is being written.
        """
        if self._in_use:
            return False
        evict(self.shard, kept)
        return not self.shard.unwritten and is_outgrown(self.shard, kept)
