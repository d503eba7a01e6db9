"""The one thread in which the database is used, so that the event loop never waits for it.

An outage is waited out here, with growing pauses and a line in the log; a refused statement is raised at once.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar, TypeVarTuple

from aggregator.store import StoreUnavailable

log = logging.getLogger("tallygate.worker")

_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.25, 5.0
_SAY_AGAIN_S = 10.0

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class NotWanted(Exception):
    """What was awaited is of no use any more: the partition was taken away, or the process is stopping."""


class TableThread:
    """Runs blocking calls one after the other, each as often as it takes."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        self._now_s = now_s
        self._pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="live-table")
        self._said_at = 0.0
        #: Since when the database takes nothing, on the caller's clock; None while it does.
        self.blocked_since: float | None = None

    async def call(self, function: Callable[[*Ts], T], *arguments: *Ts, wanted: Callable[[], bool]) -> T:
        """The function's result; repeated while the database is away and the result is `wanted`.

        Raises:
            NotWanted: nobody wants the result any more; whether the function did its work is not known.
            StoreRefused: as the function raises it.
        """
        loop = asyncio.get_running_loop()
        pause_s = _FIRST_PAUSE_S
        while True:
            try:
                result = await loop.run_in_executor(self._pool, function, *arguments)
            except StoreUnavailable as error:
                self._note_outage(error)
            else:
                self._note_answer()
                if wanted():
                    return result
            if not wanted():
                raise NotWanted
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)

    def close(self) -> None:
        """End the thread after the call that it is in."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _note_outage(self, error: StoreUnavailable) -> None:
        now_s = self._now_s()
        if self.blocked_since is None:
            self.blocked_since = now_s
        elif now_s - self._said_at < _SAY_AGAIN_S:
            return
        self._said_at = now_s
        away_s = now_s - self.blocked_since
        log.error("nothing can be written since %.0f s, nothing is acknowledged; trying again: %s", away_s, error)

    def _note_answer(self) -> None:
        if self.blocked_since is not None:
            log.warning("the database answers again after %.1f s", self._now_s() - self.blocked_since)
            self.blocked_since = None
