"""Between pages and the record: a time that no page exceeds, a bound on readers at once, and a memory of being away.

Reads on threads of its own. A thread whose page was given up begins no further query and ends by its socket's own
timeout, moments later; until then it counts as a reader, so that there are never more than `READERS`. Whether the
database is back is found out by a question that costs it nothing, never by a page. The log has the beginning and the
end of an outage, once each, not a line for each page.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Concatenate, Literal, ParamSpec, TypeVar

from dashboard.breaker import Breaker
from dashboard.store import Record, RecordUnavailable

_Asked = ParamSpec("_Asked")
_Read = TypeVar("_Read")

_log = logging.getLogger(__name__)

#: Pages that read at the same time; others wait for their turn, within the time that they have.
READERS = 16
#: How long the one request waits that finds out whether the database is back; the page's own time goes on meanwhile.
PROBE_S = 1.0


class Gate:
    """The only way from a request to the record. Belongs to one event loop, whose clock it reads."""

    def __init__(self, record: Record, *, page_s: float, now_us: Callable[[], int]) -> None:
        self._record = record
        self._page_s = page_s
        self._now_us = now_us
        self._breaker = Breaker()
        self._turns = asyncio.Semaphore(READERS)
        self._readers = ThreadPoolExecutor(READERS, "dashboard-reader")
        self._prober = ThreadPoolExecutor(1, "dashboard-probe")
        self._failing_since_us: int | None = None
        self._told: Literal["away", "faulty"] | None = None

    async def read(
        self, work: Callable[Concatenate[Record, _Asked], _Read], *args: _Asked.args, **values: _Asked.kwargs
    ) -> _Read:
        """Run ``work(record, …)`` on a thread, within the time of a page.

        Raises:
            RecordUnavailable: it could not be read, not in time, or the database is known to be away; it says since
                when nothing could be read.
        """
        answers = self._record.answers
        turn = self._breaker.turn(_now_s(), answers)
        if turn == "wait":
            raise RecordUnavailable("the database is away, asked a moment ago", since_us=self._failing_since_us)
        try:
            async with asyncio.timeout(self._page_s):
                if turn == "probe":
                    await self._probe()
                found = await self._on_thread(partial(work, self._record, *args, **values))
        except TimeoutError:
            raise self._failed(f"the record did not answer within {self._page_s:g} s", answers) from None
        except RecordUnavailable as fault:
            raise self._failed(str(fault), answers) from fault
        self._succeeded()
        return found

    def close(self) -> None:
        """Begin no further reading; those under way end by themselves."""
        for threads in (self._readers, self._prober):
            threads.shutdown(wait=False, cancel_futures=True)

    async def _probe(self) -> None:
        try:
            async with asyncio.timeout(PROBE_S):
                await asyncio.wrap_future(self._prober.submit(self._record.probe, PROBE_S))
        except TimeoutError:
            raise RecordUnavailable(f"the database did not answer within {PROBE_S:g} s") from None
        finally:
            self._breaker.left()

    async def _on_thread(self, call: Callable[[], _Read]) -> _Read:
        await self._turns.acquire()
        if self._breaker.away(self._record.answers):
            self._turns.release()
            raise RecordUnavailable("the database went away while the page waited for its turn")
        given_up = threading.Event()
        reading = self._readers.submit(self._record.unless, given_up.is_set, call)
        found = asyncio.wrap_future(reading)
        # Not when the page ends: when the thread does; and after the page has its answer, so that what it found out is
        # known to the next.
        reading.add_done_callback(partial(_hand_back, asyncio.get_running_loop(), self._turns))
        try:
            return await found
        finally:
            given_up.set()

    def _failed(self, text: str, answers: int) -> RecordUnavailable:
        # Busy is not away: pages that wait for their turn must not close the door to those that get it.
        silent = self._record.answers == answers
        if silent:
            self._breaker.silent(_now_s(), answers)
        found: Literal["away", "faulty"] = "away" if silent else "faulty"
        if self._told != found:
            self._told = found
            _log.error("the record cannot be read: %s", text)
        if self._failing_since_us is None:
            self._failing_since_us = self._now_us()
        return RecordUnavailable(text, since_us=self._failing_since_us)

    def _succeeded(self) -> None:
        if self._failing_since_us is not None:
            seconds = (self._now_us() - self._failing_since_us) / 1_000_000
            _log.info("the record can be read again, after %.1f s", seconds)
        self._failing_since_us = self._told = None


def _now_s() -> float:
    return asyncio.get_running_loop().time()


def _hand_back(loop: asyncio.AbstractEventLoop, turns: asyncio.Semaphore, _: Future[object]) -> None:
    # A thread may outlive the loop at the end of the process; then nobody waits for a turn.
    with suppress(RuntimeError):
        loop.call_soon_threadsafe(turns.release)
