"""Turns and threads for one kind of statement: at most so many at once, the rest wait, for a bounded time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import TypeVar

from tallygate.engines.front.errors import Code, refusal

Result = TypeVar("Result")


class Lane:
    """One lane; belongs to one event loop."""

    def __init__(self, name: str, width: int, queue_s: float) -> None:
        self._name = name
        self._width = width
        self._queue_s = queue_s
        self._turns = asyncio.Semaphore(width)
        self._pool = ThreadPoolExecutor(width, name)

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Hold one of the lane's turns.

        Raises:
            FrontError: 202, no turn came up in time.
        """
        try:
            async with asyncio.timeout(self._queue_s):
                await self._turns.acquire()
        except TimeoutError as error:
            raise refusal(
                Code.TOO_MANY_SIMULTANEOUS_QUERIES,
                f"Too many simultaneous queries: {self._width} {self._name}s were busy for {self._queue_s:g} s.",
            ) from error
        try:
            yield
        finally:
            self._turns.release()

    async def call(self, work: Callable[[], Result]) -> Result:
        """Run it on one of the lane's threads; one per turn, so it never waits for a thread."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, work)

    async def close(self) -> None:
        """Wait for the running ones, and end the threads."""
        await asyncio.to_thread(self._pool.shutdown)
