"""Replays and erasures that meet, on a real engine: nobody comes back with the tables that are exchanged."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from aggregator.erasure import erasing, removing
from aggregator.erasure.known import Stated, stated
from aggregator.erasure.places import counted
from aggregator.replay import command
from aggregator.replay.swap import swap, take_older
from aggregator.store import StoreUnavailable
from aggregator.store_clickhouse import ClickHouseStore
from tests.integration.aggregator.replaying import replay, settled_record, shadow_of

DELETE = removing._delete


@pytest.fixture
def store(database_dsn: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[ClickHouseStore]:
    """A record of ten minutes of two callers, settled."""
    monkeypatch.setenv("TALLYGATE_CLICKHOUSE", database_dsn)
    with settled_record(database_dsn) as handle:
        yield handle


@pytest.fixture
def shadow(database_dsn: str) -> Iterator[str]:
    """The name of a shadow, dropped after the test."""
    with shadow_of(database_dsn) as name:
        yield name


def test_replay_brings_nobody_back_whose_erasure_was_begun_before_it_or_came_with_the_exchange(
    store: ClickHouseStore, shadow: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What is taken over at the beginning may hold a caller whose erasure is finished before the end."""

    def erase() -> Stated | None:
        return erasing.erase(store, "a", requested_by="x", reason="y", progress=lambda _: None)

    def erased_meanwhile(*words: Any, **named: Any) -> None:
        take_older(*words, **named)
        erase()

    def killed(*_: Any, **__: Any) -> None:
        raise StoreUnavailable("killed")

    with monkeypatch.context() as patched:
        patched.setattr(removing, "_delete", killed)
        with pytest.raises(StoreUnavailable):
            erase()
        assert 1 == replay(shadow, "--swap")
        assert "an erasure is not finished" in capsys.readouterr().err
        patched.setattr(command, "_unfinished", lambda _store: "")
        patched.setattr(removing, "_delete", DELETE)
        patched.setattr(command, "take_older", erased_meanwhile)
        assert 1 == replay(shadow, "--swap")
        assert "nothing was exchanged" in capsys.readouterr().err
    assert "done" == stated(store)[0].state

    def erased_with_it(*words: Any) -> list[str]:
        one = erasing.erase(store, "b", requested_by="x", reason="y", progress=lambda _: None)
        assert one is not None
        assert "done" == one.state
        return swap(*words)

    monkeypatch.setattr(command, "swap", erased_with_it)
    assert 0 == replay(shadow, "--swap")
    assert {} == counted(store, "a")
    assert {} == counted(store, "b")
