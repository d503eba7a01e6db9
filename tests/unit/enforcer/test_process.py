"""A limiter for each process: built once where it is needed, never used or closed by a fork."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from enforcer.config import EnforcerConfig
from enforcer.errors import ConfigError
from enforcer.identity import CopyIdentity
from enforcer.limiting.limiter import Limiter
from enforcer.process import PerProcess, _close
from enforcer.settings import LimiterSettings
from enforcer.testing import RecordingSink
from enforcer.wiring import build_limiter
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


def test_the_like_that_a_fork_builds_is_built_as_the_first_one_was(tmp_path: Path) -> None:
    """Forgotten settings would give the workers of a server other limiters than its author chose."""
    (tmp_path / "policy.yaml").write_text("version: 1\nplans: {p: {rate_per_s: 1, burst: 1}}\ndefault_plan: p\n")
    config = EnforcerConfig(
        owner_url="redis://127.0.0.1:1/0", policy_path=str(tmp_path / "policy.yaml"), copy_id="worker"
    )
    settings, sinks = LimiterSettings(max_callers=7), list[RecordingSink]()

    def sink(_: CopyIdentity) -> RecordingSink:
        sinks.append(RecordingSink())
        return sinks[-1]

    first = build_limiter(config, sink=sink, settings=settings)
    assert first.again is not None
    like = first.again()
    first.close()
    assert like.check("acme").allowed
    like.close()
    assert (settings, "worker") == (like._settings, like.identity.copy_id)
    assert [0, 1] == [len(sink.verdicts) for sink in sinks]
