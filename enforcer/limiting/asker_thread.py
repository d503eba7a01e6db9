"""The thread of an asker: it takes what is pending, at least once a tick, and never ends by an error.

It knows nothing of what a round does.
"""

from __future__ import annotations

import logging
import queue
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable

from enforcer.core.account import Account

log = logging.getLogger("enforcer")


class AskerThread(ABC):
    """Runs the rounds of an asker in the background."""

    def __init__(self) -> None:
        self._pending: queue.SimpleQueue[Account | None] = queue.SimpleQueue()
        self._stopping = False
        self._thread: threading.Thread | None = None

    @abstractmethod
    def step(self, first: Account | None = None) -> None:
        """One round, beginning with `first`."""

    @abstractmethod
    def probe(self) -> None:
        """See whether the owner is there."""

    @abstractmethod
    def _patience_s(self) -> float:
        """How long to wait for something to ask, before the next round."""

    def start(self) -> None:
        """Start the thread; its first act is to see whether the owner is there."""
        self._thread = threading.Thread(target=self._run, name="enforcer-asker", daemon=True)
        self._thread.start()

    def end(self) -> None:
        """Have the thread end after its round, without waiting for that."""
        self._stopping = True
        self._pending.put(None)

    def _has_ended(self, timeout_s: float) -> bool:
        self.end()
        if self._thread is None:
            return True
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        self._guarded(self.probe)
        while not self._stopping:
            try:
                first = self._pending.get(timeout=self._patience_s())
            except queue.Empty:
                first = None
            self._guarded(self.step, first)

    def _guarded(self, act: Callable[..., None], *arguments: Account | None) -> None:
        try:
            act(*arguments)
        except Exception:  # without this thread every request would wait its whole timeout
            log.exception("the asker met an unexpected error and goes on", extra={"action": "asker_error"})
