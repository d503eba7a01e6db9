"""A `signals` table in memory, and what it must say, reckoned the slow way."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from aggregator.core.live.usage_blocks import CallerUsageRow
from aggregator.core.signals.rows import HOT
from aggregator.core.signals.state import BASE_MINUTES
from aggregator.store import StoreUnavailable
from enforcer.core.anonymous import ANONYMOUS, is_shared
from stream.contract.partition import caller_partition
from stream.contract.usage import USAGE_COUNTS
from tests.live_blocks import SlowTotals
from tests.live_table import MemoryTable, counts, minute_of

_KEY = ("kind", "minute", "caller", "place", "log_partition")
#: (kind, minute, caller, place, partition) -> (name, numbers)
Said = dict[tuple[Any, ...], tuple[str, dict[str, int]]]


def usage_rows(live: MemoryTable, minute: int) -> list[CallerUsageRow]:
    """What `live_untold` and `signals_load` select, of all callers and source partitions."""
    found: dict[tuple[int, str], tuple[int, list[int], int, set[str]]] = {}
    for kind in ("usage", "caller"):
        for row in live.of_kind(kind):
            if minute_of(row) == minute:
                key = (row["log_partition"], row["caller"])
                version, sums, k, copies = found.get(key, (0, [0] * len(USAGE_COUNTS), 0, set()))
                sums = [one + other for one, other in zip(sums, counts(row), strict=True)]
                found[key] = (max(version, row["version"]), sums, max(k, row["k_counted"]), copies | set(row["copies"]))
    return [
        (partition, minute, caller, version, sums, k, sorted(copies))
        for (partition, caller), (version, sums, k, copies) in found.items()
    ]


class MemorySignals:
    """`SignalsTable` without a database, over a `live` table in memory."""

    def __init__(self, live: MemoryTable, *, partitions: int) -> None:
        self._live = live
        self._partitions = partitions
        self._rows: dict[tuple[Any, ...], Mapping[str, Any]] = {}
        self.failures = 0

    def load(self, partition: int, minute: int) -> Sequence[CallerUsageRow]:
        rows = usage_rows(self._live, minute)
        return [row for row in rows if caller_partition(row[2], self._partitions) == partition]

    def write(self, rows: pa.Table) -> None:
        if self.failures > 0:
            self.failures -= 1
            raise StoreUnavailable("the table is away")
        self.insert(rows.to_pylist())

    def insert(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Store rows; an equal or higher version replaces."""
        for row in rows:
            key = tuple(row[name] for name in _KEY)
            if key not in self._rows or row["version"] >= self._rows[key]["version"]:
                self._rows[key] = row

    def said(self) -> Said:
        """Everything that it says, without versions; numbers that are 0 are left out."""
        return {
            (row["kind"], minute_of(dict(row)), row["caller"], row["place"], row["log_partition"]): (
                row["name"],
                {name: value for name, value in row.items() if name not in {*_KEY, "version", "name"} and value != 0},
            )
            for row in self._rows.values()
        }


def expected_signals(totals: SlowTotals, *, partitions: int, floor: int) -> Said:
    """What the table must say of these totals."""
    usage: dict[tuple[int, str], Counter[str]] = defaultdict(Counter)
    copies: dict[tuple[int, str], set[str]] = defaultdict(set)
    k: dict[tuple[int, str], int] = defaultdict(int)
    for (_, minute, caller, _), named in totals.usage.items():
        usage[minute, caller].update(named)
    for (_, minute, caller), reached in totals.copies.items():
        copies[minute, caller] |= reached
        k[minute, caller] = max(k[minute, caller], *(totals.k[key] for key in totals.k if key[1:] == (minute, caller)))
    said: Said = {}
    for (minute, caller), named in usage.items():
        refused = named["offered"] - named["admitted"]
        if refused or named["early_returns"] or named["offered"] >= floor:
            base = [usage[minute - n, caller] for n in range(1, BASE_MINUTES + 1) if (minute - n, caller) in usage]
            numbers = {
                **named,
                "k": len(copies[minute, caller]),
                "k_counted": k[minute, caller],
                "base_minutes": len(base),
                "base_offered": sum(one["offered"] for one in base),
                "base_refused": sum(one["offered"] - one["admitted"] for one in base),
            }
            said["caller", minute, caller, 0, caller_partition(caller, partitions)] = ("", _without_zeros(numbers))
    for place in {(minute, caller_partition(caller, partitions)) for minute, caller in usage}:
        said.update(_of_minute(*place, usage, copies, k, partitions))
    return said


def _of_minute(
    minute: int,
    partition: int,
    usage: Mapping[tuple[int, str], Counter[str]],
    copies: Mapping[tuple[int, str], set[str]],
    k: Mapping[tuple[int, str], int],
    partitions: int,
) -> Said:
    said: Said = {}
    of_minute = {
        caller: named
        for (number, caller), named in usage.items()
        if number == minute and caller_partition(caller, partitions) == partition
    }
    hottest = sorted(of_minute, key=lambda caller: (-of_minute[caller]["offered"], caller))[:HOT]
    for place, caller in enumerate(hottest, start=1):
        numbers = {**of_minute[caller], "k": len(copies[minute, caller]), "k_counted": k[minute, caller]}
        said["hot", minute, "", place, partition] = (caller, _without_zeros(numbers))
    fleet: Counter[str] = Counter()
    for caller, named in of_minute.items():
        refused = named["offered"] - named["admitted"]
        fleet.update(named)
        fleet.update({"callers": 1, "callers_refused": int(refused > 0)})
        if is_shared(caller, ANONYMOUS):
            fleet.update({"anonymous_offered": named["offered"], "anonymous_refused": refused})
    said["fleet", minute, "", 0, partition] = ("", _without_zeros(fleet))
    return said


def _without_zeros(numbers: Mapping[str, int]) -> dict[str, int]:
    return {name: value for name, value in numbers.items() if value}
