"""A child process that cannot outlive us: started, awaited, logged, stopped by its pid.

Knows nothing of what it runs. On systems other than Linux a child outlives a parent that is killed.
"""

from __future__ import annotations

import os
import queue
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from tallygate.engines.errors import EngineFailed, EngineMissing

_TETHER = Path(__file__).with_name("tether.py")
_POLL_S = 0.01
_TAIL_BYTES = 4_000


@dataclass(frozen=True, slots=True)
class Command:
    """What to run.

    Attributes:
        name: for messages and the log.
        argv: program and arguments; never goes through a shell.
        log_path: receives stdout and stderr, appended.
        environ: the child's whole environment; None inherits ours.
        cwd: working directory; None inherits ours.
        death_signal: what the kernel sends the child when we die, whatever we die of.
        scratch: a folder that goes with the child when it is stopped.
    """

    name: str
    argv: Sequence[str]
    log_path: Path
    environ: Mapping[str, str] | None = None
    cwd: Path | None = None
    death_signal: signal.Signals = signal.SIGKILL
    scratch: Path | None = None


class Child:
    """A running child. Also a context manager that stops it."""

    def __init__(self, command: Command, process: subprocess.Popen[bytes]) -> None:
        self._command = command
        self._process = process

    @property
    def name(self) -> str:
        """What the child is called in messages."""
        return self._command.name

    @property
    def pid(self) -> int:
        """The process id of the program itself, not of a wrapper."""
        return self._process.pid

    @property
    def log_path(self) -> Path:
        """Where its output goes."""
        return self._command.log_path

    def exit_code(self) -> int | None:
        """Its exit code, negative for a signal; None while it runs."""
        return self._process.poll()

    def log_tail(self, lines: int = 15) -> str:
        """The last lines of its output; empty where there is none."""
        try:
            with self.log_path.open("rb") as log:
                log.seek(max(0, self.log_path.stat().st_size - _TAIL_BYTES))
                return "\n".join(log.read().decode(errors="replace").splitlines()[-lines:])
        except OSError:
            return ""

    def wait_ready(self, probe: Callable[[], bool], *, timeout_s: float) -> None:
        """Ask the probe again and again until it says yes.

        Raises:
            EngineFailed: the child ended, or the time was up; it has been stopped. Carries the log's tail.
        """
        deadline = time.monotonic() + timeout_s
        while not probe():
            code = self.exit_code()
            if code is not None:
                raise EngineFailed(f"{self.name} ended with {describe_exit(code)} before it was ready{self._because()}")
            if time.monotonic() > deadline:
                self.stop(timeout_s=1)
                raise EngineFailed(f"{self.name} was not ready after {timeout_s:g} s{self._because()}")
            time.sleep(_POLL_S)

    def ask_to_end(self) -> None:
        """Send SIGTERM and return at once; safe when it has ended."""
        self._process.terminate()
        # A stopped (frozen) process would keep the SIGTERM pending for ever.
        self._process.send_signal(signal.SIGCONT)

    def stop(self, timeout_s: float = 5.0) -> None:
        """End it: SIGTERM, and SIGKILL once ``timeout_s`` has passed. Safe to call twice."""
        self.ask_to_end()
        try:
            self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._command.scratch is not None:
            shutil.rmtree(self._command.scratch, ignore_errors=True)

    def wait(self, timeout_s: float | None = None) -> int | None:
        """Its exit code once it has ended, or None if it still runs after ``timeout_s``."""
        try:
            return self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return None

    def _because(self) -> str:
        tail = self.log_tail()
        return f"; its log {self.log_path} ends:\n{tail}" if tail else f"; its log {self.log_path} is empty"

    def __enter__(self) -> Child:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def spawn(command: Command) -> Child:
    """Start a child that gets ``death_signal`` when this process dies, even by SIGKILL.

    Raises:
        EngineMissing: the program cannot be run.
    """
    command.log_path.parent.mkdir(parents=True, exist_ok=True)
    return Child(command, _spawner().run(lambda: _popen(command)))


def _popen(command: Command) -> subprocess.Popen[bytes]:
    tether = [sys.executable, "-I", "-S", str(_TETHER), str(os.getpid()), str(int(command.death_signal))]
    with command.log_path.open("ab") as log:
        try:
            return subprocess.Popen(
                [*tether, *command.argv],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=None if command.environ is None else dict(command.environ),
                cwd=command.cwd,
                # Ctrl-C in a terminal goes to our process group; we, not the terminal, decide in which order to end.
                start_new_session=True,
            )
        except OSError as error:
            raise EngineMissing(f"cannot start {command.name}: {error}") from error


class _Spawner:
    """One thread that forks all children and lives as long as the process.

    The kernel sends the death signal when the *thread* that forked dies, not the process: a child started from a
    short-lived thread would die with that thread.
    """

    def __init__(self) -> None:
        self.owner_pid = os.getpid()
        self._jobs: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        threading.Thread(target=self._loop, name="tallygate-spawner", daemon=True).start()

    def run(self, popen: Callable[[], subprocess.Popen[bytes]]) -> subprocess.Popen[bytes]:
        """Run ``popen`` on the thread, and hand back its process or raise its error here."""
        outcome: queue.SimpleQueue[subprocess.Popen[bytes] | Exception] = queue.SimpleQueue()

        def job() -> None:
            try:
                outcome.put(popen())
            except Exception as error:  # noqa: BLE001  not swallowed: raised again by the thread that waits for it
                outcome.put(error)

        self._jobs.put(job)
        result = outcome.get()
        if isinstance(result, Exception):
            raise result
        return result

    def _loop(self) -> None:
        while True:
            self._jobs.get()()


_spawner_lock = threading.Lock()
_spawners: list[_Spawner] = []


def _spawner() -> _Spawner:
    with _spawner_lock:
        # After a fork the thread exists only in the parent.
        if not _spawners or _spawners[-1].owner_pid != os.getpid():
            _spawners.append(_Spawner())
        return _spawners[-1]


def stop_all(children: Iterable[Child], *, timeout_s: float) -> None:
    """End several children at the same time: SIGTERM to all, SIGKILL to those left after ``timeout_s``."""
    asked = list(children)
    for child in asked:
        child.ask_to_end()
    deadline = time.monotonic() + timeout_s
    for child in asked:
        child.stop(max(0.0, deadline - time.monotonic()))


def describe_exit(code: int) -> str:
    """``exit code 1`` or ``signal SIGKILL``."""
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"signal {signal.Signals(-code).name}"
    except ValueError:
        return f"signal {-code}"


def accepts_connections(host: str, port: int) -> bool:
    """Whether something accepts TCP connections there now."""
    try:
        with socket.create_connection((host, port), timeout=1):
            return True
    except OSError:
        return False
