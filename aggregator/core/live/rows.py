"""Changed cells of a shard: what the next INSERT holds, and what the second stage is told.

A cut holds everything of its shard that changed since the last one and the position that it covers; it is never
divided. `live_arrow` makes rows of it. Never writes, and never reads a clock.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from aggregator.core.live.callers import CallerTotals
from aggregator.core.live.shard import CopyKey, CopyMark, PlanKey, Shard
from aggregator.core.live.tables import Bools, Interner
from stream.contract.block import Int64s

#: What one INSERT may hold, so that it becomes one part and is atomic.
MAX_ROWS = 1_000_000


@dataclass(frozen=True, slots=True)
class MinuteCut:
    """What changed in one minute; ids are the shard's, and `copies` names the columns of `reached`.

    `totals` is of the callers whose usage changed, where the second stage is to hear of the minute; else None.
    """

    minute: int
    usage_callers: Int64s
    usage_scopes: Int64s
    usage: Int64s
    told: Int64s
    fleet_cells: Int64s
    fleet: Int64s
    callers: Int64s
    plans: Int64s
    k: Int64s
    reached: Bools
    copies: tuple[str, ...]
    totals: CallerTotals | None


@dataclass(frozen=True, slots=True)
class Cut:
    """What changed in one shard up to `next_offset`; the names are the shard's own and only ever grow.

    `sent` is the version up to which the second stage has been told.
    """

    partition: int
    log_id: str
    base: int
    next_offset: int
    minutes: tuple[MinuteCut, ...]
    copies: tuple[tuple[CopyKey, CopyMark], ...]
    callers: Interner[str]
    scopes: Interner[str]
    plans: Interner[PlanKey]
    fleet_keys: Sequence[int]
    sent: int = 0

    @property
    def version(self) -> int:
        """The version of its rows."""
        return self.base + self.next_offset

    @property
    def rows(self) -> int:
        """How many rows it becomes, its progress row included."""
        of_minutes = sum(m.usage_callers.size + m.fleet_cells.size + m.callers.size for m in self.minutes)
        return of_minutes + len(self.copies) + 1


def cut(shard: Shard, *, told_from: int | None = None, sent: int = 0) -> Cut:
    """Take what changed since the last cut; the shard forgets that it changed.

    Args:
        shard: to take from.
        told_from: the first minute of which the second stage is to hear; None: of none.
        sent: the version up to which it has heard.
    """
    copies = tuple((key, replace(mark)) for key, mark in shard.copies.items() if mark.dirty)
    for key, _ in copies:
        shard.copies[key].dirty = False
    minutes = tuple(
        _cut_minute(shard, number, tell=told_from is not None and number >= told_from)
        for number, minute in shard.minutes.items()
        if minute.dirty
    )
    shard.changed_rows = 0
    shard.cut_offset = shard.next_offset
    return Cut(
        partition=shard.partition,
        log_id=shard.log_id,
        base=shard.base,
        next_offset=shard.next_offset,
        minutes=minutes,
        copies=copies,
        callers=shard.callers,
        scopes=shard.scopes,
        plans=shard.plans,
        fleet_keys=shard.fleet_cells.keys,
        sent=sent,
    )


def _cut_minute(shard: Shard, number: int, *, tell: bool) -> MinuteCut:
    minute = shard.minutes[number]
    rows, cells, usage, told = minute.usage.take_rows()
    fleet_cells, fleet = minute.fleet.take_changed()
    callers, plans, k, reached = minute.callers.take_changed()
    totals = minute.callers.take_totals()
    return MinuteCut(
        minute=number,
        usage_callers=minute.usage.owners[rows],
        usage_scopes=shard.cells.scopes_of(cells),
        usage=usage,
        told=told,
        fleet_cells=fleet_cells,
        fleet=fleet,
        callers=callers,
        plans=plans,
        k=k,
        reached=reached,
        copies=tuple(minute.callers.copies.keys),
        totals=totals if tell and totals.callers.size else None,
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
