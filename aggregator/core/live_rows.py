"""Changed cells as rows of the `live` table: cut them from a shard, then make one Arrow table of them.

A cut holds everything of its shard that changed since the last one and the position that it covers; it is never
divided. Never writes, and never reads a clock.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from aggregator.core.live_shard import CopyKey, Minute, PlanKey, Shard, split_cell, split_fleet
from aggregator.core.live_tables import COUNT_COLUMNS, NO_PLAN, Bools, Interner
from stream.contract.block import Int64s

#: What one INSERT may hold, so that it becomes one part and is atomic.
MAX_ROWS = 1_000_000

KINDS = ("usage", "caller", "fleet", "copy", "progress")
_USAGE, _CALLER, _FLEET, _COPY, _PROGRESS = range(len(KINDS))
_NOT_TOLD: PlanKey = ("", 0.0, 0)
_SECONDS_PER_MINUTE = 60


@dataclass(frozen=True, slots=True)
class MinuteCut:
    """What changed in one minute; ids are the shard's, and `copies` names the columns of `reached`."""

    minute: int
    usage_cells: Int64s
    usage: Int64s
    fleet_cells: Int64s
    fleet: Int64s
    callers: Int64s
    plans: Int64s
    k: Int64s
    reached: Bools
    copies: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Cut:
    """What changed in one shard up to `next_offset`; the name lists are the shard's own and only ever grow."""

    partition: int
    log_id: str
    base: int
    next_offset: int
    minutes: tuple[MinuteCut, ...]
    copies: tuple[tuple[CopyKey, int, int], ...]
    caller_names: Sequence[str]
    scope_names: Sequence[str]
    plan_names: Sequence[PlanKey]
    cell_keys: Sequence[int]
    fleet_keys: Sequence[int]

    @property
    def rows(self) -> int:
        """How many rows it becomes, its progress row included."""
        of_minutes = sum(m.usage_cells.size + m.fleet_cells.size + m.callers.size for m in self.minutes)
        return of_minutes + len(self.copies) + 1


def cut(shard: Shard) -> Cut:
    """Take what changed since the last cut; the shard forgets that it changed."""
    copies = tuple((key, mark.next_seq, mark.sealed_at_us) for key, mark in shard.copies.items() if mark.dirty)
    for key, _, _ in copies:
        shard.copies[key].dirty = False
    minutes = tuple(_cut_minute(number, minute) for number, minute in shard.minutes.items())
    shard.changed_rows = 0
    shard.cut_offset = shard.next_offset
    return Cut(
        partition=shard.partition,
        log_id=shard.log_id,
        base=shard.base,
        next_offset=shard.next_offset,
        minutes=minutes,
        copies=copies,
        caller_names=shard.callers.keys,
        scope_names=shard.scopes.keys,
        plan_names=shard.plans.keys,
        cell_keys=shard.cells.keys,
        fleet_keys=shard.fleet_cells.keys,
    )


def _cut_minute(number: int, minute: Minute) -> MinuteCut:
    callers, plans, k, reached = minute.callers.take_changed()
    return MinuteCut(
        number,
        *minute.usage.take_changed(),
        *minute.fleet.take_changed(),
        callers,
        plans,
        k,
        reached,
        tuple(minute.callers.copies.keys),
    )


def group_cuts(cuts: Iterable[Cut]) -> list[list[Cut]]:
    """Cuts in groups of at most MAX_ROWS rows, each one whole: one group is one INSERT.

    A cut is not divided, because the first half would state totals beyond the progress that is stored, which nobody
    could take back. That no cut is larger is the writer's duty (`Shard.changed_rows`).

    Raises:
        ValueError: one cut alone is larger.
    """
    groups: list[list[Cut]] = []
    room = 0
    for one in cuts:
        if one.rows > MAX_ROWS:
            raise ValueError(f"partition {one.partition} has {one.rows:,} changed rows; allowed: {MAX_ROWS:,}")
        if one.rows > room:
            groups.append([])
            room = MAX_ROWS
        groups[-1].append(one)
        room -= one.rows
    return groups


def rows_table(cuts: Iterable[Cut]) -> pa.Table:
    """All rows of these cuts, their progress rows included, as one Arrow table with the columns of `live`."""
    columns = _Columns()
    for one in cuts:
        for minute in one.minutes:
            columns.add_usage(one, minute)
            columns.add_callers(one, minute)
            columns.add_fleet(one, minute)
        columns.add_copies(one)
        columns.add_progress(one)
    return columns.table()


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
    **dict.fromkeys(COUNT_COLUMNS, pa.uint64()),
    "plan": pa.int32(),
    "rate_per_s": pa.float64(),
    "burst": pa.uint64(),
    "k_counted": pa.uint32(),
    "next_seq": pa.uint64(),
    "sealed_at": pa.timestamp("us", "UTC"),
}
_NAMED = ("caller", "scope", "copy_id", "plan")


class _Columns:
    """Rows in the making: numbers as arrays, names as indices into the table's own dictionary."""

    def __init__(self) -> None:
        self._parts: dict[str, list[npt.NDArray[Any]]] = {name: [] for name in _NUMBERS}
        self._names: Interner[str] = Interner()
        self._none = self._names.id_of("")
        self._reached: list[Int64s] = []
        self._reached_per_row: list[Int64s] = []

    def add_usage(self, one: Cut, minute: MinuteCut) -> None:
        keys = np.array([one.cell_keys[cell] for cell in minute.usage_cells.tolist()], np.int64)
        callers, scopes = split_cell(keys)
        self._add(
            _USAGE,
            one,
            keys.size,
            minute=minute.minute,
            caller=self._renamed(callers, one.caller_names),
            scope=self._renamed(scopes, one.scope_names),
            **_counts(minute.usage),
        )

    def add_callers(self, one: Cut, minute: MinuteCut) -> None:
        plans = [one.plan_names[plan] if plan != NO_PLAN else _NOT_TOLD for plan in minute.plans.tolist()]
        columns = np.array([self._names.id_of(name) for name in minute.copies], np.int64)
        self._reached.append(columns[np.nonzero(minute.reached)[1]])
        self._add(
            _CALLER,
            one,
            minute.callers.size,
            minute=minute.minute,
            caller=self._renamed(minute.callers, one.caller_names),
            reached=minute.reached.sum(axis=1),
            plan=np.array([self._names.id_of(name) for name, _, _ in plans], np.int64),
            rate_per_s=np.array([rate for _, rate, _ in plans], np.float64),
            burst=np.array([burst for _, _, burst in plans], np.uint64),
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
            scope=self._renamed(scopes, one.scope_names),
            policy_version=versions,
            code=codes,
            **_counts(minute.fleet),
        )

    def add_copies(self, one: Cut) -> None:
        self._add(
            _COPY,
            one,
            len(one.copies),
            copy_id=np.array([self._names.id_of(copy_id) for (copy_id, _), _, _ in one.copies], np.int64),
            epoch=np.array([epoch for (_, epoch), _, _ in one.copies], np.uint64),
            next_seq=np.array([next_seq for _, next_seq, _ in one.copies], np.uint64),
            sealed_at=np.array([sealed_at for _, _, sealed_at in one.copies], np.int64),
        )

    def add_progress(self, one: Cut) -> None:
        """The progress row: its scope is the log's identity, its next_seq the version at which that log began."""
        self._add(_PROGRESS, one, 1, scope=self._names.id_of(one.log_id), next_seq=one.base)

    def _add(self, kind: int, one: Cut, size: int, **columns: npt.NDArray[Any] | int) -> None:
        fixed = {"kind": kind, "log_partition": one.partition, "version": one.base + one.next_offset}
        given = {**dict.fromkeys(_NAMED, self._none), **fixed, **columns}
        reached = given.pop("reached", 0)
        given["minute"] = int(columns.get("minute", 0)) * _SECONDS_PER_MINUTE
        for name, parts in self._parts.items():
            parts.append(np.broadcast_to(np.asarray(given.get(name, 0)), size))
        self._reached_per_row.append(np.broadcast_to(np.asarray(reached, np.int64), size))

    def _renamed(self, ids: Int64s, names: Sequence[str]) -> Int64s:
        """The same names as numbers of this table."""
        distinct, place = np.unique(ids, return_inverse=True)
        return self._names.ids_of([names[number] for number in distinct.tolist()])[place]

    def table(self) -> pa.Table:
        names = pa.array(self._names.keys, pa.string())
        arrays: dict[str, pa.Array] = {}
        for name, parts in self._parts.items():
            kind = _NUMBERS[name]
            wide = np.float64 if pa.types.is_floating(kind) else np.uint64 if pa.types.is_uint64(kind) else np.int64
            numbers = np.concatenate([part.astype(wide) for part in parts])
            arrays[name] = _array(numbers, kind, names if name in _NAMED else None)
        arrays["kind"] = pa.DictionaryArray.from_arrays(arrays["kind"], pa.array(KINDS))
        offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(np.concatenate(self._reached_per_row))])
        reached = np.concatenate(self._reached) if self._reached else np.zeros(0, np.int64)
        arrays["copies"] = pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), names.take(pa.array(reached)))
        return pa.table(arrays)


def _array(numbers: npt.NDArray[Any], kind: pa.DataType, names: pa.Array | None) -> pa.Array:
    if names is not None:
        return pa.DictionaryArray.from_arrays(pa.array(numbers.astype(np.int32)), names)
    if pa.types.is_timestamp(kind):
        return pa.array(numbers, pa.int64()).cast(kind)
    return pa.array(numbers, kind)


def _counts(totals: Int64s) -> dict[str, npt.NDArray[Any] | int]:
    return {name: totals[:, column] for column, name in enumerate(COUNT_COLUMNS)}
