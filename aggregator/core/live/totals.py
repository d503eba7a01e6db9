"""The live totals of one source partition: add one block after the other, each exactly once.

`fold` is a function of (state, block) alone, so any reader that starts from a stored position reaches the same totals.
Never talks to Kafka or ClickHouse, never reads a clock.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from aggregator.core.live.callers import NO_PLAN
from aggregator.core.live.shard import VERSION_BITS, CopyKey, CopyMark, Minute, Shard, fleet_keys
from aggregator.core.live.tables import Rows
from aggregator.core.live.tally import (
    ADMITTED,
    BEST,
    CODES,
    COST_ADMITTED,
    COST_OFFERED,
    EARLY,
    FLEET_COUNTS,
    TEMPLATE,
    Decided,
    Held,
    Places,
)
from enforcer.core.resolution import LIMIT_RATE
from stream.contract.block import DecisionBlock, Int64s, UInt32s

_US_PER_MINUTE = 60_000_000
#: The last minute that ClickHouse's 32-bit DateTime can hold; what lies outside is counted at the edge.
_LAST_MINUTE = (2**32 - 1) // 60 - 1
#: How far ahead of a minute the table is asked which ones it holds: then a new minute costs no question.
_ASKED_MINUTES = 60


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
    minutes = [number for number in _minutes(block.at_us) if number not in shard.minutes and number not in shard.blank]
    return minutes, [] if key in shard.copies else [key]


def ahead_of(minute: int) -> range:
    """The minutes of which to ask whether the table holds them, when this one is met."""
    return range(minute, min(minute + _ASKED_MINUTES, _LAST_MINUTE + 1))


def fold(shard: Shard, block: DecisionBlock, offset: int, *, shift_us: int = 0) -> Folded:
    """Add the block that stands at `offset`, which must be the shard's next.

    `shift_us` is what was added to its times to make up for the copy's clock.

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
    mark.shift_us = shift_us
    shard.next_offset = offset + 1
    return Folded(block.count - duplicates, duplicates, gap)


def _minutes(at_us: Int64s) -> list[int]:
    """The distinct minutes of these times."""
    if at_us.size == 0:
        return []
    first, last = minutes_of(np.array([at_us.min(), at_us.max()], np.int64)).tolist()
    return [first] if first == last else np.unique(minutes_of(at_us)).tolist()


def _advance(shard: Shard, mark: CopyMark, block: DecisionBlock) -> None:
    before = (mark.next_seq, mark.sealed_at_us)
    mark.next_seq = max(mark.next_seq, block.first_seq + block.count)
    mark.sealed_at_us = max(mark.sealed_at_us, block.sealed_at_us)
    if (mark.next_seq, mark.sealed_at_us) != before and not mark.dirty:
        mark.dirty = True
        shard.changed_rows += 1


@dataclass(frozen=True, slots=True)
class _Bases:
    """A block's bases as the shard numbers them, one entry a basis."""

    caller: Int64s
    scope: Int64s
    cell: Int64s
    plan: Int64s
    k: Int64s
    policy_version: UInt32s


def _count(shard: Shard, block: DecisionBlock, skip: int) -> None:
    """Add the decisions from index `skip` on, minute by minute."""
    bases = _number_bases(shard, block)
    decided = Decided(block.basis, block.code, block.cost, block.at_us, block.retry_after_ms)
    if skip:
        decided = decided.part(slice(skip, None))
    numbers = _minutes(decided.at_us)
    minutes = None if len(numbers) == 1 else minutes_of(decided.at_us)
    for number in numbers:
        part = decided if minutes is None else decided.part(minutes == number)
        minute = shard.minute(number)
        minute.touched_at = shard.next_offset
        shard.changed_rows += _count_decided(shard, minute, bases, part, block.copy_id)


def _number_bases(shard: Shard, block: DecisionBlock) -> _Bases:
    bases = block.bases
    callers = shard.callers.ids_of(bases.callers)[bases.caller]
    scopes = shard.scopes.ids_of(bases.scopes)[bases.scope]
    plans = shard.plans.ids_of([(plan.name, plan.rate_per_s, plan.burst) for plan in bases.plans])[bases.plan]
    # A further limit has figures of its own, which are not what the caller was sold.
    own = np.array([limit == LIMIT_RATE for limit in bases.limits], np.bool_)
    if not own.all():
        plans = np.where(own[bases.limit], plans, NO_PLAN)
    cells = shard.cells.ids_of(callers, scopes)
    return _Bases(callers, scopes, cells, plans, bases.k.astype(np.int64), bases.policy_version)


def _count_decided(shard: Shard, minute: Minute, bases: _Bases, decided: Decided, copy_id: str) -> int:
    """Add to the cells of (caller, scope), to their callers, and to the fleet's; returns what is to be written more."""
    used = np.flatnonzero(np.bincount(decided.basis, minlength=bases.cell.size))
    rows = minute.usage.rows_of(bases.cell[used], bases.caller[used])
    callers = minute.callers.rows_of(bases.caller[used])
    pairs, place = _distinct_pairs(bases.scope, bases.policy_version)
    codes = np.flatnonzero(np.bincount(decided.code, minlength=CODES))
    slot = np.zeros(CODES, np.int64)
    slot[codes] = np.arange(codes.size)
    places = Places(_spread(rows, used, bases), _spread(callers, used, bases), place * codes.size, slot)
    fleet = np.zeros((pairs.size * codes.size, FLEET_COUNTS), np.int64)
    changed = BEST(decided, places, Held(*minute.usage.held, minute.callers.counts, minute.callers.counted, fleet))
    changed += _count_fleet(shard, minute, pairs, codes, fleet)
    return changed + minute.callers.see(callers, bases.plan[used], bases.k[used], copy_id)


def _spread(rows: Rows, used: Int64s, bases: _Bases) -> Rows:
    """By basis: its row, -1 where it is not used."""
    spread = np.full(bases.cell.size, -1, np.intp)
    spread[used] = rows
    return spread


def _count_fleet(shard: Shard, minute: Minute, pairs: Int64s, codes: Int64s, fleet: Int64s) -> int:
    """Add to (scope, policy version, code), which are few."""
    used = np.flatnonzero(fleet[:, 0])
    offered, early, cost = fleet[used].T
    code = codes[used % codes.size]
    counts = TEMPLATE[code] * offered[:, None]
    counts[:, EARLY] = early
    counts[:, COST_OFFERED] = cost
    counts[:, COST_ADMITTED] = cost * TEMPLATE[code, ADMITTED]
    keys = fleet_keys(pairs[used // codes.size], code)
    return minute.fleet.add(shard.fleet_cells.ids_of(keys.tolist()), counts)


def _distinct_pairs(scopes: Int64s, versions: UInt32s) -> tuple[Int64s, Int64s]:
    """Distinct ``scope << 32 | version`` in order, and which of them each entry is."""
    first = int(versions[0])
    if (versions != first).any():
        return np.unique((scopes << VERSION_BITS) | versions.astype(np.int64), return_inverse=True)
    # One version, as nearly always: the scopes are few numbers, and need no sorting.
    seen = np.zeros(int(scopes.max()) + 1, np.int64)
    seen[scopes] = 1
    distinct = np.flatnonzero(seen)
    seen[distinct] = np.arange(distinct.size)
    return (distinct << VERSION_BITS) | first, seen[scopes]
