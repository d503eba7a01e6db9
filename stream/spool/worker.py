"""Does what the disk may hold up, in a thread of its own and one by one, so that a disk that hangs holds up no more.

The shipping thread gives a job and asks later what came of it. It never waits for longer than it says.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import Protocol, TypeVar

_T = TypeVar("_T")


class Worker(Protocol):
    """One job at a time."""

    @property
    def is_busy(self) -> bool:
        """Whether a job is under way, or what came of it has not been taken."""
        ...

    def submit(self, job: Callable[[], _T], then: Callable[[_T], None]) -> None:
        """Do the job; `settle` will call `then` with what came of it, in the thread that calls it."""
        ...

    def settle(self, wait_s: float = 0.0) -> None:
        """Take what came of the job, if it is done, or is in this time. Raises what the job raised."""
        ...

    def stop(self) -> None:
        """No further job comes."""
        ...


class ThreadWorker:
    """In a daemon thread, which begins with the first job."""

    def __init__(self) -> None:
        self._jobs: queue.SimpleQueue[Callable[[], object] | None] = queue.SimpleQueue()
        self._results: queue.SimpleQueue[tuple[object, Exception | None]] = queue.SimpleQueue()
        self._then: Callable[[object], None] | None = None
        self._thread: threading.Thread | None = None

    @property
    def is_busy(self) -> bool:
        """See `Worker`."""
        return self._then is not None

    def submit(self, job: Callable[[], _T], then: Callable[[_T], None]) -> None:
        """See `Worker`."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="tallygate-spool", daemon=True)
            self._thread.start()
        self._then = then  # type: ignore[assignment]  # it is called with what this very job returned
        self._jobs.put(job)

    def settle(self, wait_s: float = 0.0) -> None:
        """See `Worker`."""
        if self._then is None:
            return
        try:
            result, fault = self._results.get(timeout=wait_s) if wait_s > 0 else self._results.get_nowait()
        except queue.Empty:
            return
        then, self._then = self._then, None
        if fault is not None:
            raise fault
        then(result)

    def stop(self) -> None:
        """See `Worker`."""
        self._jobs.put(None)

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            try:
                self._results.put((job(), None))
            except Exception as fault:  # noqa: BLE001  # whoever takes the result is told, and goes on
                self._results.put((None, fault))
