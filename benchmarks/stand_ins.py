"""An owner and a sink that cost next to nothing, so that what is measured is the limiter. They count and never wait."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from enforcer.messages import Answer, Ask
from enforcer.sink import GrantSettled, NullSink
from enforcer.types import Grant, Verdict

_HOUR_US = 3_600_000_000


class GenerousOwner:
    """Grants `size` tokens to whoever asks; to the caller "empty" nothing, for a second at a time."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._grants = 0

    def ask(self, asks: Sequence[Ask]) -> list[Answer]:
        """See `Owner.ask`."""
        return [self._answer(ask) for ask in asks]

    def probe(self) -> None:
        """Always there."""

    def close(self) -> None:
        """Nothing to release."""

    def _answer(self, ask: Ask) -> Answer:
        now_us = time.time_ns() // 1_000
        self._grants += 1
        if ask.caller == "empty":
            return Answer(None, 1, 0.0, 1_000, now_us, ())
        grant = Grant(self._grants, self._size, 1, now_us, now_us + _HOUR_US)
        return Answer(grant, 1, 1e6, 0, now_us, ())


class CountingSink(NullSink):
    """Buffers verdicts as the stream does, a list emptied when it is full, and adds up what settlements say."""

    def __init__(self) -> None:
        self.taken = 0
        self.admitted_tokens = 0
        self.settled_tokens = 0
        self._buffer: list[Verdict] = []

    @property
    def capture(self) -> Callable[[Verdict], None]:
        """The buffer's own append."""
        return self._buffer.append

    def grant_settled(self, fact: GrantSettled) -> None:
        """Add a final total of the limit that every request is charged to."""
        if fact.settlement.final and fact.limit == "rate":
            self.settled_tokens += fact.settlement.spent

    def count(self) -> int:
        """Count what is in the buffer."""
        count = len(self._buffer)
        self.taken += count
        self.admitted_tokens += sum(verdict.cost for verdict in self._buffer if verdict.allowed)
        return count

    def clear(self) -> None:
        """Forget what is in the buffer."""
        self._buffer.clear()
