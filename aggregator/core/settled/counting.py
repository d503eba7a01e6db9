"""The settled totals of decisions: by caller, minute and scope, by what alarms look at, and by the grant that paid.

Counts columns of numbers, names only at the end. Which totals are written is decided by what is stored already: a
recount may only raise a cell. Asks no database.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa

from aggregator.core.fairness.layout import MINUTE_US, Int64s
from aggregator.core.fairness.rows import NameColumn, Rows, name_column, numbers, runs, translated
from enforcer.types import Reason, Source

#: The counts of a cell, as columns of `settled_minutes`.
COUNTS: Final = (
    "offered", "admitted", "refused_spent", "refused_never", "refused_emergency", "refused_closed", "refused_ceiling",
    "degraded", "cost_offered", "cost_admitted",
)  # fmt: skip
_REFUSALS: Final = (Reason.SPENT, Reason.NEVER, Reason.EMERGENCY, Reason.CLOSED, Reason.CEILING)
_CODES: Final = 64
#: What a double holds exactly.
_EXACT: Final = 1 << 53
#: Places that are counted into for each decision, before they are looked for by sorting instead; and in any case.
_PLACES, _FEW_PLACES = 4, 1 << 20

#: (minute, scope, policy version, code of source and reason) -> offered, admitted, cost_offered, cost_admitted.
FleetKey: TypeAlias = tuple[int, str, int, int]
FleetCounts: TypeAlias = tuple[int, int, int, int]


@dataclass(frozen=True, slots=True)
class Cells:
    """Totals by caller, minute and scope: columns of equal length, one entry a cell with decisions.

    `counts` is [cells, `COUNTS`]; `place` orders and finds them.
    """

    caller: NameColumn
    minute: Int64s
    scope: NameColumn
    counts: Int64s
    place: Int64s

    def changed(self, stored: pa.Table, version: int) -> Any:
        """Which cells are to be written at a version, [cells] of bool, given what the query `settle_held` found."""
        held, held_version = np.zeros_like(self.counts), np.zeros(len(self.counts), np.uint64)
        if stored.num_rows:
            places = self._places_of(stored)
            at = np.minimum(np.searchsorted(self.place, places), len(self.place) - 1)
            known = self.place[at] == places
            held_version[at[known]] = numbers(stored["held_version"], np.uint64)[known]
            for number, name in enumerate(COUNTS):
                held[at[known], number] = numbers(stored[name], np.uint64).astype(np.int64)[known]
        differ = (self.counts != held).any(axis=1)
        return differ & (self.counts[:, 0] >= held[:, 0]) & (held_version <= np.uint64(version))

    def table(self, kept: Any) -> pa.Table:
        """Those cells as rows of `settled_minutes`, without version and time."""
        columns = {
            "caller": _dictionary(self.caller, kept),
            "minute": minute_column(self.minute[kept]),
            "scope": _dictionary(self.scope, kept),
        }
        counts = {name: pa.array(self.counts[kept, number].astype(np.uint64)) for number, name in enumerate(COUNTS)}
        return pa.table({**columns, **counts})

    def _places_of(self, stored: pa.Table) -> Int64s:
        caller, scope = name_column(stored["caller"]), name_column(stored["scope"])
        caller_no = translated(caller.names, self.caller.names)[caller.numbers]
        scope_no = translated(scope.names, self.scope.names)[scope.numbers]
        minute = numbers(stored["unix_minute"], np.uint32).astype(np.int64) - self._low
        place = (caller_no * self._minutes + minute) * len(self.scope.names) + scope_no
        inside = (caller_no >= 0) & (scope_no >= 0) & (minute >= 0) & (minute < self._minutes)
        return np.where(inside, place, -1)

    @property
    def _low(self) -> int:
        return int(self.minute.min())

    @property
    def _minutes(self) -> int:
        return int(self.minute.max()) - self._low + 1


def cells_of(rows: Rows) -> Cells:
    """The cells of at least one decision."""
    minute = rows.at_us // MINUTE_US
    low, minutes, scopes = int(minute.min()), int(np.ptp(minute)) + 1, len(rows.scope.names)
    place = rows.caller.numbers.astype(np.int64)
    if minutes > 1:
        place = place * minutes + (minute - low)
    place = place * scopes + rows.scope.numbers
    counter = _Counter(place, len(rows.caller.names) * minutes * scopes)
    counts = np.zeros((len(counter.found), len(COUNTS)), np.int64)
    counts[:, 0] = counter.count()
    present = np.flatnonzero(np.bincount(rows.code, minlength=_CODES))
    for number, reason in enumerate(_REFUSALS, start=2):
        if reason in present & 15:
            counts[:, number] = counter.count(rows.code & 15 == reason)
    counts[:, 1] = counts[:, 0] - counts[:, 2:7].sum(axis=1)
    if Source.DEGRADED in present >> 4:
        counts[:, 7] = counter.count(rows.code >> 4 == Source.DEGRADED)
    counts[:, 8] = counter.sums(rows.cost)
    refused = rows.code & 15 != 0
    counts[:, 9] = counts[:, 8] - counter.sums(rows.cost, refused) if refused.any() else counts[:, 8]
    caller, rest = np.divmod(counter.found, minutes * scopes)
    at, scope = np.divmod(rest, scopes)
    return Cells(
        NameColumn(rows.caller.names, caller.astype(np.int32)), at + low,
        NameColumn(rows.scope.names, scope.astype(np.int32)), counts, counter.found,
    )  # fmt: skip


def fleet_of(rows: Rows) -> dict[FleetKey, FleetCounts]:
    """The same decisions by minute, scope, policy version and code."""
    minute = rows.at_us // MINUTE_US
    low, scopes = int(minute.min()), len(rows.scope.names)
    versions, version_no = _distinct(rows.policy_version)
    place = (((minute - low) * len(versions) + version_no) * scopes + rows.scope.numbers) * _CODES + rows.code
    counter = _Counter(place, (int(np.ptp(minute)) + 1) * len(versions) * scopes * _CODES)
    offered, cost = counter.count().tolist(), counter.sums(rows.cost).tolist()
    fleet: dict[FleetKey, FleetCounts] = {}
    for where, number, tokens in zip(counter.found.tolist(), offered, cost, strict=True):
        rest, code = divmod(where, _CODES)
        rest, scope = divmod(rest, scopes)
        at, version = divmod(rest, len(versions))
        admitted = code & 15 == Reason.NONE
        fleet[low + at, rows.scope.names[scope], int(versions[version]), code] = (
            number, number * admitted, tokens, tokens * admitted,
        )  # fmt: skip
    return fleet


def spent_of(rows: Rows) -> pa.Table:
    """What the admitted decisions took of the grants that they name: caller, limit, grant_id, minute and spent."""
    paid = np.flatnonzero((rows.code & 15 == 0) & (rows.cost > 0) & (rows.grant_id > 0))
    caller, limit, grant = rows.caller.numbers[paid], rows.limit.numbers[paid], rows.grant_id[paid]
    minute, cost = rows.at_us[paid] // MINUTE_US, rows.cost[paid].astype(np.uint64)
    heads = runs(caller, limit, minute, grant)
    spent = np.add.reduceat(cost, heads) if len(heads) else cost
    caller, limit, minute, grant = caller[heads], limit[heads], minute[heads], grant[heads]
    order = np.lexsort((grant, minute, limit, caller))
    caller, limit, minute, grant = caller[order], limit[order], minute[order], grant[order]
    heads = runs(caller, limit, minute, grant)
    return _spent(
        NameColumn(rows.caller.names, caller[heads]), NameColumn(rows.limit.names, limit[heads]), grant[heads],
        minute[heads], np.add.reduceat(spent[order], heads) if len(heads) else spent,
    )  # fmt: skip


def charged_of(rows: Rows, unknown: Sequence[str]) -> pa.Table:
    """The same of the further limits that they were charged to, but those of the subjects that an erasure made unknown.

    One row a charge.
    """
    charges = rows.charges
    made_unknown = np.isin(charges.subject.numbers, translated(unknown, charges.subject.names))
    paid = (rows.code[charges.row] & 15 == 0) & (rows.cost[charges.row] > 0) & (charges.grant_id > 0) & ~made_unknown
    row = charges.row[paid]
    return _spent(
        NameColumn(charges.subject.names, charges.subject.numbers[paid]),
        NameColumn(charges.limit.names, charges.limit.numbers[paid]), charges.grant_id[paid],
        rows.at_us[row] // MINUTE_US, rows.cost[row].astype(np.uint64),
    )  # fmt: skip


def summed(parts: Sequence[pa.Table]) -> pa.Table:
    """What all of these say was spent, one row a grant and minute."""
    plain = [
        part.set_column(0, "caller", part["caller"].cast(pa.string())).set_column(
            1, "limit", part["limit"].cast(pa.string())
        )
        for part in parts
    ]
    keys = ["caller", "limit", "grant_id", "minute"]
    sums = pa.concat_tables(plain).group_by(keys).aggregate([("spent", "sum")])
    return sums.select([*keys, "spent_sum"]).rename_columns([*keys, "spent"])


def minute_column(minutes: Any) -> pa.Array:
    """Unix minutes as a column of UTC times."""
    return pa.array(np.asarray(minutes, np.int64) * 60, pa.int64()).cast(pa.timestamp("s", "UTC"))


class _Counter:
    """Counts decisions by the place each has; `found` are the places that any has, ascending."""

    def __init__(self, place: Int64s, places: int) -> None:
        self._place, self._places = place, places
        if places <= max(_PLACES * len(place), _FEW_PLACES):
            self._offered = np.bincount(place, minlength=places)
            self.found = np.flatnonzero(self._offered)
            self._offered = self._offered[self.found]
            return
        self.found, self._place, self._offered = np.unique(place, return_inverse=True, return_counts=True)
        self._places = len(self.found)

    def count(self, of: Any = None) -> Int64s:
        """How many, of all or of some."""
        return self._offered if of is None else self._at_found(np.bincount(self._place[of], minlength=self._places))

    def sums(self, of: Any, only: Any = None) -> Int64s:
        """Sums of a column of unsigned 32 bits, exact."""
        if int(of.min()) == int(of.max()):
            return self.count(only) * int(of[0])
        place, of = (self._place, of) if only is None else (self._place[only], of[only])
        if int(of.max(initial=0)) * len(of) < _EXACT:
            return self._at_found(np.bincount(place, of, self._places).astype(np.int64))
        low, high = (np.bincount(place, part, self._places).astype(np.int64) for part in (of & 0xFFFF, of >> 16))
        return self._at_found(low + (high << 16))

    def _at_found(self, counts: Int64s) -> Int64s:
        return counts if len(counts) == len(self.found) else counts[self.found]


def _distinct(column: Any) -> tuple[Any, Any]:
    """The values of a column, and which of them each is."""
    if bool((column == column[0]).all()):
        return column[:1], 0
    return np.unique(column, return_inverse=True)


def _dictionary(column: NameColumn, kept: Any) -> pa.DictionaryArray:
    return pa.DictionaryArray.from_arrays(pa.array(column.numbers[kept]), pa.array(column.names, pa.string()))


def _spent(caller: NameColumn, limit: NameColumn, grant: Any, minute: Int64s, spent: Any) -> pa.Table:
    every = slice(None)
    return pa.table(
        {
            "caller": _dictionary(caller, every),
            "limit": _dictionary(limit, every),
            "grant_id": pa.array(grant),
            "minute": minute_column(minute),
            "spent": pa.array(spent),
        }
    )
