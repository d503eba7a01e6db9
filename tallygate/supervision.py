"""Keeps our own processes running: one that ends is started again, after a pause that doubles.

Engines are not its business: nothing can go on without them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tallygate.engines.process import Child, describe_exit

FIRST_PAUSE_S = 0.5
LONGEST_PAUSE_S = 15.0
#: A process that ran for so long was healthy: its next end starts from the first pause again.
HEALTHY_S = 30.0


@dataclass(frozen=True, slots=True)
class Restart:
    """What to do about a process that ended.

    Attributes:
        at_s: when to start it again.
        pause_s: the pause until then.
    """

    at_s: float
    pause_s: float


def plan_restart(*, started_s: float, ended_s: float, last_pause_s: float) -> Restart:
    """When to start a process again that ran from ``started_s`` to ``ended_s``; pure, on any monotonic clock.

    Args:
        started_s: when it was started.
        ended_s: now.
        last_pause_s: the pause before that start; 0 for the first.
    """
    healthy = ended_s - started_s >= HEALTHY_S
    pause_s = FIRST_PAUSE_S if healthy or last_pause_s <= 0 else min(LONGEST_PAUSE_S, last_pause_s * 2)
    return Restart(ended_s + pause_s, pause_s)


class Service:
    """One of our processes, under supervision."""

    def __init__(
        self, name: str, start: Callable[[], Child], *, now_s: Callable[[], float], say: Callable[[str], None]
    ) -> None:
        self.name = name
        self._start = start
        self._now_s = now_s
        self._say = say
        self._restart: Restart | None = None
        self._last_pause_s = 0.0
        self._started_s = 0.0
        self._child: Child | None = None
        self.restarts = 0

    @property
    def child(self) -> Child | None:
        """The running process; None before the first start and between an end and the next start."""
        return self._child

    def start(self) -> Child:
        """Start it now."""
        self._child = self._start()
        self._started_s = self._now_s()
        self._restart = None
        return self._child

    def check(self) -> None:
        """Notice an end, say so, and start it again once its pause is over."""
        if self._child is not None:
            code = self._child.exit_code()
            if code is not None:
                self._ended(self._child, code)
        elif self._restart is not None and self._now_s() >= self._restart.at_s:
            self.restarts += 1
            self.start()

    def _ended(self, child: Child, code: int) -> None:
        now_s = self._now_s()
        self._restart = plan_restart(started_s=self._started_s, ended_s=now_s, last_pause_s=self._last_pause_s)
        self._last_pause_s = self._restart.pause_s
        self._child = None
        tail = child.log_tail(5)
        because = f"\n{tail}" if tail else ""
        self._say(
            f"the {self.name} ended with {describe_exit(code)}; it starts again in {self._restart.pause_s:g} s "
            f"(log: {child.log_path}){because}"
        )
