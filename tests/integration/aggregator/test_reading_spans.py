"""Every query with FINAL that asks for a span reads the partitions of that span and no other, whatever else is kept."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import closing
from importlib import resources
from typing import Any

import pytest

from aggregator.migrate import migrate
from aggregator.sql import composed, load_queries
from aggregator.store_clickhouse import _HANDLE_SETTINGS, ClickHouseStore
from dashboard.store import Limits

_DAY_S = 86_400
#: Each partitioned table has a row in three months; the middle one is asked for.
_ROWS_S = [int(time.time()) // _DAY_S * _DAY_S - ago * _DAY_S + 43_200 for ago in (120, 80, 40)]
_FROM_S = _ROWS_S[1]
_BEGINS = {"from", "low", "since", "first", "decided_from", "minute"}
_ENDS = {"to", "high", "last", "decided_to"}
_BY_TYPE: dict[str, Any] = {
    "String": "x", "Bool": True, "Array(UInt32)": [_FROM_S // 60], "Array(UInt64)": [1], "Array(String)": ["x"],
    "Array(Tuple(String, UInt64))": [("x", 1)], "Array(Tuple(UInt16, String))": [(1, "x")],
}  # fmt: skip
#: They stand in other queries and are asked for by nobody alone.
_PARTS = {"accounts", "named", "named_by_minutes"}
#: What they ask for has an end but for one part: what is named of an hour's grants, and who stopped.
_WITHOUT_END = {"settle_ledger_kept", "fleet_complete"}
#: The time of a row, by the type of the column.
_TIMES = {"DateTime64": "toDateTime64({s}, 6, 'UTC')", "DateTime(": "toDateTime({s}, 'UTC')", "Date": "toDate({s})"}


def catalogue() -> Iterator[tuple[str, str]]:
    """All queries of aggregator and pages: name and text."""
    for package in ("aggregator.sql", "dashboard.sql"):
        for file in sorted(one.name for one in resources.files(package).iterdir() if one.name.endswith(".sql")):
            for name, query in load_queries(package, file).items():
                if name in _PARTS:
                    continue
                yield name, composed(file, name) if package == "aggregator.sql" else query.sql
    yield "settle_ledger_kept", composed("audit_grants.sql", "settle_ledger", named="named_by_minutes")


def values_of(sql: str) -> dict[str, Any]:
    """A value for each parameter: the middle span where it is a time, else any."""
    found: dict[str, Any] = {}
    for name, kind in re.findall(r"\{(\w+):((?:[^{}()]|\([^{}]*\))+)\}", sql):
        word, _, unit = name.rpartition("_")
        factor = {"us": 1_000_000, "s": 1}.get(unit, 0)
        if name == "every":
            found[name] = 0
        elif word in _BEGINS | _ENDS and factor:
            found[name] = (_FROM_S + (60 if word in _ENDS else 0)) * factor
        else:
            found[name] = _BY_TYPE.get(kind, 1)
    return found


def read_of(store: ClickHouseStore, sql: str) -> list[tuple[str, int]]:
    """Of each reading with FINAL of a table: the parts that it reads, of the three that there are."""
    select = sql[re.search(r"^(WITH|SELECT)\b", sql, re.MULTILINE).start() :]  # type: ignore[union-attr]
    lines = store.rows(f"EXPLAIN indexes = 1 {select}", values_of(sql))
    found: list[tuple[str, int]] = []
    for reading in re.split(r"ReadFromMergeTree \(\w+\.", "\n".join(str(line) for (line,) in lines))[1:]:
        parts = re.findall(r"Parts: (\d+)/\d+", reading)
        found.append((reading.partition(")")[0], int(parts[-1]) if parts else 3))
    return found


def _fill(store: ClickHouseStore, table: str, column: str, kind: str, first: str) -> None:
    """One part a month, with names from first to last, so that only its time tells that it need not be read."""
    at = next((one for begin, one in _TIMES.items() if kind.startswith(begin)), "{s} * 1000000")
    columns, names = (f"{first}, {column}", "name, ") if first in {"caller", "copy_id", "kind"} else (column, "")
    if table == "disagreements":
        columns, names = column, ""
    for second in _ROWS_S:
        store.command(
            f"INSERT INTO {table} ({columns}) "
            f"SELECT {names}{at.format(s=second)} FROM (SELECT arrayJoin(['a', 'zz']) AS name)"
        )


@pytest.fixture
def store(database_dsn: str) -> Iterator[ClickHouseStore]:
    """Three months of every partitioned table."""
    migrate(database_dsn)
    with closing(ClickHouseStore.connect(database_dsn)) as handle:
        keys = dict(handle.rows("SELECT name, sorting_key FROM system.tables WHERE database = currentDatabase()"))
        for table, column, kind in handle.rows(
            "SELECT table, name, type FROM system.columns WHERE database = currentDatabase() AND is_in_partition_key"
        ):
            _fill(handle, str(table), str(column), str(kind), str(keys[table]).partition(",")[0])
        yield handle


def test_queries_with_final_read_the_partitions_of_their_span_only(store: ClickHouseStore) -> None:
    """With FINAL the engine else reads every day that is kept, for each minute that is asked for."""
    known = store.rows(
        "SELECT DISTINCT table FROM system.columns WHERE database = currentDatabase() AND is_in_partition_key"
    )
    partitioned = {str(table) for (table,) in known}
    seen, wrong = 0, []
    for name, sql in catalogue():
        final = set(re.findall(r"FROM (\w+) FINAL", sql)) & partitioned
        words = {value.rpartition("_")[0] for value in values_of(sql)}
        if not final or not words & _BEGINS:
            continue
        seen += 1
        # What is asked for without an end may lie in any later month.
        most = 1 if words & _ENDS and name not in _WITHOUT_END else 2
        read = [(table, parts) for table, parts in read_of(store, sql) if table in final]
        assert read, name
        wrong += [f"{name}: {parts} parts of {table}" for table, parts in read if parts > most]
    assert wrong == []
    assert seen >= 25


def test_rows_of_one_identity_lie_in_one_partition(store: ClickHouseStore) -> None:
    """Only then may partitions be left out before versions are merged.

    Totals of changed costs are partitioned by when they were stated, which is the same wherever a total stands twice.
    """
    apart = store.rows(
        "SELECT table, name FROM system.columns WHERE database = currentDatabase() AND is_in_partition_key "
        "AND NOT is_in_sorting_key AND table NOT IN (SELECT name FROM system.tables WHERE engine = 'MergeTree')"
    )
    assert [("cost_changes", "at")] == apart
    keys = dict(store.rows("SELECT name, sorting_key FROM system.tables WHERE database = currentDatabase()"))
    assert "toStartOfMinute(at)" in str(keys["decisions"])


def test_pages_and_everybody_else_ask_alike() -> None:
    """Pages have handles of their own."""
    assert _HANDLE_SETTINGS.items() <= Limits().settings().items()
