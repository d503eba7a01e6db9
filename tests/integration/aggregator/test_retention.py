"""Retention on a real engine: TTLs applied once, days that lose what they should, and a month that goes alone."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta

import pytest

from aggregator.core.record.batches import PlacedBlock, decision_batches
from aggregator.core.record.blocks import block_batches
from aggregator.core.record.facts import conflict_batches
from aggregator.migrate import migrate
from aggregator.retention import command
from aggregator.retention.apply import apply, ttls
from aggregator.retention.kept import kept
from aggregator.retention.tiers import Keep
from aggregator.store_clickhouse import ClickHouseStore
from tests.processes import wait_until
from tests.recordblocks import MIDNIGHT_US, SPENT, Made, at, make_block

LOG = logging.getLogger("test")
DAY_US = 86_400_000_000


@pytest.fixture
def store(database_dsn: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[ClickHouseStore]:
    """A database with all tables, named by the environment as for a command."""
    migrate(database_dsn)
    monkeypatch.setenv("TALLYGATE_CLICKHOUSE", database_dsn)
    with closing(ClickHouseStore.connect(database_dsn)) as handle:
        yield handle


def _record(store: ClickHouseStore, days_ago: int, *, first_seq: int, conflict: bool = False) -> None:
    """Three admitted decisions and two refused ones of a day."""
    midnight_us = int(datetime.now(UTC).timestamp()) * 1_000_000 // DAY_US * DAY_US - days_ago * DAY_US
    codes = (0, SPENT, 0, SPENT, 0)
    block = make_block([Made(at_us=midnight_us + n, code=code) for n, code in enumerate(codes)], first_seq=first_seq,
                       sealed_at_us=midnight_us + 9)  # fmt: skip
    placed: list[PlacedBlock] = [at(block, first_seq)]
    for batch in (*decision_batches(placed), *block_batches(placed), *(conflict_batches(placed) if conflict else ())):
        store.insert(batch.table, batch.stamped(MIDNIGHT_US))


def _days(store: ClickHouseStore) -> dict[int, tuple[int, int]]:
    """Days ago → admitted, refused."""
    rows = store.rows(
        "SELECT dateDiff('day', toDate(at), toDate(now('UTC'))), countIf(allowed), countIf(NOT allowed) "
        "FROM decisions GROUP BY 1"
    )
    return {int(day): (int(admitted), int(refused)) for day, admitted, refused in rows}


def test_apply_brings_tables_to_the_settings_once(store: ClickHouseStore) -> None:
    """Every start of a recorder applies it: where nothing differs, nothing may be altered."""
    tables = {one.table for one in apply(store, Keep(), recounted_days=13).changed}
    assert {"decisions", "grants", "blocks", "live"} <= tables
    assert [] == apply(store, Keep(), recounted_days=13).changed
    assert [] == [one for one in ttls(store, Keep()) if one.differs], "the engine shows what we wrote"
    assert ["decisions"] == [one.table for one in apply(store, Keep(admitted_days=15), recounted_days=13).changed]
    assert [(14,), (15,)] == store.rows("SELECT admitted_days FROM retention FINAL ORDER BY applied_at")


def test_each_tier_goes_when_it_is_due_and_no_day_before(store: ClickHouseStore) -> None:
    """Dropped a day early is evidence lost; and rows that were there before the TTL must go as well."""
    for number, days_ago in enumerate((0, 14, 15, 90, 91)):
        _record(store, days_ago, first_seq=number * 5)
    apply(store, Keep(), recounted_days=13, unsettled_too=True)
    due = {0: (3, 2), 14: (3, 2), 15: (0, 2), 90: (0, 2)}
    wait_until(lambda: _days(store) == due, 120, what="rows that are past their time to be gone", poll_s=0.5)
    found = kept(store)
    today_us = int(datetime.now(UTC).timestamp()) * 1_000_000 // DAY_US * DAY_US
    assert (today_us - 14 * DAY_US, today_us - 90 * DAY_US) == (found.admitted_from_us, found.refused_from_us)


def test_month_that_is_dropped_touches_nothing_else(store: ClickHouseStore, capsys: pytest.CaptureFixture[str]) -> None:
    """Every part of another month stays as it is, to the byte; blocks stay, so that the chain can still be followed."""
    before_month = datetime.now(UTC).replace(day=1) - timedelta(days=1)
    days = (before_month.day, before_month.day + datetime.now(UTC).day)
    _record(store, 0, first_seq=0, conflict=True)
    _record(store, datetime.now(UTC).day, first_seq=5)
    _record(store, sum(days), first_seq=10)
    month = f"{before_month:%Y-%m}"
    whole = _parts(store)

    assert 0 == command.main(["drop", "--month", month])
    assert _parts(store) == whole, "without --yes nothing goes"
    assert "nothing was dropped" in capsys.readouterr().out
    assert 0 == command.main(["drop", "--month", month, "--yes"])

    gone = {part for part in whole if part[0] == "decisions" and str(part[1]).startswith(f"{before_month:%Y%m}")}
    assert 1 == len(gone)
    assert whole - gone == {part for part in _parts(store) if part[0] != "retention_drops"}
    dropped = kept(store).dropped
    assert [before_month.month] == [datetime.fromtimestamp(start / 1e6, UTC).month for start, _ in dropped]
    assert 0 == command.main(["drop", "--month", month, "--yes"]), "a repetition finds nothing to do"
    assert 1 == command.main(["drop", "--month", f"{datetime.now(UTC):%Y-%m}", "--yes"])
    assert "is not over" in capsys.readouterr().err


def test_show_says_what_is_kept_and_what_it_takes(store: ClickHouseStore, capsys: pytest.CaptureFixture[str]) -> None:
    """The first question of an operator whose disk fills."""
    _record(store, 0, first_seq=0)
    assert 0 == command.main(["show"])
    before = capsys.readouterr().out
    assert 0 == command.main(["apply"])
    capsys.readouterr()
    assert 0 == command.main(["show"])
    after = capsys.readouterr().out
    assert "run `tallygate retention apply`" in before
    assert "run `tallygate retention apply`" not in after
    assert "decisions: 5 rows" in after
    assert re.search(r"^decisions +toDate\(at\) \+ toIntervalDay\(15\) WHERE allowed", after, re.MULTILINE)


def _parts(store: ClickHouseStore) -> set[tuple[object, ...]]:
    rows = store.rows(
        "SELECT table, partition_id, name, hash_of_all_files FROM system.parts "
        "WHERE database = currentDatabase() AND active AND rows > 0 AND table NOT IN ('migrations')"
    )
    return set(rows)
