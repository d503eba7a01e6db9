"""Threads that read beside the one of a page: what does not wait for another answer is asked at the same time.

Bounded over all pages, and never waited for: where enough are at work, the page's own thread does it all, as before.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

_Read = TypeVar("_Read")


class Beside:
    """At most so many threads at once; each ends with what it reads."""

    def __init__(self, most: int) -> None:
        self._free = threading.Semaphore(most)

    def begin(self, call: Callable[[], _Read]) -> Callable[[], _Read]:
        """Begin `call` on a thread of its own; what is returned waits for it, and raises what it raised.

        Where no thread is free, nothing begins: it runs when it is waited for.
        """
        if not self._free.acquire(blocking=False):
            return call
        found = Future[_Read]()

        def run() -> None:
            try:
                found.set_result(call())
            except BaseException as error:  # noqa: BLE001  (whatever it is, it belongs to the one who waits)
                found.set_exception(error)
            finally:
                self._free.release()

        threading.Thread(target=run, name="dashboard-beside", daemon=True).start()
        return found.result
