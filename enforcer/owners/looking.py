"""Where things are, asked of whichever of several servers answers: not too often, and by one thread at a time."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from threading import Lock
from typing import Any

from enforcer.errors import OwnerUnavailable
from enforcer.owners.asking import ask_server
from enforcer.owners.servers import checked_address

_PAUSE_S = 0.5


class Lookup:
    """One question, and who of the servers was silent when it was last put to them: those are asked last.

    Attributes:
        failure: why the last of them could not say, when nobody could; empty when it was answered.
    """

    def __init__(
        self,
        command: tuple[bytes | str, ...],
        *,
        timeout_s: float,
        ask: Callable[..., Any] = ask_server,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Take the question; nothing is sent yet.

        Args:
            command: what is put to each server.
            timeout_s: for each of them.
            ask: puts one command to one address.
            monotonic: seconds; the question is put twice a second at most.
        """
        self._command = command
        self._timeout_s, self._ask, self._monotonic = timeout_s, ask, monotonic
        self._lock = Lock()
        self._next_s = float("-inf")
        self._silent: set[str] = set()
        self.failure = ""

    def learn(self, urls: Iterable[str], take: Callable[[str, Any], bool | None]) -> bool:
        """Ask one after the other, until one knows.

        Args:
            urls: addresses, with credentials.
            take: takes in what the server at this address said; returns whether that is a change, None if it does not
                know.

        Returns:
            Whether something changed; False also if nobody knows, if it was asked just now, or is asked by another
            thread at this moment.
        """
        # Whoever finds it locked must not wait: the server that is asked may be frozen.
        if not self._lock.acquire(blocking=False):
            return False
        try:
            if self._monotonic() < self._next_s:
                return False
            try:
                return self._learn(sorted(dict.fromkeys(urls), key=self._silent.__contains__), take)
            finally:
                self._next_s = self._monotonic() + _PAUSE_S
        finally:
            self._lock.release()

    def _learn(self, urls: list[str], take: Callable[[str, Any], bool | None]) -> bool:
        for url in urls:
            try:
                changed = take(url, self._ask(url, self._command, timeout_s=self._timeout_s))
                failure = f"the one at {checked_address(url)} does not know"
            except (OwnerUnavailable, ValueError) as error:
                # Another one may know: which of them are away is the asker's to say.
                changed, failure = None, str(error)
            if changed is None:
                self._silent.add(url)
                self.failure = failure
                continue
            self._silent.discard(url)
            self.failure = ""
            return changed
        return False
