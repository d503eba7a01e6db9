"""Between pages and the record: a time that no page exceeds, a bound on readers at once, and a memory of being away.

Reads on threads. A thread whose page was given up ends by its socket's own timeout, moments later.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Concatenate, ParamSpec, TypeVar

import anyio
import anyio.to_thread

from dashboard.breaker import Breaker
from dashboard.store import Record, RecordUnavailable

_Asked = ParamSpec("_Asked")
_Read = TypeVar("_Read")

#: Pages that read at the same time; others wait for their turn, within the time that they have.
READERS = 16
#: How long the one request waits that finds out whether the database is back.
PROBE_S = 1.0


class Gate:
    """The only way from a request to the record. Belongs to one event loop."""

    def __init__(self, record: Record, *, page_s: float, now_us: Callable[[], int]) -> None:
        self._record = record
        self._page_s = page_s
        self._now_us = now_us
        self._breaker = Breaker()
        self._readers = anyio.CapacityLimiter(READERS)
        self._failing_since_us: int | None = None

    async def read(
        self, work: Callable[Concatenate[Record, _Asked], _Read], *args: _Asked.args, **values: _Asked.kwargs
    ) -> _Read:
        """Run ``work(record, …)`` on a thread, within the time of a page.

        Raises:
            RecordUnavailable: it could not be read, not in time, or the database is known to be away; it says since
                when nothing could be read.
        """
        turn = self._breaker.turn(time.monotonic())
        if turn == "wait":
            raise RecordUnavailable("the database is away, asked a moment ago", since_us=self._failing_since_us)
        seconds = PROBE_S if turn == "probe" else self._page_s
        answers = self._record.answers
        call = partial(work, self._record, *args, **values)
        try:
            with anyio.fail_after(seconds):
                found = await anyio.to_thread.run_sync(call, abandon_on_cancel=True, limiter=self._readers)
        except TimeoutError:
            # Busy is not away: pages that wait for their turn must not close the door to those that get it.
            if self._record.answers == answers:
                self._breaker.silent(time.monotonic())
            raise self._failed(f"the record did not answer within {seconds:g} s") from None
        except RecordUnavailable as fault:
            raise self._failed(str(fault)) from fault
        finally:
            if self._record.answers != answers:
                self._breaker.answered()
            elif turn == "probe":
                self._breaker.left()
        self._failing_since_us = None
        return found

    def _failed(self, text: str) -> RecordUnavailable:
        if self._failing_since_us is None:
            self._failing_since_us = self._now_us()
        return RecordUnavailable(text, since_us=self._failing_since_us)
