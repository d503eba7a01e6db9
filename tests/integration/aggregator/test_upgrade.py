"""An upgrade of a database that holds decisions of before there were settled totals: none goes before it is settled."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta

import pytest

from aggregator.config import AggregatorConfig
from aggregator.migrate import migrate
from aggregator.recorder.keeping import Keeping
from aggregator.replay.rebuild import settle
from aggregator.retention import command
from aggregator.sql import migrations
from aggregator.store_clickhouse import ClickHouseStore
from tests.processes import wait_until

_LOG = logging.getLogger("test.upgrade")
#: Days ago of the decisions, 100 of each, every other one admitted.
_DAYS = (40, 1)
_FIRST_MIGRATIONS = 5


@pytest.fixture
def store(database_dsn: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[ClickHouseStore]:
    """A database as the first release left it, then migrated; no settler and no recorder has run on it since."""
    monkeypatch.setenv("TALLYGATE_CLICKHOUSE", database_dsn)
    migrate(database_dsn, steps=migrations()[:_FIRST_MIGRATIONS])
    with closing(ClickHouseStore.connect(database_dsn)) as handle:
        for offset, days in enumerate(_DAYS):
            _record(handle, days, offset)
        assert migrate(database_dsn)[0].number == _FIRST_MIGRATIONS + 1
        yield handle


def _record(store: ClickHouseStore, days: int, offset: int) -> None:
    at = f"toDateTime64(now() - INTERVAL {days} DAY, 6, 'UTC')"
    store.command(
        "INSERT INTO decisions (caller, at, copy_id, epoch, seq, scope, limit, plan, allowed, source, reason, "
        f"cost_tokens, log_partition, log_offset) SELECT 'acme', {at}, 'gw', 1, number + {offset * 100}, '/x', 'rate', "
        f"'pro', number % 2, 'local', if(number % 2, 'none', 'spent'), 1, 0, {offset} FROM numbers(100)"
    )
    store.command(
        "INSERT INTO blocks (copy_id, epoch, first_seq, decisions, sealed_at, prev_hash, block_hash, log_partition, "
        f"log_offset) VALUES ('gw', 1, {offset * 100}, 100, {at}, unhex('{0:032x}'), "
        f"unhex('{offset + 1:032x}'), 0, {offset})"
    )


def _day(days_ago: int) -> str:
    return f"{datetime.now(UTC) - timedelta(days=days_ago):%Y-%m-%d}"


def _raw(store: ClickHouseStore) -> dict[str, int]:
    return dict(store.rows("SELECT toString(toDate(at)), count() FROM decisions FINAL GROUP BY 1"))


def test_old_decisions_of_an_upgraded_database_stay_until_they_are_settled(
    store: ClickHouseStore, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    """They would go within seconds, and the bills of those months would have nothing to stand on, for good."""
    config, stop = AggregatorConfig.from_env(), threading.Event()
    try:
        waiting = Keeping(config, _LOG, again_s=0.2).begin(stop)
        assert waiting is not None
        assert "raw decisions from" in caplog.text
        assert "no settler has run yet" in caplog.text
        assert 0 == command.main(["show"])
        assert "the retention of the raw record waits for the settler" in capsys.readouterr().out
        assert 1 == command.main(["apply"])
        assert "left as they are: cost_changes, decisions, grants, settlements" in capsys.readouterr().err
        assert _ttl(store) == "", "the engine would begin to delete at once"
        assert _raw(store) == {_day(40): 100, _day(1): 100}

        settle(config, _LOG, lambda _said: None, unix_us=lambda: time.time_ns() // 1_000)
        waiting.join(60)
        assert not waiting.is_alive(), "it is applied while the recorder runs"
    finally:
        stop.set()
    assert "toIntervalDay(15) WHERE allowed" in _ttl(store)
    wait_until(
        lambda: _raw(store) == {_day(40): 50, _day(1): 100}, 120, what="old admitted decisions to go", poll_s=0.5
    )
    assert store.rows(
        "SELECT toString(day), sum(offered), sum(admitted) FROM settled_days FINAL GROUP BY 1 ORDER BY 1"
    ) == [(_day(days), 100, 50) for days in _DAYS]
    assert store.rows("SELECT DISTINCT limit, toTypeName(limit), plan, per FROM decisions FINAL") == [
        ("rate", "String", "pro", "")
    ]
    assert store.rows("SELECT count() FROM disagreements WHERE kind = 'too_late'") == [(0,)]


def _ttl(store: ClickHouseStore) -> str:
    ((engine,),) = store.rows(
        "SELECT engine_full FROM system.tables WHERE database = currentDatabase() AND name = 'decisions'"
    )
    return str(engine).partition(" TTL ")[2]
