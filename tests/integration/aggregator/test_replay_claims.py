"""One replay at a time on one shadow, on a real engine: whoever comes second is told, and touches nothing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from aggregator.config import parse_dsn
from aggregator.migrate import migrate
from aggregator.replay import claim, command
from aggregator.replay.claim import Claim, claimed
from aggregator.replay.shadow import find_shadow
from aggregator.store import StoreRefused, StoreUnavailable
from aggregator.store_clickhouse import ClickHouseStore
from tests.processes import wait_until


@pytest.fixture
def store(database_dsn: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[ClickHouseStore]:
    """An empty record."""
    monkeypatch.setenv("TALLYGATE_CLICKHOUSE", database_dsn)
    migrate(database_dsn)
    with closing(ClickHouseStore.connect(database_dsn)) as handle:
        yield handle


@pytest.fixture
def shadow(store: ClickHouseStore, database_dsn: str) -> Iterator[str]:
    """A shadow that a replay has made, dropped after the test."""
    dsn = parse_dsn(database_dsn)
    name = f"{dsn.database}_shadow"
    find_shadow(store, dsn, name)
    yield name
    store.command(f"DROP DATABASE IF EXISTS {name} SYNC")


def _replay(shadow: str, *words: str) -> int:
    return command.main(["--from", "raw", "--into", shadow, *words])


def test_second_replay_on_a_shadow_is_refused_while_the_first_one_works(
    store: ClickHouseStore, shadow: str, database_dsn: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """It would drop tables under the first one's hands, and what was exchanged then would be half of each."""
    store.command(f"CREATE TABLE {shadow}.half_done (n UInt8) ENGINE = Memory")
    with claimed(store, shadow, lambda: ClickHouseStore.connect(database_dsn)):
        assert _replay(shadow, "--compare") == 2
        said = capsys.readouterr().err
        assert f"is working on {shadow} since" in said
        assert "allowed: another name" in said
        assert store.rows(f"SELECT count() FROM {shadow}.half_done") == [(0,)], "nothing was touched"
    assert _replay(shadow, "--compare") == 0, "the first one has ended"
    assert store.rows(f"EXISTS TABLE {shadow}.half_done") == [(0,)], "what was left there is gone"


def test_replay_that_was_killed_holds_up_nobody_for_long(store: ClickHouseStore, shadow: str) -> None:
    """Nobody ends the claim of a process that is gone; the database's clock does."""
    store.command(f"INSERT INTO {shadow}.{claim.CLAIMS} (run, who, at) VALUES ('gone', 'it', now64(6) - 20)")
    assert _replay(shadow) == 2
    store.command(f"TRUNCATE TABLE {shadow}.{claim.CLAIMS}")
    store.command(f"INSERT INTO {shadow}.{claim.CLAIMS} (run, who, at) VALUES ('gone', 'it', now64(6) - 40)")
    assert _replay(shadow) == 0


def test_replay_that_works_for_long_keeps_its_claim(store: ClickHouseStore, shadow: str, database_dsn: str) -> None:
    """It may take hours, of which its claim alone would last half a minute."""

    def beats() -> int:
        return int(store.rows(f"SELECT count() FROM {shadow}.{claim.CLAIMS}")[0][0])

    with claimed(store, shadow, lambda: ClickHouseStore.connect(database_dsn), beat_s=0.01):
        wait_until(lambda: beats() > 3, 30.0, what="signs of life")


def test_replay_keeps_its_claim_though_the_database_was_away_when_it_began_to_say_so(
    store: ClickHouseStore, shadow: str, database_dsn: str
) -> None:
    """One connection that failed must not let the claim of a replay of hours run out under it."""
    refused = [StoreUnavailable("starting"), StoreRefused("not yet")]

    def open_store() -> ClickHouseStore:
        if refused:
            raise refused.pop()
        return ClickHouseStore.connect(database_dsn)

    def beats() -> int:
        return int(store.rows(f"SELECT count() FROM {shadow}.{claim.CLAIMS}")[0][0])

    with claimed(store, shadow, open_store, beat_s=0.01):
        wait_until(lambda: beats() > 1, 30.0, what="a sign of life")


def test_replay_whose_claim_had_lapsed_exchanges_nothing_though_nobody_is_there_any_more(
    store: ClickHouseStore, shadow: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Another may have come, made the shadow anew, and ended, all while this one stood still."""

    def take_older(*_: object, **__: object) -> None:
        (run,) = store.rows(f"SELECT any(run) FROM {shadow}.{claim.CLAIMS}")[0]
        store.command(f"INSERT INTO {shadow}.{claim.CLAIMS} (run, who, at) VALUES ('{run}', 'it', now64(6) - 40)")

    monkeypatch.setattr(command, "take_older", take_older)
    assert _replay(shadow, "--swap") == 1
    assert "stood still for so long" in capsys.readouterr().err


def test_replay_that_stood_still_exchanges_nothing(
    store: ClickHouseStore, shadow: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A suspended process wakes up behind another that has made the shadow anew."""
    monkeypatch.setattr(command, "take_older", lambda *_, **__: Claim(shadow, "another").beat(store))
    assert _replay(shadow, "--swap") == 1
    assert "stood still for so long" in capsys.readouterr().err
