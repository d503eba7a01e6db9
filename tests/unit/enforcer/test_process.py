"""A limiter for each process: built once where it is needed, never used or closed by a fork."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

from enforcer.errors import ConfigError
from enforcer.limiting.limiter import Limiter
from enforcer.process import PerProcess, _close
from tests.unit.enforcer.harness import Fleet


def test_a_process_builds_once_and_a_fork_builds_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two processes with one copy's epoch would number two decisions alike."""
    built: list[Limiter] = []

    def build() -> Limiter:
        built.append(Fleet().limiter)
        return built[-1]

    find = PerProcess(build)
    assert [] == built
    assert find() is find() is built[0]
    pid = os.getpid()
    monkeypatch.setattr(os, "getpid", lambda: pid + 1)
    assert find() is built[1] is not built[0]
    assert 2 == len(built)


def test_a_fork_never_closes_what_it_inherited(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would settle grants that the other process still spends."""
    fleet = Fleet()
    pid = os.getpid()
    _close(pid + 1, fleet.limiter)
    assert fleet.sink.closed_within_s is None
    _close(pid, fleet.limiter)
    assert fleet.sink.closed_within_s is not None


def test_a_given_limiter_is_refused_in_a_fork(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its thread is not there, and it would wait for the owner's answer for ever."""
    limiter = Fleet().limiter
    find: Callable[[], Limiter] = PerProcess.of(limiter)
    assert limiter is find()
    pid = os.getpid()
    monkeypatch.setattr(os, "getpid", lambda: pid + 1)
    with pytest.raises(ConfigError, match="allowed: a callable that builds the limiter"):
        find()
