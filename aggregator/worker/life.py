"""What both stages of the live figures have alike: partitions that come and go, writes in turn, one thread below.

Knows nothing of what is counted. Whatever is uncertain drops state, and is never guessed.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress
from typing import Generic, TypeAlias, TypeVar

from aggregator.worker.thread import NotWanted, TableThread

Wanted: TypeAlias = Callable[[], bool]
_Open = TypeVar("_Open")


class Life(ABC, Generic[_Open]):
    """The partitions that this process has, from taking to closing. Its methods run on one event loop."""

    def __init__(self, *, now_s: Callable[[], float]) -> None:
        self._now_s = now_s
        self._open: dict[int, _Open] = {}
        self._generation = 0
        self._closing = False
        self._flushing = asyncio.Lock()
        self._full = asyncio.Event()
        self._stored = asyncio.Event()
        self._thread = TableThread(now_s)
        #: Partition -> offset before which everything is stored: what may be committed.
        self.durable: dict[int, int] = {}

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

    @abstractmethod
    async def flush(self, *, wanted: Wanted) -> None:
        """Write everything that changed so far, then acknowledge what it covers.

        Raises:
            NotWanted: the database is away and nobody wants to wait any more.
            StoreRefused: the table is not what this release expects.
        """

    def drop_all(self) -> None:
        """The partitions were taken away, or may have been: forget everything about them."""
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
        """End the thread; what was not written is taken again, or found in the table, after a restart."""
        self._thread.close()

    def _while_ours(self) -> Wanted:
        """Whether what is begun now is still wanted: nothing was taken away since, and nobody stops."""
        generation = self._generation

        def wanted() -> bool:
            return generation == self._generation and not self._closing

        return wanted

    async def _room(self, wanted: Wanted) -> None:
        """Wait until something was written, or the message is not wanted any more."""
        self._stored.clear()
        self._full.set()
        await self._stored.wait()
        if not wanted():
            raise NotWanted
