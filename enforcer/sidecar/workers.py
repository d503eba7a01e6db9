"""Several serving processes on one socket: started, started again when they die, ended together. Serves nothing itself.

What keeps dying is started ever more slowly, up to every ten seconds; the others go on.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import time
from dataclasses import dataclass
from multiprocessing.connection import wait
from multiprocessing.context import SpawnProcess

from enforcer.sidecar.listening import Listening
from enforcer.sidecar.serving import Work, worker

log = logging.getLogger("enforcer")

_FIRST_PAUSE_S = 0.1
_LONGEST_PAUSE_S = 10.0
#: What a worker may take beyond its own bound before it is killed: the machine may be busy.
_PATIENCE_S = 1.0


@dataclass(slots=True)
class _Place:
    """One worker's place, whichever process has it."""

    process: SpawnProcess | None
    began_s: float
    pause_s: float
    due_s: float


class Workers:
    """Keeps so many workers running until SIGTERM or SIGINT. Run it in the main thread of a process of its own."""

    def __init__(self, work: Work, listening: Listening) -> None:
        self._work = work
        self._listening = listening
        self._places: list[_Place] = []
        self._woken, self._waker = os.pipe()
        self._is_over = False

    def run(self) -> int:
        """0 if all have ended in order within their bound, else 1."""
        for signal_number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(signal_number, lambda _number, _frame: self._end())
        now_s = time.monotonic()
        self._places = [_Place(None, now_s, _FIRST_PAUSE_S, now_s) for _ in range(self._work.config.workers)]
        while not self._is_over:
            now_s = time.monotonic()
            for number, place in enumerate(self._places):
                self._see_to(number, place, now_s)
            due_s = min((place.due_s for place in self._places if place.process is None), default=None)
            patience_s = None if due_s is None else max(0.0, due_s - time.monotonic())
            running = [place.process.sentinel for place in self._places if place.process is not None]
            wait([self._woken, *running], timeout=patience_s)
        return self._stop()

    def _see_to(self, number: int, place: _Place, now_s: float) -> None:
        process = place.process
        if process is not None and not process.is_alive():
            if now_s - place.began_s > _LONGEST_PAUSE_S:
                place.pause_s = _FIRST_PAUSE_S
            log.warning(
                "worker %d, process %s, ended with status %s; another starts in %g s",
                number, process.pid, process.exitcode, place.pause_s, extra={"action": "worker_ended"},
            )  # fmt: skip
            place.process, place.due_s = None, now_s + place.pause_s
            place.pause_s = min(2 * place.pause_s, _LONGEST_PAUSE_S)
        if place.process is None and now_s >= place.due_s:
            sockets = self._listening.of(number)
            started = multiprocessing.get_context("spawn").Process(target=worker, args=(self._work, sockets))
            started.start()
            place.process, place.began_s = started, now_s

    def _end(self) -> None:
        self._is_over = True
        os.write(self._waker, b".")

    def _stop(self) -> int:
        running = [place.process for place in self._places if place.process is not None]
        for process in running:
            process.terminate()
        deadline_s = time.monotonic() + self._work.config.stop_ms / 1e3 + _PATIENCE_S
        for process in running:
            process.join(max(0.0, deadline_s - time.monotonic()))
            if process.exitcode is None:
                log.error("process %s did not end in time and is killed", process.pid, extra={"action": "worker_hung"})
                process.kill()
                process.join()
        # One that the signal ends was still loading, and held nothing.
        return int(any(process.exitcode not in {0, -signal.SIGTERM} for process in running))
