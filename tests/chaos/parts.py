"""A process under test: started with or without a fault, started again by hand, its output kept."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from tests.chaos.points import Fault
from tests.processes import freeze, is_running, thaw

_ROOT = Path(__file__).parents[2]
_END_S = 40.0


class Part:
    """One of our processes, restarted by whoever killed it, as a supervisor would."""

    def __init__(self, name: str, argv: list[str], environ: Mapping[str, str], folder: Path) -> None:
        self.name = name
        self._argv = argv
        self._environ = {**os.environ, **environ}
        self._folder = folder
        self._faults = 0
        self.log_path = folder / f"{name}.log"
        self.starts = 0
        self.process = self._start(None, Path())

    @property
    def pid(self) -> int:
        """Of the process that runs now."""
        return self.process.pid

    def restart_with(self, fault: Fault) -> Path:
        """End it in good order and start it with a fault armed; returns the file that is there once it has happened."""
        self.require()
        self.end()
        self._faults += 1
        mark = self._folder / f"{self.name}-{self._faults}.mark"
        self.process = self._start(fault, mark)
        return mark

    def kill_and_restart(self) -> None:
        """End it as a crash would, and start the next one at once."""
        self.require()
        self.process.kill()
        self.restart()

    def restart(self) -> None:
        """Start it again after it was killed, by us or by a fault."""
        self.process.wait(_END_S)
        self.process = self._start(None, Path())

    def twin(self) -> Part:
        """A second process of the same kind beside it."""
        return Part(f"{self.name}-twin", self._argv, self._environ, self._folder)

    def freeze_for(self, seconds: float) -> None:
        """Stop it where it stands for so long."""
        freeze(self.pid)
        time.sleep(seconds)
        thaw(self.pid)

    def require(self) -> None:
        """Fail if it has ended by itself."""
        assert is_running(self.pid), f"{self.name} ended by itself:\n{self.log_path.read_text()[-3000:]}"

    def end(self) -> int:
        """SIGTERM, as an operator would; returns its exit code."""
        self.process.terminate()
        try:
            return self.process.wait(_END_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise

    def stop(self) -> None:
        """End it whatever it does."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()

    def _start(self, fault: Fault | None, mark: Path) -> subprocess.Popen[bytes]:
        self.starts += 1
        environ = self._environ if fault is None else {**self._environ, **fault.environ(mark)}
        with self.log_path.open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "tests.chaos.run_at", *(word.format(start=self.starts) for word in self._argv)],
                env=environ,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=_ROOT,
            )
