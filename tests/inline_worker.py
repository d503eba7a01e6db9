"""A spool's worker that does a job at once, in the caller's thread: what a test sees is what the job did."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

_T = TypeVar("_T")


class InlineWorker:
    """See `stream.spool.worker.Worker`."""

    def __init__(self) -> None:
        self._done: Callable[[], None] | None = None

    @property
    def is_busy(self) -> bool:
        """See `Worker`."""
        return self._done is not None

    def submit(self, job: Callable[[], _T], then: Callable[[_T], None]) -> None:
        """See `Worker`."""
        result = job()
        self._done = lambda: then(result)

    def settle(self, wait_s: float = 0.0) -> None:  # the port's signature; it is done already
        """See `Worker`."""
        done, self._done = self._done, None
        if done is not None:
            done()

    def stop(self) -> None:
        """See `Worker`."""
