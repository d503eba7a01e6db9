"""The settler on the real engine: totals are those of the record, whatever comes late, twice, or is cut off."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
import pytest

from aggregator.settler.passes.due import Due
from aggregator.settler.passes.minutes import MinutesPass
from aggregator.settler.passes.reading import Part
from aggregator.settler.passes.totals import Totals
from aggregator.sql import composed
from aggregator.store import Store, StoreUnavailable
from aggregator.store_clickhouse import ClickHouseStore
from enforcer.types import Reason, Source
from tests.settling import SettlingScene, utc_us


@pytest.fixture
def scene(database_dsn: str) -> Iterator[SettlingScene]:
    made = SettlingScene(database_dsn)
    yield made
    made.close()


class Cut:
    """A store that ends like a killed process in the middle of a round: after so many writes none is done any more."""

    def __init__(self, dsn: str, writes: int) -> None:
        self._store = ClickHouseStore.connect(dsn)
        self.left = writes

    def insert(self, table: str, batch: pa.Table) -> None:
        self._count()
        self._store.insert(table, batch)

    def command(self, sql: str, parameters: Mapping[str, Any] | None = None) -> None:
        self._count()
        self._store.command(sql, parameters)

    def rows(self, sql: str, parameters: Mapping[str, Any] | None = None) -> Any:
        return self._store.rows(sql, parameters)

    def arrow(self, sql: str, parameters: Mapping[str, Any] | None = None) -> pa.Table:
        return self._store.arrow(sql, parameters)

    def close(self) -> None:
        self._store.close()

    def _count(self) -> None:
        if self.left == 0:
            raise StoreUnavailable("killed here")
        self.left -= 1


def test_a_minute_is_settled_once_it_is_closed_and_not_before(scene: SettlingScene) -> None:
    """Blocks of a minute come up to its end and a little after; counted too early, every minute would be revised."""
    scene.flush(*scene.decisions(3, "2026-11-30T10:00:59"), stored_at="2026-11-30T10:01:00")
    settler = scene.settle("2026-11-30T10:01:29")
    assert scene.totals() == {}
    scene.flush(*scene.decisions(2, "2026-11-30T10:00:58"), stored_at="2026-11-30T10:01:01")
    scene.settle("2026-11-30T10:01:30", settler)
    assert scene.totals() == {("acme", "2026-11-30T10:00", "GET /"): (5, 5, 5)}
    assert scene.rows("SELECT count() FROM settled_minutes") == [(1,)]


def test_totals_are_told_apart_by_caller_scope_reason_and_source(scene: SettlingScene) -> None:
    """They are what a customer is shown and billed by."""
    at = "2026-11-30T10:00"
    scene.flush(
        *scene.decisions(4, at, cost=3),
        *scene.decisions(2, at, reason=Reason.SPENT),
        *scene.decisions(1, at, reason=Reason.NEVER, cost=50),
        *scene.decisions(1, at, reason=Reason.EMERGENCY, source=Source.DEGRADED),
        *scene.decisions(1, at, scope="POST /", source=Source.DEGRADED),
        *scene.decisions(1, at, caller="marlow", reason=Reason.CEILING, source=Source.CAP),
        *scene.decisions(1, at, caller="marlow", reason=Reason.CLOSED),
        stored_at=at,
    )
    scene.settle("2026-11-30T10:05")
    columns = (
        "offered, admitted, refused_spent, refused_never, refused_emergency, refused_closed, refused_ceiling, "
        "degraded, cost_offered, cost_admitted"
    )
    assert scene.rows(f"SELECT caller, scope, {columns} FROM settled_minutes ORDER BY caller, scope") == [
        ("acme", "GET /", 8, 4, 2, 1, 1, 0, 0, 1, 65, 12),
        ("acme", "POST /", 1, 1, 0, 0, 0, 0, 0, 1, 1, 1),
        ("marlow", "GET /", 2, 0, 0, 0, 0, 1, 1, 0, 2, 0),
    ]
    assert scene.rows(
        "SELECT scope, toString(source), toString(reason), offered, admitted, cost_admitted FROM settled_fleet "
        "ORDER BY scope, source, reason"
    ) == [
        ("GET /", "local", "none", 4, 4, 12),
        ("GET /", "local", "spent", 2, 0, 0),
        ("GET /", "local", "never", 1, 0, 0),
        ("GET /", "local", "closed", 1, 0, 0),
        ("GET /", "degraded", "emergency", 1, 0, 0),
        ("GET /", "cap", "ceiling", 1, 0, 0),
        ("POST /", "degraded", "none", 1, 1, 1),
    ]


def test_a_row_that_is_stored_twice_counts_once(scene: SettlingScene) -> None:
    """R6: what a summing view gets wrong. The recorder may store a flush again after a crash."""
    rows = scene.decisions(1, "2026-11-30T10:00", cost=10)
    offset = scene.flush(*rows, stored_at="2026-11-30T10:00:01", journal=False)
    scene.store.insert("decisions", scene._table(rows, 0, offset))
    scene.journal(rows, 0, offset, "2026-11-30T10:00:02")
    scene.settle("2026-11-30T10:05")
    assert scene.rows("SELECT sum(cost_tokens) FROM decisions FINAL") == [(10,)]
    assert scene.totals() == {("acme", "2026-11-30T10:00", "GET /"): (1, 1, 10)}


def test_a_minute_that_gets_blocks_while_it_is_recounted_is_recounted_again(scene: SettlingScene) -> None:
    """What a flush adds between the count and the progress must not be forgotten with the minute."""

    class LateFlush:
        done = False

        def settle(self, store: Store, due: Due) -> None:
            if not self.done:
                self.done = True
                scene.flush(*scene.decisions(1, "2026-11-30T10:00:30"), stored_at="2026-11-30T10:05")

    scene.flush(*scene.decisions(3, "2026-11-30T10:00"), stored_at="2026-11-30T10:00")
    settler = scene.settle("2026-11-30T10:05", scene.settler(made=[MinutesPass([Totals()]), LateFlush()]))
    scene.settle("2026-11-30T10:05:10", settler)
    assert scene.totals() == {("acme", "2026-11-30T10:00", "GET /"): (4, 4, 4)}
    assert scene.rows("SELECT minutes FROM settled_progress FINAL") == [([],)]


def test_killed_between_any_two_writes_everything_is_settled_once_by_the_next(scene: SettlingScene) -> None:
    """Minutes, fleet, day, progress: whichever was the last one written, work is repeated and none is skipped."""
    for writes, day in enumerate(range(20, 25)):
        at = f"2026-11-{day}T23:59"
        scene.flush(*scene.decisions(7, at, caller=f"after {writes} writes"), stored_at=at)
        scene.now_us = utc_us(f"2026-11-{day + 1}T00:10")
        killed = scene.settler(store=Cut(scene.dsn, writes))
        if writes < 4:
            with pytest.raises(StoreUnavailable):
                killed.round()
        else:
            killed.round()
        scene.settle(f"2026-11-{day + 1}T00:11")
        assert scene.totals()[f"after {writes} writes", at, "GET /"] == (7, 7, 7)
        assert scene.totals(table="settled_days", unit="day")[f"after {writes} writes", at[:10], "GET /"] == (7, 7, 7)
    for table in ("settled_minutes", "settled_fleet", "settled_days"):
        assert scene.rows(f"SELECT count() FROM {table}") == [(5,)]


def test_two_settlers_and_one_that_wakes_up_late_leave_the_same_totals(scene: SettlingScene) -> None:
    """Only one is needed; a second one, or a frozen one that writes what it once counted, must lose."""
    scene.flush(*scene.decisions(3, "2026-11-30T10:00"), stored_at="2026-11-30T10:00")
    written: list[tuple[str, pa.Table]] = []

    class Frozen(Cut):
        """Counts, and freezes before it writes."""

        def insert(self, table: str, batch: pa.Table) -> None:
            written.append((table, batch))
            raise StoreUnavailable("frozen here")

    scene.now_us = utc_us("2026-11-30T10:02")
    with pytest.raises(StoreUnavailable):
        scene.settler(store=Frozen(scene.dsn, 0)).round()
    first, second = scene.settle("2026-11-30T10:02"), scene.settle("2026-11-30T10:02")
    scene.flush(*scene.decisions(2, "2026-11-30T10:00:20"), stored_at="2026-11-30T10:03")
    scene.settle("2026-11-30T10:04", first)
    scene.settle("2026-11-30T10:04", second)
    assert scene.totals() == {("acme", "2026-11-30T10:00", "GET /"): (5, 5, 5)}
    # The frozen one wakes: its rows carry the position at which it began. They would win if versions were clocks.
    (table, batch) = written[0]
    woken_at = pa.array([utc_us("2026-11-30T10:09")], pa.timestamp("us", "UTC"))
    scene.store.insert(table, batch.drop_columns("stored_at").append_column("stored_at", woken_at))
    assert table == "settled_minutes"
    assert scene.rows("SELECT count() FROM settled_minutes WHERE version = 1") == [(2,)]
    assert scene.totals() == {("acme", "2026-11-30T10:00", "GET /"): (5, 5, 5)}
    assert scene.rows("SELECT max(version) FROM settled_minutes") == [(2,)]


def test_a_backlog_over_a_month_boundary_is_settled_whole_and_in_parts(scene: SettlingScene) -> None:
    """After an outage of the settler there are days to do; each statement stays within one day and one month."""
    for minute, number in (
        ("2026-10-31T23:58", 2),
        ("2026-10-31T23:59", 3),
        ("2026-11-01T00:00", 4),
        ("2026-11-01T00:01", 5),
    ):
        scene.flush(*scene.decisions(number, minute), stored_at=minute)
    scene.settle("2026-11-02T12:00")
    assert sorted(scene.totals().values()) == [(2, 2, 2), (3, 3, 3), (4, 4, 4), (5, 5, 5)]
    assert scene.totals(table="settled_days", unit="day") == {
        ("acme", "2026-10-31", "GET /"): (5, 5, 5),
        ("acme", "2026-11-01", "GET /"): (9, 9, 9),
    }


def test_what_retention_has_taken_is_not_subtracted(scene: SettlingScene) -> None:
    """A late block must not make a settled month shrink to what is left of its raw decisions."""
    scene.limit()
    scene.flush(*scene.decisions(9, "2026-11-01T10:00"), stored_at="2026-11-01T10:00")
    settler = scene.settle("2026-11-02T00:10")
    scene.store.command("TRUNCATE TABLE decisions")
    scene.flush(*scene.decisions(2, "2026-11-01T10:00:30"), stored_at="2026-11-10T10:00")
    scene.settle("2026-11-10T10:00:10", settler)
    assert scene.totals() == {("acme", "2026-11-01T10:00", "GET /"): (9, 9, 9)}
    scene.flush(*scene.decisions(50, "2026-11-01T10:00:40"), stored_at="2026-11-20T10:00")
    scene.settle("2026-11-20T10:00:10", settler)
    assert scene.totals() == {("acme", "2026-11-01T10:00", "GET /"): (9, 9, 9)}
    assert scene.totals(table="settled_days", unit="day") == {("acme", "2026-11-01", "GET /"): (9, 9, 9)}
    assert scene.rows("SELECT toString(kind), toString(minute), caller FROM disagreements FINAL") == [
        ("too_late", "2026-11-01 10:00:00", "")
    ]


def test_nothing_is_recounted_that_retention_may_have_thinned(scene: SettlingScene) -> None:
    """Whoever keeps raw decisions for a week must not have the week before counted from what is left of it."""
    scene.limit()
    scene.flush(*scene.decisions(9, "2026-11-01T10:00"), stored_at="2026-11-08T12:00")
    scene.settle("2026-11-08T12:00", scene.settler(keep_admitted_days="7"))
    assert scene.totals() == {}
    assert scene.rows("SELECT count() FROM disagreements") == [(1,)]


def test_all_is_settled_while_no_retention_was_ever_in_force(scene: SettlingScene) -> None:
    """An upgraded database has months of raw decisions, and its retention waits for their totals."""
    scene.flush(*scene.decisions(9, "2026-02-01T10:00"), stored_at="2026-11-08T12:00")
    scene.flush(*scene.decisions(4, "2025-09-01T10:00"), stored_at="2026-11-08T12:00")
    scene.settle("2026-11-08T12:00")
    assert scene.totals() == {("acme", "2026-02-01T10:00", "GET /"): (9, 9, 9)}
    assert scene.rows("SELECT toString(kind), toString(minute) FROM disagreements") == [
        ("too_late", "2025-09-01 10:00:00")
    ], "totals by minute are kept for 400 days"


def test_minutes_of_a_month_that_was_dropped_keep_their_totals_however_much_comes_late(scene: SettlingScene) -> None:
    """Seventy late decisions are more than the sixty that were dropped, and say nothing of them: 130 it was."""
    scene.flush(*scene.decisions(60, "2026-11-30T10:00"), stored_at="2026-11-30T10:00")
    settler = scene.settle("2026-12-01T00:10")
    scene.store.command("TRUNCATE TABLE decisions")
    scene.store.command("INSERT INTO retention_drops (month, dropped_at) VALUES ('2026-11-01', now64(6))")
    scene.flush(*scene.decisions(70, "2026-11-30T10:00:30"), stored_at="2026-12-01T10:00")
    scene.settle("2026-12-01T10:00:10", settler)
    assert scene.totals() == {("acme", "2026-11-30T10:00", "GET /"): (60, 60, 60)}
    assert scene.rows("SELECT toString(kind), toString(minute) FROM disagreements FINAL") == [
        ("too_late", "2026-11-30 10:00:00")
    ]


def test_totals_of_all_keep_what_an_erased_caller_was_of_them(scene: SettlingScene) -> None:
    """Forty late decisions of another hide that thirty are gone; that caller's own totals are right, and go on."""
    fleet = "SELECT argMax(offered, (version, stored_at)) FROM settled_fleet GROUP BY minute ORDER BY minute"
    both = [*scene.decisions(30, "2026-11-30T10:00"), *scene.decisions(30, "2026-11-30T10:00", caller="gone")]
    scene.flush(*both, stored_at="2026-11-30T10:00")
    settler = scene.settle("2026-11-30T10:05")
    scene.store.command("DELETE FROM decisions WHERE caller = 'gone'")
    before = "toDateTime('2026-11-30 10:06:00', 'UTC')"
    scene.store.command(f"INSERT INTO erasures (erasure_id, erased_before) VALUES (1, {before})")
    scene.flush(*scene.decisions(40, "2026-11-30T10:00:30"), stored_at="2026-11-30T10:07")
    scene.flush(*scene.decisions(5, "2026-11-30T10:04"), stored_at="2026-11-30T10:07")
    scene.settle("2026-11-30T10:08", settler)
    assert scene.rows(fleet) == [(60,), (5,)], "a minute that was not settled yet gets what there is"
    assert scene.totals()["acme", "2026-11-30T10:00", "GET /"] == (70, 70, 70)
    scene.flush(*scene.decisions(2, "2026-11-30T10:06"), stored_at="2026-11-30T10:07")
    settler = scene.settle("2026-11-30T10:20", settler)
    scene.flush(*scene.decisions(3, "2026-11-30T10:06:30"), stored_at="2026-11-30T10:21")
    scene.settle("2026-11-30T10:22", settler)
    assert scene.rows(fleet) == [(60,), (5,), (5,)]


def test_a_recount_reads_only_the_parts_that_hold_its_minute(scene: SettlingScene) -> None:
    """A day of a large fleet has ten billion rows; read whole for each of its minutes, the settler would never end."""
    scene.store.command("SYSTEM STOP MERGES decisions")
    for minute in range(10, 20):
        scene.flush(*scene.decisions(50, f"2026-11-30T10:{minute}"), stored_at="2026-11-30T11:00")
    low = utc_us("2026-11-30T10:12") // 60_000_000
    for source in ("as_stored", "folded"):
        sql = composed("decisions.sql", "decisions", source=source)
        values = Part(low, low + 1).parameters
        plan = "\n".join(str(line) for (line,) in scene.store.rows(f"EXPLAIN indexes = 1 {sql}", values))
        assert re.findall(r"Parts: (\d+)/(\d+)", plan)[0] == ("1", "10")
