"""Freeze, thaw and kill processes by pid, and wait for what must come true. For integration and chaos tests."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path


def freeze(pid: int) -> None:
    """Stop the process where it stands (SIGSTOP); returns once it stands."""
    os.kill(pid, signal.SIGSTOP)
    wait_until(lambda: _state(pid) == "T", timeout_s=30)


def thaw(pid: int) -> None:
    """Let a frozen process go on (SIGCONT)."""
    os.kill(pid, signal.SIGCONT)


def kill(pid: int) -> None:
    """End the process as a crash would (SIGKILL); returns once it is gone."""
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not is_running(pid), timeout_s=30)


def is_running(pid: int) -> bool:
    """Whether any of the process still runs; a zombie is one only once its last thread has ended."""
    if _state(pid) not in {"", "Z", "X"}:
        return True
    try:
        return len(list(Path(f"/proc/{pid}/task").iterdir())) > 1
    except (FileNotFoundError, ProcessLookupError):
        return False


def wait_until(
    predicate: Callable[[], bool], timeout_s: float, *, what: str = "the condition", poll_s: float = 0.02
) -> None:
    """Return once the predicate holds.

    Raises:
        TimeoutError: it did not hold in time; names ``what``.
    """
    deadline = time.monotonic() + timeout_s
    while not predicate():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what} did not come true within {timeout_s:g} s")
        time.sleep(poll_s)


def _state(pid: int) -> str:
    """The letter of /proc/PID/stat; empty when there is no such process."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return ""


def children_of(pid: int) -> dict[int, str]:
    """Command lines of a process's children, by their pids."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            if parent == pid:
                found[int(folder.name)] = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        except (FileNotFoundError, ProcessLookupError):
            continue
    return found
