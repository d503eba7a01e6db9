"""Replays on a real engine: what was rebuilt is what the record says, whatever stood in the tables in use."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from aggregator.config import AggregatorConfig
from aggregator.erasure import erasing
from aggregator.replay import command, rebuild
from aggregator.replay.live import count_live
from aggregator.replay.register import DERIVED, KNOWN, LIVE, RAW
from aggregator.retention.tiers import FOR_GOOD, TIERS
from aggregator.store import StoreUnavailable
from aggregator.store_clickhouse import ClickHouseStore
from tests.integration.aggregator.recording import PARTITIONS, Recording, recording
from tests.integration.aggregator.replaying import LOG, MINUTE_US, NOW_US, record, replay, settled_record, shadow_of
from tests.keeping import KEEP_ALL
from tests.logfill import Fill, send
from tests.services import KafkaService

DAY_US = 86_400_000_000
CURRENT = (
    "SELECT caller, minute, argMax((offered, admitted), (version, stored_at)) FROM settled_minutes "
    "GROUP BY caller, minute, scope ORDER BY ALL"
)


def test_every_table_is_rebuilt_or_known_not_to_follow_from_the_record() -> None:
    """A derived table that no replay rebuilds is one that nobody can check."""
    own = {"disagreements", "redriven", "quarters", "quarter_days", "rolled_quarters"}
    assert set() == {*TIERS, "decisions"} - RAW.keys() - {one.table for one in (*DERIVED, LIVE)} - own
    assert set(KNOWN) <= FOR_GOOD.keys()


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


def test_replay_from_raw_finds_nothing_where_all_is_right(
    store: ClickHouseStore, shadow: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """And changes nothing in use: readers go on as if there were none."""
    before = store.rows("SELECT * FROM settled_minutes ORDER BY ALL")
    assert 20 == len(before)
    assert 0 == replay(shadow, "--compare")
    told = capsys.readouterr()
    assert {"settled_minutes: the same", "settled_fleet: the same", "settled_days: the same"} <= set(
        told.out.splitlines()
    )
    assert "settled 10 minutes" in told.err
    assert before == store.rows("SELECT * FROM settled_minutes ORDER BY ALL")
    assert store.rows(CURRENT) == store.rows(CURRENT.replace("settled_minutes", f"{shadow}.settled_minutes"))


def test_replay_names_what_is_wrong_and_puts_it_right_without_forgetting_what_was_said(
    store: ClickHouseStore, shadow: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A total too high, one that nothing stands behind, one that is missing; what was said then is still on record."""
    right = store.rows(CURRENT)
    one_minute = f"toDateTime({(NOW_US - 15 * MINUTE_US) // 1_000_000}, 'UTC')"
    columns = "caller, minute, scope, version, stored_at, offered, admitted"
    store.command(
        f"INSERT INTO settled_minutes ({columns}) SELECT caller, minute, scope, version, now64(6), 99, 1 "
        f"FROM settled_minutes WHERE caller = 'a' AND minute = {one_minute}"
    )
    store.command(
        f"INSERT INTO settled_minutes ({columns}) SELECT 'phantom', minute, scope, version, now64(6), 7, 7 "
        f"FROM settled_minutes WHERE caller = 'b' AND minute = {one_minute}"
    )
    store.command(f"ALTER TABLE settled_minutes DELETE WHERE caller = 'b' AND minute = {one_minute}")
    rebuild_waits(store, "settled_minutes")
    history = set(store.rows("SELECT * FROM settled_minutes"))

    assert 1 == replay(shadow, "--compare")
    lines = capsys.readouterr().out.splitlines()
    assert "settled_minutes: 3 rows differ" in lines
    assert 1 == sum(line.startswith("  phantom ") and line.endswith("nothing rebuilt") for line in lines)
    assert 1 == sum(line.startswith("  b ") and "nothing in use" in line for line in lines)
    assert 0 == replay(shadow, "--swap"), "a second replay begins anew"

    left = [row for row in store.rows(CURRENT) if row[2] != (0, 0)]
    assert right == left
    assert history <= set(store.rows("SELECT * FROM settled_minutes")), "what was reported is not forgotten"
    assert history == set(store.rows(f"SELECT * FROM {shadow}.settled_minutes")), "what was in use is not lost"
    rebuild.settle(AggregatorConfig.from_env(), LOG, lambda _: None, unix_us=lambda: NOW_US)
    assert right == [row for row in store.rows(CURRENT) if row[2] != (0, 0)], "the settler goes on from there"


class _Slow:
    """A clock by which a quarter of an hour passes between any two looks."""

    looks = 0

    def unix_us(self) -> int:
        _Slow.looks += 1
        return NOW_US + 15 * (_Slow.looks - 1) * MINUTE_US


def test_replay_that_takes_long_loses_no_minute_that_was_just_young_enough(
    database_dsn: str, shadow: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between what is taken over and what is recounted lay the minutes that came of age meanwhile: they became zero."""
    monkeypatch.setenv("TALLYGATE_CLICKHOUSE", database_dsn)
    monkeypatch.setenv("TALLYGATE_SETTLE_DAYS", "1")
    record(database_dsn, NOW_US - DAY_US + 2 * MINUTE_US)
    monkeypatch.setattr(_Slow, "looks", 0)
    monkeypatch.setattr(command, "SystemClock", _Slow)
    with closing(ClickHouseStore.connect(database_dsn)) as handle:
        before = handle.rows(CURRENT)
        assert 20 == len(before)
        assert 0 == replay(shadow, "--swap")
        assert before == handle.rows(CURRENT)


def test_replay_exchanges_nothing_if_something_was_dropped_or_erased_meanwhile(
    store: ClickHouseStore, shadow: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What was erased from the record in use would come back with the rebuilt one."""
    real = rebuild.settle

    def erased_meanwhile(*words: Any, **named: Any) -> int:
        assert erasing.erase(store, "a", requested_by="x", reason="y", progress=lambda _: None)
        return real(*words, **named)

    monkeypatch.setattr(command, "settle", erased_meanwhile)
    assert 1 == replay(shadow, "--swap")
    assert "nothing was exchanged" in capsys.readouterr().err
    assert ["b"] == [caller for (caller,) in store.rows("SELECT DISTINCT caller FROM settled_minutes")]


def test_replay_leaves_the_fleets_totals_as_they_were_before_an_erasure(store: ClickHouseStore, shadow: str) -> None:
    """Raw lacks the erased decisions: totals of all that were counted again would be too low."""
    fleet = "SELECT minute, reason, argMax(offered, (version, stored_at)) FROM settled_fleet GROUP BY ALL ORDER BY ALL"
    before = store.rows(fleet)
    assert erasing.erase(store, "a", requested_by="x", reason="y", progress=lambda _: None)
    store.command("INSERT INTO rolled_quarters (quarter, version, whole) VALUES (toDateTime(900, 'UTC'), 1, true)")
    assert 0 == replay(shadow, "--compare", "--swap")
    assert before == store.rows(fleet)
    assert [] == store.rows("SELECT quarter FROM rolled_quarters"), "pages read minutes until all is rolled up anew"
    assert ["b"] == [caller for (caller,) in store.rows("SELECT DISTINCT caller FROM settled_minutes")]


def rebuild_waits(store: ClickHouseStore, table: str) -> None:
    """Return once a table's mutations are done."""
    sql = "SELECT 1 FROM system.mutations WHERE database = currentDatabase() AND table = {t:String} AND NOT is_done"
    while store.rows(sql, {"t": table}):
        pass


def test_replay_that_was_ended_half_way_begins_anew(
    store: ClickHouseStore, shadow: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing in use was touched, and what lies in the shadow is in nobody's way."""
    before = store.rows("SELECT * FROM settled_minutes ORDER BY ALL")

    def killed(*_: Any, **__: Any) -> None:
        raise StoreUnavailable("killed")

    with monkeypatch.context() as patched:
        patched.setattr(command, "settle", killed)
        assert 3 == replay(shadow, "--swap")
    assert before == store.rows("SELECT * FROM settled_minutes ORDER BY ALL")
    assert 0 == replay(shadow, "--compare")


def test_replay_drops_no_database_but_its_own(
    store: ClickHouseStore, shadow: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A name mistyped must not cost a record."""
    in_use = str(store.rows("SELECT currentDatabase()")[0][0])
    assert 2 == replay(in_use)
    store.command(f"CREATE DATABASE {shadow} ENGINE = Atomic")
    store.command(f"CREATE TABLE {shadow}.decisions (x UInt8) ENGINE = MergeTree ORDER BY x")
    assert 2 == replay(shadow)
    assert [(1,)] == list(store.rows("SELECT count() FROM system.tables WHERE database = {d:String}", {"d": shadow}))
    assert "this database is no replay's" in capsys.readouterr().err


@pytest.fixture
def log(embedded_broker: KafkaService, database_dsn: str, tmp_path: Path) -> Iterator[Recording]:
    """An empty log and an empty record."""
    with recording(embedded_broker.bootstrap, database_dsn, tmp_path) as made:
        yield made


def test_replay_from_the_log_finds_rows_that_were_altered_and_brings_the_true_ones_back(
    log: Recording, shadow: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The log is the witness that nobody who can write to the database can change."""
    monkeypatch.setenv("TALLYGATE_CLICKHOUSE", log.dsn)
    monkeypatch.setenv("TALLYGATE_KAFKA", log.bootstrap)
    monkeypatch.setenv("TALLYGATE_PARTITIONS", str(PARTITIONS))
    for name, days in KEEP_ALL.items():
        monkeypatch.setenv(name, days)
    fill = Fill(decisions=5_000, block=100)
    send(log.bootstrap, fill)
    recorder = log.start()
    log.wait_for(fill.total)
    recorder.stop(timeout_s=60)
    before = log.rows("SELECT * FROM decisions FINAL ORDER BY ALL")
    with closing(ClickHouseStore.connect(log.dsn)) as store:
        store.command("ALTER TABLE decisions UPDATE cost_tokens = cost_tokens + 1 WHERE seq = 7")
        rebuild_waits(store, "decisions")
    altered = sum(row not in before for row in log.rows("SELECT * FROM decisions FINAL WHERE seq = 7"))
    assert altered
    config = AggregatorConfig.from_env()
    with closing(ClickHouseStore.connect(log.dsn)) as store:
        count_live(config, rebuild.journaled(store), lambda _said: None)
        store.command("ALTER TABLE live UPDATE offered = offered + 1 WHERE kind = 'fleet'")
        rebuild_waits(store, "live")
    wrong = len(log.rows("SELECT 1 FROM live FINAL WHERE kind = 'fleet'"))

    assert 1 == replay(shadow, "--compare", source="log")
    lines = capsys.readouterr().out.splitlines()
    assert f"decisions: {altered if altered <= 20 else 'more than 20'} rows differ" in lines
    assert "blocks: the same" in lines
    assert f"live: {wrong if wrong <= 20 else 'more than 20'} rows differ" in lines
    with closing(ClickHouseStore.connect(log.dsn)) as store:
        columns = "topic, log_partition, log_id, next_offset"
        older = f"INSERT INTO recorded ({columns}) VALUES ('tallygate.decisions', 0, {{id:String}}, 9)"
        store.command(older, {"id": "of a topic that was made anew"})
        assert 1 == replay(shadow, "--swap", source="log"), "the log does not hold all of the record"
        assert altered == sum(row not in before for row in log.rows("SELECT * FROM decisions FINAL WHERE seq = 7"))
        store.command("ALTER TABLE recorded DELETE WHERE log_id = 'of a topic that was made anew'")
        rebuild_waits(store, "recorded")
    assert "made anew" in capsys.readouterr().err
    assert 0 == replay(shadow, "--swap", source="log")
    assert before == log.rows("SELECT * FROM decisions FINAL ORDER BY ALL")
    for kind in ("usage", "fleet"):
        counted = "SELECT sum(offered), sum(admitted), sum(cost_admitted)"
        assert log.rows(f"{counted} FROM live FINAL WHERE kind = '{kind}'") == log.rows(
            "SELECT count(), countIf(allowed), sumIf(cost_tokens, allowed) FROM decisions FINAL"
        )
