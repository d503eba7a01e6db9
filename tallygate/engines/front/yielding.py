"""Merges of the embedded engine give way to inserts and to who waits for an answer: on Linux, and nowhere else.

On a machine that has no core to spare, a merge that can wait would else take as much of it as the page that cannot. A
merge that waits makes the next one larger, so there is less to do in the end; and inserts are held back by the engine
itself, should there be too many parts.
"""

from __future__ import annotations

import os
import threading
from pathlib import Path

#: As the engine calls the threads that merge. They begin with the first merge, and stay.
_NAME = "MergeMutate"
#: A tenth of what others get, while others want it.
_NICE = 10
_EVERY_S = 2.0
_OWN_THREADS = Path("/proc/self/task")


class Yielding:
    """Looks for the threads that merge, every now and then."""

    def __init__(self) -> None:
        """Begin, in a thread that does not keep the process."""
        self._stop = threading.Event()
        if _OWN_THREADS.is_dir():
            threading.Thread(target=self._run, name="yielding", daemon=True).start()

    def close(self) -> None:
        """Look no more."""
        self._stop.set()

    def _run(self) -> None:
        while not self._stop.wait(_EVERY_S):
            for thread in merging_threads():
                # It may have ended meanwhile, or is nicer already.
                try:
                    if os.getpriority(os.PRIO_PROCESS, thread) < _NICE:
                        os.setpriority(os.PRIO_PROCESS, thread, _NICE)
                except (ProcessLookupError, PermissionError):
                    continue


def merging_threads(tasks: Path = _OWN_THREADS) -> list[int]:
    """The threads of a process that merge, by their numbers; `tasks` is its folder of threads under /proc."""
    found = []
    for task in tasks.iterdir():
        try:
            name = (task / "comm").read_text().strip()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if name == _NAME:
            found.append(int(task.name))
    return found
