"""A `live` table in memory with the rule of ReplacingMergeTree: of rows with one key, the highest version stays."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from aggregator.core.live.arrow import rows_table
from aggregator.core.live.load import CallerRow, CopyRow, FleetRow, ProgressRow, UsageRow
from aggregator.core.live.rows import Cut
from aggregator.core.live.shard import CopyKey
from aggregator.store import StoreUnavailable
from stream.contract.usage import USAGE_COUNTS
from tests.live_blocks import SlowTotals

Row = dict[str, Any]
_KEY = ("kind", "caller", "minute", "scope", "policy_version", "code", "copy_id", "epoch", "log_partition")


class MemoryTable:
    """`LiveTable` without a database.

    `failures` is how many of the next calls of `write` find the database away; `failed_writes_land` says whether the
    rows of such a call are stored all the same, which a client cannot know.
    """

    def __init__(self) -> None:
        self._rows: dict[tuple[Any, ...], Row] = {}
        self.failures = 0
        self.failed_writes_land = False
        self.writes = 0
        self.losses: list[tuple[int, int, int, int]] = []
        self.largest_write = 0

    def insert(self, rows: Iterable[Row]) -> None:
        """Store rows; an equal or higher version replaces."""
        for row in rows:
            key = tuple(row[name] for name in _KEY)
            if key not in self._rows or row["version"] >= self._rows[key]["version"]:
                self._rows[key] = row

    def of_kind(self, kind: str, partition: int | None = None) -> list[Row]:
        """The rows of one kind, as FINAL gives them."""
        return [row for row in self._rows.values() if row["kind"] == kind and partition in (None, row["log_partition"])]

    def progress(self, partition: int) -> Sequence[ProgressRow]:
        return [(row["scope"], row["version"], row["next_seq"]) for row in self.of_kind("progress", partition)]

    def minutes(
        self, partition: int, minutes: Sequence[int]
    ) -> tuple[Sequence[UsageRow], Sequence[FleetRow], Sequence[CallerRow]]:
        wanted = set(minutes)
        usage = [
            (row["version"], minute_of(row), row["caller"], row["scope"], counts(row), told(row))
            for row in self.of_kind("usage", partition)
            if minute_of(row) in wanted
        ]
        fleet = [
            (row["version"], minute_of(row), row["scope"], row["policy_version"], row["code"], counts(row))
            for row in self.of_kind("fleet", partition)
            if minute_of(row) in wanted
        ]
        callers = [
            (
                *(row["version"], minute_of(row), row["caller"], row["plan"]),
                *(row["rate_per_s"], row["burst"], row["k_counted"], row["copies"]),
            )
            for row in self.of_kind("caller", partition)
            if minute_of(row) in wanted
        ]
        return usage, fleet, callers

    def stored_minutes(self, partition: int, first: int, last: int) -> Sequence[int]:
        held = {minute_of(row) for row in self.of_kind("fleet", partition)}
        return sorted(minute for minute in held if first <= minute <= last)

    def recent_copies(self, partition: int) -> Sequence[CopyRow]:
        return [_copy_row(row) for row in self.of_kind("copy", partition)]

    def copies(self, partition: int, keys: Sequence[CopyKey]) -> Sequence[CopyRow]:
        return [row for row in self.recent_copies(partition) if (row[1], row[2]) in keys]

    def write(self, cuts: Iterable[Cut]) -> int:
        rows = rows_table(cuts).to_pylist()
        if self.failures > 0:
            self.failures -= 1
            if self.failed_writes_land:
                self.insert(rows)
            raise StoreUnavailable("the table is away")
        self.insert(rows)
        self.writes += 1
        self.largest_write = max(self.largest_write, len(rows))
        return len(rows)

    def write_loss(self, partition: int, first_offset: int, next_offset: int, at_us: int) -> None:
        self.losses.append((partition, first_offset, next_offset, at_us))

    def totals(self) -> SlowTotals:
        """Everything that it says, in the form of `SlowTotals`."""
        return totals_of(self._rows.values())


class GatedTable(MemoryTable):
    """A table whose calls wait, one kind of them each, until the test lets them pass.

    As in a database that is slow at one of them: what the event loop does meanwhile is what the test is about.
    """

    _PATIENCE_S = 20.0

    def __init__(self, *gated: str) -> None:
        super().__init__()
        #: Name of a method → set once calls of it may pass.
        self.gates = {name: threading.Event() for name in gated}
        #: Name of a method → set once a call of it has come.
        self.reached = {name: threading.Event() for name in gated}

    def minutes(
        self, partition: int, minutes: Sequence[int]
    ) -> tuple[Sequence[UsageRow], Sequence[FleetRow], Sequence[CallerRow]]:
        self._pass("minutes")
        return super().minutes(partition, minutes)

    def copies(self, partition: int, keys: Sequence[CopyKey]) -> Sequence[CopyRow]:
        self._pass("copies")
        return super().copies(partition, keys)

    def write(self, cuts: Iterable[Cut]) -> int:
        self._pass("write")
        return super().write(cuts)

    def write_loss(self, partition: int, first_offset: int, next_offset: int, at_us: int) -> None:
        self._pass("write_loss")
        super().write_loss(partition, first_offset, next_offset, at_us)

    def open(self, *names: str) -> None:
        """Let calls of these methods pass from now on."""
        for name in names:
            self.gates[name].set()

    def close(self, *names: str) -> None:
        """Let calls of these methods wait from now on."""
        for name in names:
            self.gates[name].clear()
            self.reached[name].clear()

    def _pass(self, name: str) -> None:
        if name in self.gates:
            self.reached[name].set()
            if not self.gates[name].wait(self._PATIENCE_S):
                raise TimeoutError(f"the test never let {name} pass")


def minute_of(row: Row) -> int:
    """The unix minute of a row."""
    return int(row["minute"].timestamp()) // 60


def told(row: Row) -> list[int]:
    """When and until when the caller of a usage row was told to wait."""
    return [row["told_at_us"], row["told_until_us"]]


def counts(row: Row) -> list[int]:
    """The count columns of a row, in their order."""
    return [row[name] for name in USAGE_COUNTS]


def totals_of(rows: Iterable[Row]) -> SlowTotals:
    """Rows of the `live` table, each key once, in the form of `SlowTotals`."""
    totals = SlowTotals()
    for row in rows:
        partition = row["log_partition"]
        named = Counter({name: row[name] for name in USAGE_COUNTS if row[name]})
        if row["kind"] == "usage":
            totals.usage[partition, minute_of(row), row["caller"], row["scope"]] = named
        elif row["kind"] == "fleet":
            totals.fleet[partition, minute_of(row), row["scope"], row["policy_version"], row["code"]] = named
        elif row["kind"] == "caller":
            totals.copies[partition, minute_of(row), row["caller"]] = set(row["copies"])
            totals.k[partition, minute_of(row), row["caller"]] = row["k_counted"]
        elif row["kind"] == "copy":
            totals.next_seq[partition, row["copy_id"], row["epoch"]] = row["next_seq"]
    return totals


def _copy_row(row: Row) -> CopyRow:
    sealed_at_us = round(row["sealed_at"].timestamp() * 1_000_000)
    return (row["version"], row["copy_id"], row["epoch"], row["next_seq"], sealed_at_us, row["shift_us"])
