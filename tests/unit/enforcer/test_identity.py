"""The identity of a copy: one limiter's is never another's."""

from __future__ import annotations

from pathlib import Path

import pytest

from enforcer.clock import SystemClock
from enforcer.config import EnforcerConfig
from enforcer.identity import Starts
from enforcer.wiring import build_limiter

EXAMPLE = Path(__file__).resolve().parents[3] / "examples" / "asgi"


def test_limiters_of_one_millisecond_have_epochs_of_their_own() -> None:
    """Two decisions under one (copy_id, epoch, seq) are one row of the record: one of them is lost."""
    starts = Starts()
    given = [starts.new_identity("gw", unix_ms=unix_ms, pid=7) for unix_ms in (1_000, 1_000, 1_000, 999, 1_002, 5_000)]
    epochs = [identity.epoch for identity in given]
    assert sorted(set(epochs)) == epochs
    assert [1_000, 1_001, 1_002, 1_003, 1_004, 5_000] == [epoch >> 20 for epoch in epochs]
    assert {7} == {epoch & 0xFFFFF for epoch in epochs}


def test_a_fork_goes_on_with_what_its_parent_has_given() -> None:
    """A process id comes back; and what another thread held at the fork is never let go in the child."""
    starts = Starts()
    parents = starts.new_identity("gw", unix_ms=1_000, pid=7)
    starts._lock.acquire()
    starts.after_fork()
    assert parents != starts.new_identity("gw", unix_ms=1_000, pid=7)


def test_limiters_that_are_built_at_once_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """An application may build several: one for each part of it."""
    monkeypatch.setattr(SystemClock, "unix_us", lambda _clock: 1_795_991_556_929_000)
    config = EnforcerConfig(
        owner_url="redis://127.0.0.1:9/0", policy_path=str(EXAMPLE / "policy.yaml"), copy_id="built-at-once"
    )
    limiters = [build_limiter(config) for _ in range(3)]
    try:
        assert 3 == len({limiter.identity for limiter in limiters})
    finally:
        for limiter in limiters:
            limiter.close()
