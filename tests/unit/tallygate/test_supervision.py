"""When a crashed process is started again."""

from __future__ import annotations

from pathlib import Path
from typing import cast

from tallygate.engines.process import Child
from tallygate.supervision import FIRST_PAUSE_S, HEALTHY_S, LONGEST_PAUSE_S, Service, plan_restart


class _Child:
    """A process that ends when it is told."""

    log_path = Path("worker.log")

    def __init__(self) -> None:
        self.code: int | None = None

    def exit_code(self) -> int | None:
        return self.code

    def log_tail(self, lines: int) -> str:
        return "the last words"


class _Scene:
    """A service on a clock of its own."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.started: list[_Child] = []
        self.said: list[str] = []
        self.service = Service("worker", self._start, now_s=lambda: self.now_s, say=self.said.append)

    def _start(self) -> Child:
        self.started.append(_Child())
        return cast("Child", self.started[-1])

    def crash_after(self, seconds: float) -> float:
        """Let the process end after so long; returns the pause until it is started again."""
        self.now_s += seconds
        self.started[-1].code = -9
        self.service.check()
        count, ended_s = len(self.started), self.now_s
        while len(self.started) == count:
            self.now_s += 0.25
            self.service.check()
        return self.now_s - ended_s


def test_plan_restart_doubles_up_to_its_limit_and_starts_over_after_a_healthy_run() -> None:
    """A process that cannot start must not spin; one that crashes once a day must be back at once."""
    pauses = [0.0]
    for _ in range(8):
        pauses.append(plan_restart(started_s=0, ended_s=1, last_pause_s=pauses[-1]).pause_s)
    assert pauses[1:4] == [FIRST_PAUSE_S, FIRST_PAUSE_S * 2, FIRST_PAUSE_S * 4]
    assert pauses[-1] == LONGEST_PAUSE_S
    after_a_day = plan_restart(started_s=0, ended_s=HEALTHY_S, last_pause_s=LONGEST_PAUSE_S)
    assert (after_a_day.pause_s, after_a_day.at_s) == (FIRST_PAUSE_S, HEALTHY_S + FIRST_PAUSE_S)


def test_service_is_started_again_and_says_so() -> None:
    """A recorder that is silently gone leaves a hole on every page."""
    scene = _Scene()
    scene.service.start()
    assert scene.crash_after(1) == 0.5
    assert scene.crash_after(1) == 1.0
    assert scene.crash_after(HEALTHY_S) == 0.5
    assert scene.service.restarts == 3
    assert len(scene.said) == 3
    assert all(word in scene.said[0] for word in ("worker", "SIGKILL", "0.5 s", "worker.log", "the last words"))


def test_service_that_runs_is_left_alone() -> None:
    """Two recorders of one group would take turns for ever."""
    scene = _Scene()
    scene.service.start()
    for _ in range(10):
        scene.now_s += 60
        scene.service.check()
    assert len(scene.started) == 1
    assert scene.said == []
