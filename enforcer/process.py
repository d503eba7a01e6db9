"""One limiter for each process: built when it is first needed, so after any fork, and closed at the process's end.

Two processes never share a copy's epoch. Never closes a limiter that another process, or someone else, has built.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
import weakref
from collections.abc import Callable
from functools import partial

from enforcer.errors import ConfigError
from enforcer.forking import tell_of_forks
from enforcer.limiting.limiter import Limiter


class PerProcess:
    """Call it for the limiter of the process that runs. Safe for threads and forks."""

    def __init__(self, build: Callable[[], Limiter]) -> None:
        """Remember `build`; it is called once in each process that asks, and whatever it raises comes through."""
        self._build = build
        self._held: tuple[int, Limiter] | None = None
        self._lock = threading.Lock()
        tell_of_forks(self)

    @classmethod
    def of(cls, limiter: Limiter | Callable[[], Limiter]) -> Callable[[], Limiter]:
        """What is called for the limiter: what a callable builds; or `limiter` itself, and in a fork its like.

        What it returns raises `ConfigError` in a fork if nobody said how the limiter is built (`Limiter.again`).
        """
        if isinstance(limiter, cls):
            return limiter
        if not isinstance(limiter, Limiter):
            return cls(limiter)
        given, built_in = limiter, os.getpid()

        def build() -> Limiter:
            if given.again is None:
                raise ConfigError(
                    f"the limiter was given in process {built_in}, and process {os.getpid()} was forked from it; "
                    "allowed: a callable that builds the limiter in the process that serves"
                )
            return given.again()

        elsewhere = cls(build)
        return lambda: given if os.getpid() == built_in else elsewhere()

    def __call__(self) -> Limiter:
        """The limiter of this process, built if it is the first time."""
        held = self._held
        # Asked for each time: a server written in C may fork without telling Python.
        pid = os.getpid()
        if held is not None and held[0] == pid:
            return held[1]
        with self._lock:
            held = self._held
            if held is not None and held[0] == pid:
                return held[1]
            limiter = self._build()
            self._held = (pid, limiter)
        close_at_end(limiter)
        return limiter

    def after_fork(self) -> None:
        """See `Forkable`: another thread may have been building."""
        self._lock = threading.Lock()


_closed_at_end: weakref.WeakSet[Limiter] = weakref.WeakSet()


def close_at_end(limiter: Limiter) -> None:
    """Have `limiter` closed at the end of this process, where nobody has closed it before. Safe to call twice."""
    if limiter in _closed_at_end:
        return
    _closed_at_end.add(limiter)
    close = partial(_close, os.getpid(), limiter)
    atexit.register(close)
    limiter.at_close(lambda: atexit.unregister(close))
    # A child of multiprocessing has loaded both, and is ended without what is registered at exit.
    process, util = (sys.modules.get(f"multiprocessing.{name}") for name in ("process", "util"))
    if process is not None and util is not None and process.parent_process() is not None:
        limiter.at_close(util.Finalize(None, close, exitpriority=0).cancel)


def _close(pid: int, limiter: Limiter) -> None:
    # A fork inherits what is registered here, and would settle the grants of the process that it came from.
    if os.getpid() == pid:
        limiter.close()
