"""Remembers that the database is away, so that nobody waits for it in vain: one request asks, the others are told.

Pure: the time is an argument, on any monotonic clock in seconds. Belongs to one event loop.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

#: ``go``: ask as usual. ``probe``: ask, and the answer decides for all. ``wait``: it is known to be away, do not ask.
Turn: TypeAlias = Literal["go", "probe", "wait"]

PAUSE_S = 1.0


class Breaker:
    """Closed while the database answers, open once it did not; half open while one request finds out."""

    def __init__(self, pause_s: float = PAUSE_S) -> None:
        self._pause_s = pause_s
        self._next_probe_s: float | None = None
        self._probing = False

    def turn(self, now_s: float) -> Turn:
        """What a request that comes now does; who is told to probe must call `answered`, `silent` or `left`."""
        if self._next_probe_s is None:
            return "go"
        if self._probing or now_s < self._next_probe_s:
            return "wait"
        self._probing = True
        return "probe"

    def answered(self) -> None:
        """The database answered, whatever it said."""
        self._next_probe_s = None
        self._probing = False

    def silent(self, now_s: float) -> None:
        """The database did not answer in time."""
        self._next_probe_s = now_s + self._pause_s
        self._probing = False

    def left(self) -> None:
        """Who probed has gone before there was an answer: the next one may."""
        self._probing = False
