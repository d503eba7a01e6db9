"""A cut as rows of the `live` table: one Arrow table with the columns of `live`, names as dictionaries.

Never writes, and never reads a clock.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from aggregator.core.live.callers import NO_PLAN
from aggregator.core.live.rows import Cut, MinuteCut
from aggregator.core.live.shard import PlanKey, split_fleet
from aggregator.core.live.tables import Interner, names_interner
from stream.contract.block import Int64s
from stream.contract.usage import USAGE_COUNTS

KINDS = ("usage", "caller", "fleet", "copy", "progress")
_USAGE, _CALLER, _FLEET, _COPY, _PROGRESS = range(len(KINDS))
_NOT_TOLD: PlanKey = ("", 0.0, 0)
_SECONDS_PER_MINUTE = 60
#: Names in memory, over all shards, at which they are forgotten and collected anew.
_MOST_NAMES = 2_000_000
#: A dictionary that is at least this much larger than what is used of it is cut down to that.
_LOOSE = 4
_SHORT = 2**32

_NUMBERS: dict[str, pa.DataType] = {
    "kind": pa.int8(),
    "caller": pa.int32(),
    "minute": pa.timestamp("s", "UTC"),
    "scope": pa.int32(),
    "policy_version": pa.uint32(),
    "code": pa.uint8(),
    "copy_id": pa.int32(),
    "epoch": pa.uint64(),
    "log_partition": pa.uint16(),
    "version": pa.uint64(),
    **dict.fromkeys(USAGE_COUNTS, pa.uint64()),
    "told_at_us": pa.uint64(),
    "told_until_us": pa.uint64(),
    "plan": pa.int32(),
    "rate_per_s": pa.float64(),
    "burst": pa.uint64(),
    "k_counted": pa.uint32(),
    "next_seq": pa.uint64(),
    "sealed_at": pa.timestamp("us", "UTC"),
    "shift_us": pa.int64(),
    "sent": pa.uint64(),
}
_NAMED = ("caller", "scope", "copy_id", "plan")
_MAY_BE_ABSENT = frozenset({*USAGE_COUNTS, "told_at_us", "told_until_us", "shift_us", "sent"})


class RowNames:
    """Callers' names for as many tables as are made, each numbered once.

    A shard's own numbers are translated by an array that is kept for the shard's interner, so that a flush touches no
    name that was written before. For one thread.
    """

    def __init__(self) -> None:
        self._names = names_interner()
        self._array = pa.array([], pa.string())
        self._ours: dict[int, tuple[Interner[str], Int64s]] = {}
        self._forget()

    def rename(self, ids: Int64s, names: Interner[str]) -> Int64s:
        """What the shard calls by these ids, as numbers of `dictionary`."""
        kept, ours = self._ours.get(id(names), (None, np.zeros(0, np.int64)))
        if kept is not names:
            ours = np.zeros(0, np.int64)
        count = len(names)
        if ours.size < count:
            fresh = self._names.ids_of(names.keys[ours.size : count])
            ours = np.concatenate([ours, fresh])
            self._ours[id(names)] = (names, ours)
        return ours[ids]

    def dictionary(self) -> pa.Array:
        """All names by number; the first is empty."""
        if len(self._array) < len(self._names):
            fresh = pa.array(self._names.keys[len(self._array) :], pa.string())
            self._array = pa.concat_arrays([self._array, fresh])
        return self._array

    def trim(self, alive: Iterable[Interner[str]]) -> None:
        """Forget the shards that are gone, and everything once it has become too much."""
        held = {id(names) for names in alive}
        gone = [key for key in self._ours if key not in held]
        if len(self._names) > _MOST_NAMES:
            self._forget()
        elif len(gone) > len(held):
            for key in gone:
                del self._ours[key]

    def _forget(self) -> None:
        self._names = names_interner()
        self._names.id_of("")
        self._array = pa.array([], pa.string())
        self._ours.clear()


def rows_table(cuts: Iterable[Cut], names: RowNames | None = None, *, lean: bool = False) -> pa.Table:
    """All rows of these cuts, their progress rows included, as one Arrow table with the columns of `live`.

    Args:
        cuts: whole ones.
        names: kept from table to table by whoever makes many.
        lean: leave out columns that hold nothing but zeros, which is what the database puts there.
    """
    names = RowNames() if names is None else names
    cuts = list(cuts)
    columns = _Columns(names)
    for one in cuts:
        for minute in one.minutes:
            columns.add_usage(one, minute)
            columns.add_callers(one, minute)
            columns.add_fleet(one, minute)
        columns.add_copies(one)
        columns.add_progress(one)
    table = columns.table(lean=lean)
    names.trim(one.callers for one in cuts)
    return table


class _Columns:
    """Rows in the making: numbers as arrays, names as indices into a dictionary of callers and one of all else."""

    def __init__(self, callers: RowNames) -> None:
        self._parts: dict[str, list[npt.NDArray[Any] | int]] = {name: [] for name in _NUMBERS}
        self._sizes: list[int] = []
        self._callers = callers
        self._names: Interner[str] = Interner()
        self._none = self._names.id_of("")
        self._reached: list[Int64s] = []
        self._reached_per_row: list[Int64s] = []

    def add_usage(self, one: Cut, minute: MinuteCut) -> None:
        self._add(
            _USAGE,
            one,
            minute.usage_callers.size,
            minute=minute.minute,
            caller=self._callers.rename(minute.usage_callers, one.callers),
            scope=self._renamed(minute.usage_scopes, one.scopes),
            told_at_us=minute.told[:, 0],
            told_until_us=minute.told[:, 1],
            **_counts(minute.usage),
        )

    def add_callers(self, one: Cut, minute: MinuteCut) -> None:
        plans, place = np.unique(minute.plans, return_inverse=True)
        known = [one.plans.keys[plan] if plan != NO_PLAN else _NOT_TOLD for plan in plans.tolist()]
        columns = np.array([self._names.id_of(name) for name in minute.copies], np.int64)
        self._reached.append(columns[np.nonzero(minute.reached)[1]])
        self._add(
            _CALLER,
            one,
            minute.callers.size,
            minute=minute.minute,
            caller=self._callers.rename(minute.callers, one.callers),
            reached=minute.reached.sum(axis=1),
            plan=np.array([self._names.id_of(name) for name, _, _ in known], np.int64)[place],
            rate_per_s=np.array([rate for _, rate, _ in known], np.float64)[place],
            burst=np.array([burst for _, _, burst in known], np.uint64)[place],
            k_counted=minute.k,
        )

    def add_fleet(self, one: Cut, minute: MinuteCut) -> None:
        keys = [split_fleet(one.fleet_keys[cell]) for cell in minute.fleet_cells.tolist()]
        scopes, versions, codes = np.array(keys, np.int64).reshape(-1, 3).T
        self._add(
            _FLEET,
            one,
            len(keys),
            minute=minute.minute,
            scope=self._renamed(scopes, one.scopes),
            policy_version=versions,
            code=codes,
            **_counts(minute.fleet),
        )

    def add_copies(self, one: Cut) -> None:
        marks = [mark for _, mark in one.copies]
        self._add(
            _COPY,
            one,
            len(one.copies),
            copy_id=np.array([self._names.id_of(copy_id) for (copy_id, _), _ in one.copies], np.int64),
            epoch=np.array([epoch for (_, epoch), _ in one.copies], np.uint64),
            next_seq=np.array([mark.next_seq for mark in marks], np.uint64),
            sealed_at=np.array([mark.sealed_at_us for mark in marks], np.int64),
            shift_us=np.array([mark.shift_us for mark in marks], np.int64),
        )

    def add_progress(self, one: Cut) -> None:
        """The progress row: its scope is the log's identity, its next_seq the version at which that log began."""
        self._add(_PROGRESS, one, 1, scope=self._names.id_of(one.log_id), next_seq=one.base, sent=one.sent)

    def _add(self, kind: int, one: Cut, size: int, **columns: npt.NDArray[Any] | int) -> None:
        fixed = {"kind": kind, "log_partition": one.partition, "version": one.version}
        given = {**dict.fromkeys(_NAMED, self._none), **fixed, **columns}
        reached = given.pop("reached", 0)
        given["minute"] = int(columns.get("minute", 0)) * _SECONDS_PER_MINUTE
        self._sizes.append(size)
        for name, parts in self._parts.items():
            parts.append(given.get(name, 0))
        self._reached_per_row.append(np.broadcast_to(np.asarray(reached, np.int64), size))

    def _renamed(self, ids: Int64s, names: Interner[str]) -> Int64s:
        """The same names as numbers of this table; they are few."""
        if ids.size == 0:
            return ids
        seen = np.zeros(int(ids.max()) + 1, np.int64)
        seen[ids] = 1
        distinct = np.flatnonzero(seen)
        seen[distinct] = self._names.ids_of([names.keys[number] for number in distinct.tolist()])
        return seen[ids]

    def table(self, *, lean: bool) -> pa.Table:
        names = pa.array(self._names.keys, pa.string())
        arrays: dict[str, pa.Array] = {}
        for name, parts in self._parts.items():
            kind = _NUMBERS[name]
            numbers = self._column(parts, kind)
            if lean and name in _MAY_BE_ABSENT and not numbers.any():
                continue
            if name == "caller":
                arrays[name] = _named(numbers, self._callers.dictionary())
            else:
                arrays[name] = _array(numbers, kind, names if name in _NAMED else None)
        arrays["kind"] = pa.DictionaryArray.from_arrays(arrays["kind"], pa.array(KINDS))
        offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(np.concatenate(self._reached_per_row))])
        reached = np.concatenate(self._reached) if self._reached else np.zeros(0, np.int64)
        arrays["copies"] = pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), names.take(pa.array(reached)))
        return pa.table(arrays)

    def _column(self, parts: list[npt.NDArray[Any] | int], kind: pa.DataType) -> npt.NDArray[Any]:
        wide: type[np.generic] = np.int64
        if pa.types.is_floating(kind):
            wide = np.float64
        elif pa.types.is_uint64(kind):
            wide = np.uint64
        column = np.empty(sum(self._sizes), wide)
        at = 0
        for size, part in zip(self._sizes, parts, strict=True):
            column[at : at + size] = part
            at += size
        return column


def _named(numbers: Int64s, names: pa.Array) -> pa.Array:
    """Callers as a dictionary that is not much larger than what is used of it."""
    used = np.zeros(len(names), np.bool_)
    used[numbers] = True
    # An empty name is the first of every dictionary.
    used[0] = True
    places = np.flatnonzero(used)
    if _LOOSE * places.size >= len(names):
        return pa.DictionaryArray.from_arrays(pa.array(numbers.astype(np.int32)), names)
    place_of = np.zeros(len(names), np.int32)
    place_of[places] = np.arange(places.size, dtype=np.int32)
    return pa.DictionaryArray.from_arrays(pa.array(place_of[numbers]), names.take(pa.array(places)))


def _array(numbers: npt.NDArray[Any], kind: pa.DataType, names: pa.Array | None) -> pa.Array:
    if names is not None:
        return pa.DictionaryArray.from_arrays(pa.array(numbers.astype(np.int32)), names)
    if pa.types.is_timestamp(kind):
        return pa.array(numbers, pa.int64()).cast(kind)
    if pa.types.is_uint64(kind) and numbers.max(initial=0) < _SHORT:
        # Half the bytes on the way; the database widens them.
        return pa.array(numbers.astype(np.uint32))
    return pa.array(numbers, kind)


def _counts(totals: Int64s) -> dict[str, npt.NDArray[Any] | int]:
    return {name: totals[:, column] for column, name in enumerate(USAGE_COUNTS)}
