"""The live totals of one source partition: add one block after the other, each exactly once.

`fold` is a function of (state, block) alone, so any reader that starts from a stored position reaches the same totals.
Never talks to Kafka or ClickHouse, never reads a clock.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from aggregator.core.live_shard import CopyKey, CopyMark, Minute, Shard, cell_key, fleet_key
from aggregator.core.live_tables import COUNT_COLUMNS, NO_PLAN
from enforcer.core.resolution import LIMIT_RATE
from enforcer.types import Reason, Source
from stream.contract.block import DecisionBlock, Int64s, UInt8s, UInt32s

_US_PER_MINUTE = 60_000_000
#: The last minute that ClickHouse's 32-bit DateTime can hold; what lies outside is counted at the edge.
_LAST_MINUTE = (2**32 - 1) // 60 - 1
#: How far ahead of a minute the table is asked which ones it holds: then a new minute costs no question.
_ASKED_MINUTES = 60
_CODES = 256
_ADMITTED, _DEGRADED = COUNT_COLUMNS.index("admitted"), COUNT_COLUMNS.index("degraded")
#: Reasons that have a column; one that this version does not know yet is counted as offered alone.
_COUNTED_REASONS = len(Reason)
_REASONS = 16
_REASON_OF = np.arange(_CODES) & (_REASONS - 1)


def _template() -> Int64s:
    """Which columns one decision of each code counts in, 0 or 1; the cost columns stay 0."""
    template = np.zeros((_CODES, len(COUNT_COLUMNS)), np.int64)
    template[:, 0] = 1
    for code in range(_CODES):
        if _REASON_OF[code] < _COUNTED_REASONS:
            template[code, 1 + _REASON_OF[code]] = 1
        template[code, _DEGRADED] = int(code >> 4 == Source.DEGRADED)
    return template


_TEMPLATE = _template()


class NotLoaded(Exception):
    """A minute or a copy that the block touches is not in memory: load it first, see `missing`."""


@dataclass(frozen=True, slots=True)
class Folded:
    """What one block did: decisions counted, decisions seen before, and seqs missing before it."""

    counted: int
    duplicates: int
    gap: int


def minutes_of(at_us: Int64s) -> Int64s:
    """The unix minute that each decision counts in."""
    return np.clip(at_us // _US_PER_MINUTE, 0, _LAST_MINUTE)


def missing(shard: Shard, block: DecisionBlock) -> tuple[list[int], list[CopyKey]]:
    """Minutes and copies that must be loaded before `fold` may add the block."""
    key = (block.copy_id, block.epoch)
    known = shard.minutes.keys() | shard.blank
    minutes = [number for number in _distinct(minutes_of(block.at_us)) if number not in known]
    return minutes, [] if key in shard.copies else [key]


def ahead_of(minute: int) -> range:
    """The minutes of which to ask whether the table holds them, when this one is met."""
    return range(minute, min(minute + _ASKED_MINUTES, _LAST_MINUTE + 1))


def fold(shard: Shard, block: DecisionBlock, offset: int) -> Folded:
    """Add the block that stands at `offset`, which must be the shard's next.

    A decision whose seq lies below the copy's `next_seq` has been counted before and is left out. A block that starts
    beyond it leaves a gap, which is counted as missing and stays missing even if it is filled later: the raw record,
    which knows each decision by its identity, is the judge of that.

    Raises:
        NotLoaded: `missing` names what has to be loaded first; nothing was changed.
        ValueError: `offset` is not the next one; nothing was changed.
    """
    if offset != shard.next_offset:
        raise ValueError(f"offset is {offset}; allowed: {shard.next_offset}, the next of partition {shard.partition}")
    minutes, copies = missing(shard, block)
    if minutes or copies:
        raise NotLoaded(f"partition {shard.partition}: minutes {minutes}, copies {copies}")
    mark = shard.copies[block.copy_id, block.epoch]
    duplicates = min(max(mark.next_seq - block.first_seq, 0), block.count)
    gap = max(block.first_seq - mark.next_seq, 0)
    if block.count > duplicates:
        _count(shard, block, duplicates)
    _advance(shard, mark, block)
    shard.next_offset = offset + 1
    return Folded(block.count - duplicates, duplicates, gap)


def _distinct(minutes: Int64s) -> list[int]:
    if minutes.size == 0:
        return []
    low, high = int(minutes.min()), int(minutes.max())
    return [low] if low == high else [int(number) for number in np.unique(minutes)]


def _advance(shard: Shard, mark: CopyMark, block: DecisionBlock) -> None:
    before = (mark.next_seq, mark.sealed_at_us)
    mark.next_seq = max(mark.next_seq, block.first_seq + block.count)
    mark.sealed_at_us = max(mark.sealed_at_us, block.sealed_at_us)
    if (mark.next_seq, mark.sealed_at_us) != before and not mark.dirty:
        mark.dirty = True
        shard.changed_rows += 1


@dataclass(frozen=True, slots=True)
class _Bases:
    """A block's bases as the shard numbers them, one entry a basis; `group` is one fixed basis of the same cell."""

    caller: Int64s
    scope: Int64s
    cell: Int64s
    group: Int64s
    plan: Int64s
    k: Int64s
    policy_version: UInt32s


@dataclass(frozen=True, slots=True)
class _Decisions:
    """Decisions of one minute."""

    basis: UInt32s
    code: UInt8s
    cost: UInt32s


def _count(shard: Shard, block: DecisionBlock, skip: int) -> None:
    """Add the decisions from index `skip` on, minute by minute."""
    bases = _number_bases(shard, block)
    minutes = minutes_of(block.at_us[skip:])
    numbers = _distinct(minutes)
    for number in numbers:
        part = slice(None) if len(numbers) == 1 else np.flatnonzero(minutes == number)
        decisions = _Decisions(block.basis[skip:][part], block.code[skip:][part], block.cost[skip:][part])
        minute = shard.minute(number)
        minute.touched_at = shard.next_offset
        shard.changed_rows += _count_usage(minute, bases, decisions)
        shard.changed_rows += _count_fleet(shard, minute, bases, decisions)
        shard.changed_rows += _see_callers(minute, bases, decisions, block.copy_id)


def _number_bases(shard: Shard, block: DecisionBlock) -> _Bases:
    bases = block.bases
    callers = shard.callers.ids_of(bases.callers)[bases.caller]
    scopes = shard.scopes.ids_of(bases.scopes)[bases.scope]
    plans = shard.plans.ids_of([(plan.name, plan.rate_per_s, plan.burst) for plan in bases.plans])[bases.plan]
    # A further limit has figures of its own, which are not what the caller was sold.
    own = np.array([limit == LIMIT_RATE for limit in bases.limits], np.bool_)[bases.limit]
    plans = np.where(own, plans, NO_PLAN)
    cells = shard.cells.ids_of(cell_key(callers, scopes).tolist())
    return _Bases(callers, scopes, cells, shard.first_of(cells), plans, bases.k.astype(np.int64), bases.policy_version)


def _count_usage(minute: Minute, bases: _Bases, decisions: _Decisions) -> int:
    groups, size = bases.group[decisions.basis], bases.group.size
    code = decisions.code
    counts = np.zeros((size, len(COUNT_COLUMNS)), np.int64)
    counts[:, 0] = np.bincount(groups, minlength=size)
    slots = np.bincount(groups * _REASONS + _REASON_OF[code], minlength=size * _REASONS)
    counts[:, 1 : 1 + _COUNTED_REASONS] = slots.reshape(size, _REASONS)[:, :_COUNTED_REASONS]
    degraded = _TEMPLATE[:, _DEGRADED][code].astype(np.bool_)
    if degraded.any():
        counts[:, _DEGRADED] = np.bincount(groups[degraded], minlength=size)
    # Sums of one block stay far below 2^53, so the doubles are exact.
    counts[:, -2] = np.bincount(groups, weights=decisions.cost, minlength=size)
    counts[:, -1] = np.bincount(groups, weights=decisions.cost * _TEMPLATE[:, _ADMITTED][code], minlength=size)
    used = np.flatnonzero(counts[:, 0])
    return minute.usage.add(bases.cell[used], counts[used])


def _count_fleet(shard: Shard, minute: Minute, bases: _Bases, decisions: _Decisions) -> int:
    """Add to (scope, policy version, code): few cells, so they are named by Python and counted by numpy."""
    distinct, place = np.unique((bases.scope << 32) | bases.policy_version.astype(np.int64), return_inverse=True)
    groups = place[decisions.basis] * _CODES + decisions.code
    offered = np.bincount(groups)
    used = np.flatnonzero(offered)
    code = used % _CODES
    versioned = distinct[used // _CODES].tolist()
    keys = [
        fleet_key(pair >> 32, pair & 0xFFFFFFFF, number) for pair, number in zip(versioned, code.tolist(), strict=True)
    ]
    counts = _TEMPLATE[code] * offered[used, None]
    counts[:, -2] = np.bincount(groups, weights=decisions.cost)[used]
    counts[:, -1] = counts[:, -2] * _TEMPLATE[code, _ADMITTED]
    return minute.fleet.add(shard.fleet_cells.ids_of(keys), counts)


def _see_callers(minute: Minute, bases: _Bases, decisions: _Decisions, copy_id: str) -> int:
    used = np.flatnonzero(np.bincount(decisions.basis, minlength=bases.cell.size))
    return minute.callers.see(bases.caller[used], bases.plan[used], bases.k[used], copy_id)
