"""Rows of the record as columns of numbers: what totals are counted of, what the replay groups into buckets.

Arrow in, numpy out; names become numbers into lists, and rows come into the order of the table. Asks no database.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from aggregator.core.fairness.arranging import BEST
from aggregator.core.fairness.layout import Int32s, Int64s, UInt8s, UInt32s, UInt64s


@dataclass(frozen=True, slots=True)
class NameColumn:
    """A column of names: each name once, and its number wherever it stands."""

    names: list[str]
    numbers: Int32s

    def number_of(self, name: str) -> int:
        """Where a name stands in the list; -1 if it stands nowhere."""
        return self.names.index(name) if name in self.names else -1


@dataclass(frozen=True, slots=True)
class Charges:
    """Further limits that admitted decisions were charged to: one entry a charge, with the row that it is of."""

    row: Int64s
    subject: NameColumn
    limit: NameColumn
    grant_id: UInt64s

    def kept(self, kept: Any) -> Charges:
        """Those of some rows, once only these are left."""
        place = np.cumsum(kept) - 1
        return self._picked(place, kept[self.row])

    def without(self, gone: Any) -> Charges:
        """All but some, of the same rows."""
        return self._picked(np.arange(int(self.row.max(initial=-1)) + 1), ~gone)

    def moved(self, order: Any) -> Charges:
        """The same, once row `order[i]` stands at i."""
        if not len(self.row):
            return self
        place = np.empty(len(order), np.int64)
        place[order] = np.arange(len(order))
        by_row = np.argsort(place[self.row], kind="stable")
        return self._picked(place, by_row)

    def _picked(self, place: Int64s, charges: Any) -> Charges:
        subject, limit = (NameColumn(column.names, column.numbers[charges]) for column in (self.subject, self.limit))
        return Charges(place[self.row[charges]], subject, limit, self.grant_id[charges])


@dataclass(frozen=True, slots=True)
class Rows:
    """Decisions in the order of the table: caller, minute, copy, epoch, seq. All columns are of equal length.

    `repeats`: how many have the key of another; the table has yet to fold them. `charged`: whether it was
    asked which further limits they were charged to, because any decision of these minutes was.
    """

    caller: NameColumn
    limit: NameColumn
    plan: NameColumn
    copy: NameColumn
    scope: NameColumn
    policy_version: UInt32s
    at_us: Int64s
    cost: UInt32s
    code: UInt8s
    retry_after_ms: Int32s
    grant_id: UInt64s
    """The grant that paid for it; 0 if none did."""
    charges: Charges
    repeats: int = 0
    charged: bool = False

    def __len__(self) -> int:
        return len(self.at_us)

    def of_callers(self, callers: frozenset[str]) -> Rows:
        """Only the rows of some callers."""
        wanted = np.array([name in callers for name in self.caller.names], bool)
        return self.only(wanted[self.caller.numbers] if len(wanted) else np.zeros(0, bool))

    def only(self, kept: Any) -> Rows:
        """Only some rows, [rows] of bool."""
        return self._picked(np.flatnonzero(kept), self.charges.kept(kept))

    def without_charges(self, gone: Any) -> Rows:
        """The same rows without some of their charges, [charges] of bool."""
        return replace(self, charges=self.charges.without(gone))

    def _picked(self, places: Any, charges: Charges) -> Rows:
        return Rows(
            _taken(self.caller, places),
            _taken(self.limit, places),
            _taken(self.plan, places),
            _taken(self.copy, places),
            _taken(self.scope, places),
            _take(self.policy_version, places),
            _take(self.at_us, places),
            _take(self.cost, places),
            _take(self.code, places),
            _take(self.retry_after_ms, places),
            _take(self.grant_id, places),
            charges,
            self.repeats,
            self.charged,
        )


def rows_of(found: pa.Table) -> Rows:
    """What the query `decisions` or `decisions_charged` found, in any order."""
    caller, copy, at_us = name_column(found["caller"]), name_column(found["copy_id"]), numbers(found["at_us"], np.int64)
    order, repeats = BEST.arrange(
        caller.names,
        caller.numbers.view(np.uint32),
        copy.names,
        copy.numbers.view(np.uint32),
        at_us=at_us,
        epoch=numbers(found["epoch"], np.uint64),
        seq=numbers(found["seq"], np.uint64),
    )
    rows = Rows(
        caller,
        name_column(found["limit"]),
        name_column(found["plan"]),
        copy,
        name_column(found["scope"]),
        numbers(found["policy_version"], np.uint32),
        at_us,
        numbers(found["cost_tokens"], np.uint32),
        numbers(found["code"], np.uint8),
        numbers(found["retry_after_ms"], np.int32),
        numbers(found["grant_id"], np.uint64),
        _charges(found),
        repeats,
        "charged_subjects" in found.column_names,
    )
    return rows._picked(order, rows.charges.moved(order))


def _taken(column: NameColumn, places: Any) -> NameColumn:
    return (
        column
        if len(column.names) == 1 and len(places) == len(column.numbers)
        else NameColumn(column.names, column.numbers[places])
    )


def _take(column: Any, places: Any) -> Any:
    """Those places of a column; the column itself where all places are taken and all are the same, as often."""
    if len(places) == len(column) and len(column) and bool((column == column[0]).all()):
        return column
    return column[places]


def numbers(column: pa.ChunkedArray, kind: Any) -> Any:
    """A column of numbers without nulls, in its own memory; pyarrow's own way loads pandas, which takes a second."""
    parts = [_numbers(chunk, kind) for chunk in column.chunks]
    return parts[0] if len(parts) == 1 else np.concatenate([np.zeros(0, np.dtype(kind)), *parts])


def _numbers(array: pa.Array, kind: Any) -> Any:
    width = np.dtype(kind)
    if array.type.bit_width != 8 * width.itemsize or array.null_count:
        raise ValueError(f"column is {array.type} with {array.null_count} nulls; allowed: {width} without")
    if not len(array):
        return np.zeros(0, width)
    return np.frombuffer(array.buffers()[1], width, len(array), array.offset * width.itemsize)


def name_column(column: pa.ChunkedArray) -> NameColumn:
    """A column of names, as a dictionary or not."""
    if not pa.types.is_dictionary(column.type):
        column = column.dictionary_encode()
    chunks = [_name_array(chunk) for chunk in column.unify_dictionaries().chunks]
    if len(chunks) == 1:
        return chunks[0]
    return NameColumn(
        chunks[0].names if chunks else [], np.concatenate([np.zeros(0, np.int32), *(one.numbers for one in chunks)])
    )


def _name_array(array: pa.Array) -> NameColumn:
    if not pa.types.is_dictionary(array.type):
        array = array.dictionary_encode()
    names = [
        name if isinstance(name, str) else name.decode("utf-8", "replace") for name in array.dictionary.to_pylist()
    ]
    width = array.indices.type.bit_width // 8
    kind = "i" if pa.types.is_signed_integer(array.indices.type) else "u"
    return NameColumn(names, _numbers(array.indices, f"{kind}{width}").astype(np.int32, copy=False))


def _charges(found: pa.Table) -> Charges:
    if "charged_subjects" not in found.column_names:
        none = NameColumn([], np.zeros(0, np.int32))
        return Charges(np.zeros(0, np.int64), none, none, np.zeros(0, np.uint64))
    columns = (
        found[f"charged_{what}"].unify_dictionaries().combine_chunks() for what in ("subjects", "limits", "grants")
    )
    subjects, limits, grants = columns
    sizes = np.diff(_numbers(subjects.offsets, np.int32)) if len(subjects) else np.zeros(0, np.int32)
    return Charges(
        np.repeat(np.arange(len(sizes)), sizes),
        _name_array(subjects.flatten()),
        _name_array(limits.flatten()),
        _numbers(grants.flatten(), np.uint64),
    )


def runs(*columns: Any) -> Int64s:
    """Where in columns of equal length any of them differs from the row before; the first row always does."""
    length = len(columns[0])
    if not length:
        return np.zeros(0, np.int64)
    new = np.zeros(length, bool)
    new[0] = True
    for column in columns:
        new[1:] |= column[1:] != column[:-1]
    return np.flatnonzero(new)


def translated(names: Sequence[str], into: Sequence[str]) -> Int64s:
    """For each name where it stands in another list; -1 if it stands nowhere."""
    places = {name: place for place, name in enumerate(into)}
    return np.array([places.get(name, -1) for name in names], np.int64)


def names_at(column: NameColumn, places: Int64s) -> Sequence[str]:
    """The names that stand at some places."""
    names = column.names
    return [names[number] for number in column.numbers[places].tolist()]
