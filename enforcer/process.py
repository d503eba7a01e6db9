"""One limiter for each process: built when it is first needed, so after any fork, and closed at the process's end.

Two processes never share a copy's epoch. Never closes a limiter that another process, or someone else, has built.
"""

from __future__ import annotations

import atexit
import os
import threading
import weakref
from collections.abc import Callable

from enforcer.errors import ConfigError
from enforcer.limiting.limiter import Limiter


class PerProcess:
    """Call it for the limiter of the process that runs. Safe for threads and forks."""

    def __init__(self, build: Callable[[], Limiter]) -> None:
        """Remember `build`; it is called once in each process that asks, and whatever it raises comes through."""
        self._build = build
        self._held: tuple[int, Limiter] | None = None
        self._lock = threading.Lock()
        _all.add(self)

    @classmethod
    def of(cls, limiter: Limiter | Callable[[], Limiter]) -> Callable[[], Limiter]:
        """What is called for the limiter: `limiter` itself in this process only, or what a callable builds."""
        if isinstance(limiter, cls):
            return limiter
        if not isinstance(limiter, Limiter):
            return cls(limiter)
        given, built_in = limiter, os.getpid()

        def same() -> Limiter:
            if os.getpid() != built_in:
                raise ConfigError(
                    f"the limiter was given in process {built_in}, and process {os.getpid()} was forked from it; "
                    "allowed: a callable that builds the limiter in the process that serves"
                )
            return given

        return same

    def __call__(self) -> Limiter:
        """The limiter of this process, built if it is the first time."""
        held = self._held
        pid = os.getpid()
        if held is not None and held[0] == pid:
            return held[1]
        with self._lock:
            held = self._held
            if held is not None and held[0] == pid:
                return held[1]
            limiter = self._build()
            self._held = (pid, limiter)
        atexit.register(_close, pid, limiter)
        return limiter

    def _renew_lock(self) -> None:
        self._lock = threading.Lock()


def _close(pid: int, limiter: Limiter) -> None:
    # A fork inherits what is registered here, and would settle the grants of the process that it came from.
    if os.getpid() == pid:
        limiter.close()


def _renew_locks() -> None:
    # Another thread may have held one when this process was forked: nobody here would ever release it.
    for process in tuple(_all):
        process._renew_lock()


_all: weakref.WeakSet[PerProcess] = weakref.WeakSet()
os.register_at_fork(after_in_child=_renew_locks)
