"""A folder for one run, removed at its end; what runs that were killed have left is removed by the next one."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from pathlib import Path

_PREFIX = "tallygate-run-"
_LOCK = ".lock"


class Scratch:
    """A temporary folder that tells by a lock whether its run is still alive."""

    def __init__(self, root: Path | None = None) -> None:
        base = root or Path(tempfile.gettempdir())
        _remove_orphans(base)
        self.path = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=base))
        # Released by the kernel, whatever this process dies of.
        self._lock = os.open(self.path / _LOCK, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def remove(self) -> None:
        """Delete the folder; safe to call twice."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1
        shutil.rmtree(self.path, ignore_errors=True)


def _remove_orphans(base: Path) -> None:
    for folder in base.glob(f"{_PREFIX}*"):
        try:
            lock = os.open(folder / _LOCK, os.O_RDWR | os.O_CLOEXEC)
        except OSError:  # being made at this moment, or not ours
            continue
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:  # its run is alive
            continue
        else:
            shutil.rmtree(folder, ignore_errors=True)
        finally:
            os.close(lock)
