"""Remembers that the database is away, so that nobody waits for it in vain: one request asks, the others are told.

Pure: the time is an argument, on any monotonic clock in seconds, and so is how often the database has answered so far:
an answer to anybody, however late, ends it. Belongs to one event loop.
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
        self._answers = 0
        self._probing = False

    def turn(self, now_s: float, answers: int) -> Turn:
        """What a request that comes now does; who is told to probe must call `left` when the probe has ended."""
        if not self.away(answers) or self._next_probe_s is None:
            return "go"
        if self._probing or now_s < self._next_probe_s:
            return "wait"
        self._probing = True
        return "probe"

    def away(self, answers: int) -> bool:
        """Whether nobody has had an answer since it was last found silent."""
        if self._next_probe_s is not None and answers != self._answers:
            self._next_probe_s = None
            self._probing = False
        return self._next_probe_s is not None

    def silent(self, now_s: float, answers: int) -> None:
        """It was asked and there was no answer: not in time, or nobody is there."""
        self._next_probe_s = now_s + self._pause_s
        self._answers = answers

    def left(self) -> None:
        """The probe has ended, with or without an answer, or who probed has gone: the next one may."""
        self._probing = False
