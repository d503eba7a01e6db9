"""The settled totals: recounted for closed minutes, and summed for days that are over."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import pyarrow as pa

from aggregator.core.fairness.rows import Rows
from aggregator.core.record.batches import MAX_ROWS
from aggregator.core.settled.counting import FleetCounts, FleetKey, cells_of, fleet_of, minute_column
from aggregator.core.settled.settling import DAY_US, MINUTE_US, MINUTES_PER_DAY
from aggregator.settler.passes.due import Due, Sliced
from aggregator.settler.passes.reading import Part
from aggregator.sql import load_queries
from aggregator.store import ColumnStore
from enforcer.types import Reason, Source

_S_PER_MINUTE = 60


class Totals:
    """A `Taker`: the settled totals by caller, scope and minute, and by what alarms look at."""

    def begin(self, store: ColumnStore, due: Due) -> TotalsTaking:
        """See `Taker.begin`."""
        return TotalsTaking(store, due)


class TotalsTaking:
    """A `Taking` of `Totals`: cells are written slice by slice, the fleet's, which lie in all slices, at the end."""

    def __init__(self, store: ColumnStore, due: Due) -> None:
        self._store = store
        self._due = due
        self._queries = load_queries("aggregator.sql", "settle.sql")
        self._fleet: dict[FleetKey, FleetCounts] = {}

    def take(self, part: Part, rows: Rows) -> None:
        """See `Taking.take`."""
        cells = cells_of(rows)
        stored = self._store.arrow(self._queries["settle_held"].sql, part.parameters)
        insert(self._store, "settled_minutes", cells.table(cells.changed(stored, self._due.version)), self._due)
        for key, counts in fleet_of(rows).items():
            self._fleet[key] = _plus(self._fleet.get(key), counts)

    def end(self) -> None:
        """See `Taking.end`."""
        if not self._fleet:
            return
        held: dict[FleetKey, tuple[int, FleetCounts]] = {}
        reported = set[int]()
        found = self._store.rows(self._queries["settle_held_fleet"].sql, self._due.parameters)
        for minute, scope, policy, code, highest, lowest, *counts in found:
            held[minute, scope, policy, code] = (highest, (counts[0], counts[1], counts[2], counts[3]))
            if lowest < self._due.version:
                reported.add(minute)
        erased_before_us = int(self._store.rows(self._queries["settle_erased_before"].sql)[0][0])
        fresh = {
            key: counts
            for key, counts in self._fleet.items()
            if key[0] * MINUTE_US >= erased_before_us or key[0] not in reported
        }
        insert(self._store, "settled_fleet", _fleet_table(_changed(fresh, held, self._due.version)), self._due)


class DayTotals:
    """The totals of days that are over: sums of the current settled minutes, made after all passes."""

    def __init__(self) -> None:
        self._sums = Sliced(load_queries("aggregator.sql", "settle.sql")["settle_days"].sql)

    def settle(self, store: ColumnStore, day: int, *, since: int, version: int, at_us: int) -> None:
        """Sum a unix day, of the callers any of whose minutes changed at the version `since` or after."""
        low_s = day * MINUTES_PER_DAY * _S_PER_MINUTE
        span = {"low_s": low_s, "high_s": low_s + DAY_US // 1_000_000}
        self._sums.run(store, {**span, "since": since, "version": version, "stored_at_us": at_us})


def insert(store: ColumnStore, table: str, rows: pa.Table, due: Due, *, stored: bool = True) -> None:
    """All rows with their version and, if it is `stored`, the time; in INSERTs of one part each.

    A pass can be repeated, so they need not be atomic together.
    """
    rows = rows.append_column("version", pa.array([due.version], pa.uint64()).take(_zeros(rows)))
    if stored:
        rows = rows.append_column("stored_at", pa.array([due.at_us], pa.timestamp("us", "UTC")).take(_zeros(rows)))
    for start in range(0, rows.num_rows, MAX_ROWS):
        store.insert(table, rows.slice(start, MAX_ROWS))


def _zeros(rows: pa.Table) -> pa.Array:
    return pa.array(bytes(rows.num_rows), pa.uint8()) if rows.num_rows else pa.array([], pa.uint8())


def _plus(one: FleetCounts | None, other: FleetCounts) -> FleetCounts:
    if one is None:
        return other
    return (one[0] + other[0], one[1] + other[1], one[2] + other[2], one[3] + other[3])


def _changed(
    fresh: Mapping[FleetKey, FleetCounts], held: Mapping[FleetKey, tuple[int, FleetCounts]], version: int
) -> Iterator[tuple[FleetKey, FleetCounts]]:
    """What is to be written: what was never counted, or less, and not by a settler that is ahead."""
    for key, counts in sorted(fresh.items()):
        highest, before = held.get(key, (0, (0, 0, 0, 0)))
        if highest <= version and counts != before and counts[0] >= before[0]:
            yield key, counts


def _fleet_table(changed: Iterable[tuple[FleetKey, FleetCounts]]) -> pa.Table:
    rows = list(changed)
    columns = {
        "minute": minute_column([key[0] for key, _ in rows]),
        "scope": pa.array([key[1] for key, _ in rows], pa.string()),
        "policy_version": pa.array([key[2] for key, _ in rows], pa.uint32()),
        "source": pa.array([Source(key[3] >> 4).name.lower() for key, _ in rows], pa.string()),
        "reason": pa.array([Reason(key[3] & 15).name.lower() for key, _ in rows], pa.string()),
    }
    for place, name in enumerate(("offered", "admitted", "cost_offered", "cost_admitted")):
        columns[name] = pa.array([counts[place] for _, counts in rows], pa.uint64())
    return pa.table(columns)
