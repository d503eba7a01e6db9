"""The replay without a compiler: the same functions as `_replay.c`, on the same arrays, to the last bit.

Slow, and the easier one to read. `aggregator.core.fairness.replay` chooses; nothing else calls it.
"""

from __future__ import annotations

from itertools import pairwise
from math import ceil
from typing import Any

import numpy as np

from aggregator.core.fairness.layout import (
    CARRIED_LEVELS,
    CARRIED_MARKS,
    END_OF_TIME_US,
    MINUTE_US,
    ROW_COUNTS,
    ROW_LEVELS,
    Arrays,
    Counts,
    Flag,
    Int64s,
    Levels,
    UInt32s,
)
from enforcer.core.sizing import MICRO, refilled, whole_tokens
from enforcer.types import Source

_SECOND_US = 1_000_000
_BUCKETS = (Levels.EXACT, Levels.REAL, Levels.POLICED)


def order(starts: Int64s, at_us: Int64s, order: UInt32s) -> None:
    """Fill `order` with the places of each group's decisions by time, those of one moment as they stand."""
    if len(order) != len(at_us):
        raise ValueError(f"order has {len(order)} places for {len(at_us)} decisions; allowed: as many, below 2**32")
    _check_starts(starts, len(at_us))
    for begin, end in pairwise(starts.tolist()):
        order[begin:end] = begin + np.argsort(at_us[begin:end], kind="stable")


def arrange(*arrays: Any) -> int:
    """Fill the last array with the places of all rows by caller, minute, copy, epoch and seq; how many are repeated."""
    caller, caller_rank, copy, copy_rank, at_us, epoch, seq, order = arrays
    if len({len(column) for column in (caller, copy, at_us, epoch, seq, order)}) > 1 or (
        len(caller) and (caller.max() >= len(caller_rank) or copy.max() >= len(copy_rank))
    ):
        raise ValueError("columns differ in length, or a caller or copy points outside its ranks")
    key = (seq, epoch, copy_rank[copy], at_us // MINUTE_US, caller_rank[caller])
    order[:] = np.lexsort(key)
    same = np.ones(max(0, len(order) - 1), bool)
    for column in key:
        ordered = column[order]
        same &= ordered[1:] == ordered[:-1]
    return int(same.sum())


def _check_starts(starts: Int64s, count: int) -> None:
    if not len(starts) or starts[0] != 0 or starts[-1] != count or bool((starts[1:] < starts[:-1]).any()):
        raise ValueError(f"starts does not rise from 0 to {count}, the number of decisions")


class _Row:
    """One bucket in one minute, on its way to the row that is written of it."""

    def __init__(self, levels: list[float], marks: list[int]) -> None:
        self.level = [*levels, 0.0, 0.0]
        self.count = [*marks, *[0] * (ROW_COUNTS - CARRIED_MARKS)]
        self.minute_end = self.second_end = self.in_second = 0
        self.alone_from = self.alone_to = 0
        self.seen: set[int] = set()
        self.seen_alone: set[int] = set()
        self.full = False

    def open(self, group: int, at: int) -> None:
        minute = at // MINUTE_US
        if 0 <= self.count[Counts.AT] and minute * MINUTE_US >= self.count[Counts.FULL_AT]:
            # Nothing is left of what was: as if it had not been seen before.
            self.count[:CARRIED_MARKS] = [-1] * CARRIED_MARKS
            self.level = [0.0] * ROW_LEVELS
        self.count[CARRIED_MARKS:] = [0] * (ROW_COUNTS - CARRIED_MARKS)
        self.count[Counts.GROUP], self.count[Counts.MINUTE] = group, minute
        self.level[Levels.EXCESS] = 0.0
        self.minute_end, self.second_end, self.in_second = (minute + 1) * MINUTE_US, 0, 0
        self.seen, self.seen_alone, self.full = set(), set(), False

    def close(self) -> None:
        """State what the bound is at the end of the row."""
        level, count, alone = self.level, self.count, len(self.seen_alone)
        if self.full:
            level[Levels.MOST_BURST] = level[Levels.REMAINDERS] = 0.0
            if not alone:
                level[Levels.ALONE] = level[Levels.DRIFT] = 0.0
        rest = max(0, count[Counts.LARGEST_COST] - 1)
        level[Levels.MOST_BURST] = max(level[Levels.MOST_BURST], level[Levels.BURST])
        level[Levels.REMAINDERS] = max(level[Levels.REMAINDERS], float(count[Counts.K]) * float(rest) * MICRO)
        if alone:
            level[Levels.ALONE] = max(level[Levels.ALONE], float(alone) * level[Levels.BURST])
            span = float(self.alone_to - self.alone_from)
            level[Levels.DRIFT] = level[Levels.DRIFT] + float(alone) * (level[Levels.RATE] * span)
        level[Levels.EPSILON] = (
            level[Levels.MOST_BURST] + level[Levels.REMAINDERS] + level[Levels.ALONE] + level[Levels.DRIFT]
        )

        count[Counts.FULL_AT] = self._full_at()

    def _full_at(self) -> int:
        level, count = self.level, self.count
        rate, burst = level[Levels.RATE], level[Levels.BURST]
        lowest = min(level[bucket] for bucket in _BUCKETS)
        at = float(count[Counts.AT]) + ceil((burst - lowest) / rate) + 1.0
        if count[Counts.CHANGED] >= 0:
            at = max(at, float(count[Counts.CHANGED]) + ceil(burst / rate) + 1.0)
        # Never earlier than it was said before, so that the latest row of those that still matter is the latest of all.
        at = max(at, float(count[Counts.RETRY_UNTIL]), float(count[Counts.FULL_AT]))
        return int(min(at, float(END_OF_TIME_US)))

    def enter(self, at: int, rate: float, burst: float) -> None:
        """A bucket not seen before is full; one held to other terms keeps what is left, up to the new burst."""
        level = self.level
        if self.count[Counts.AT] < 0:
            level[Levels.EXACT] = level[Levels.REAL] = level[Levels.POLICED] = burst
            self.count[Counts.AT] = at
        elif rate == level[Levels.RATE] and burst == level[Levels.BURST]:
            return
        else:
            self.count[Counts.CHANGED] = at
            for bucket in _BUCKETS:
                level[bucket] = min(burst, level[bucket])
        level[Levels.RATE], level[Levels.BURST] = rate, burst

    def refill(self, at: int, burst_tokens: int) -> None:
        level = self.level
        if at > self.count[Counts.AT]:
            elapsed = float(at - self.count[Counts.AT])
            self.count[Counts.AT] = at
            for bucket in _BUCKETS:
                level[bucket] = refilled(
                    level[bucket], rate_per_s=level[Levels.RATE], burst=burst_tokens, lent=0.0, elapsed_us=elapsed
                )
        self.full |= level[Levels.REAL] >= level[Levels.BURST]

    def offer(self, at: int, cost: int, copy: int) -> Flag:
        """Count what every request counts as, whatever becomes of it."""
        count = self.count
        if at >= self.second_end:
            self.second_end, self.in_second = (at // _SECOND_US + 1) * _SECOND_US, 0
        self.in_second += 1
        if self.in_second > count[Counts.BUSIEST]:
            count[Counts.BUSIEST], count[Counts.BUSIEST_AT_S] = self.in_second, self.second_end // _SECOND_US - 1
        count[Counts.OFFERED] += 1
        if copy not in self.seen:
            self.seen.add(copy)
            count[Counts.K] += 1
        flags = Flag(0)
        if at < count[Counts.RETRY_UNTIL]:
            flags |= Flag.EARLY
            count[Counts.EARLY_RETURNS] += 1
        if whole_tokens(self.level[Levels.EXACT]) >= cost:
            flags |= Flag.EXACT
            self.level[Levels.EXACT] -= cost * MICRO
        return flags

    def admit(self, at: int, cost: int, copy: int, *, degraded: bool) -> Flag:
        flags, level, count = Flag(0), self.level, self.count
        count[Counts.ADMITTED] += 1
        count[Counts.COST_ADMITTED] += cost
        count[Counts.LARGEST_COST] = max(count[Counts.LARGEST_COST], cost)
        level[Levels.REAL] -= cost * MICRO
        level[Levels.EXCESS] = max(level[Levels.EXCESS], -level[Levels.REAL])
        if whole_tokens(level[Levels.POLICED]) >= cost:
            level[Levels.POLICED] -= cost * MICRO
        else:
            flags |= Flag.OVER_ADMITTED
            count[Counts.OVER_ADMITTED] += 1
        if degraded:
            self.alone_from = self.alone_from if self.seen_alone else at
            self.alone_to = at
            self.seen_alone.add(copy)
        return flags

    def refuse(self, at: int, cost: int, retry_after_ms: int, flags: Flag) -> Flag:
        """Given the flags of a refused request, all that it has."""
        level, count = self.level, self.count
        count[Counts.REFUSED] += 1
        if retry_after_ms > 0:
            count[Counts.RETRY_UNTIL] = max(count[Counts.RETRY_UNTIL], at + retry_after_ms * 1000)
        if not flags & Flag.EXACT:
            return flags
        count[Counts.WRONGFUL] += 1
        flags |= Flag.WRONGFUL
        changed = count[Counts.CHANGED]
        if changed >= 0 and level[Levels.RATE] * float(at - changed) < level[Levels.BURST]:
            flags |= Flag.POLICY
        if whole_tokens(level[Levels.REAL]) < cost:
            count[Counts.DISPLACED] += 1
            flags |= Flag.DISPLACED
        return flags


class _Out:
    """Where rows and refusals are written; refuses to write past its end."""

    def __init__(self, arrays: Arrays) -> None:
        self.levels = arrays.row_levels.reshape(-1, ROW_LEVELS)
        self.counts = arrays.row_counts.reshape(-1, ROW_COUNTS)
        self.arrays = arrays
        self.rows = self.wrongs = 0

    def write(self, row: _Row) -> None:
        if self.rows >= len(self.counts):
            raise ValueError("there are more rows or refusals than places for them")
        row.close()
        self.levels[self.rows], self.counts[self.rows] = row.level, row.count
        self.rows += 1

    def list_wrong(self, place: int, real: float) -> None:
        arrays = self.arrays
        if self.wrongs >= len(arrays.wrong_at):
            raise ValueError("there are more rows or refusals than places for them")
        arrays.wrong_at[self.wrongs], arrays.wrong_row[self.wrongs] = place, self.rows
        arrays.wrong_real[self.wrongs] = real
        self.wrongs += 1


def replay(*given: Any) -> tuple[int, int]:
    """Replay every group of the `Arrays`, given one by one; how many rows and how many refusals were written."""
    arrays = Arrays(*given)
    _check(arrays)
    decisions = (arrays.at_us, arrays.cost, arrays.code, arrays.retry_after_ms, arrays.copy, arrays.terms)
    columns = list(zip(*(column.tolist() for column in decisions), strict=True))
    held = list(zip(arrays.rates.tolist(), arrays.bursts.tolist(), strict=True))
    levels = arrays.carried_levels.reshape(-1, CARRIED_LEVELS).tolist()
    marks = arrays.carried_marks.reshape(-1, CARRIED_MARKS).tolist()
    out = _Out(arrays)
    for group, (begin, end) in enumerate(pairwise(arrays.starts.tolist())):
        row, is_open = _Row(levels[group], marks[group]), False
        for place in arrays.order[begin:end].tolist():
            at = columns[place][0]
            if not is_open or at >= row.minute_end:
                if is_open:
                    out.write(row)
                row.open(group, at)
                is_open = True
            arrays.flags[place] = _decide(row, place, columns[place], held, out)
        if is_open:
            out.write(row)
    return out.rows, out.wrongs


def _check(arrays: Arrays) -> None:
    n = len(arrays.at_us)
    for column in (arrays.order, arrays.cost, arrays.code, arrays.retry_after_ms, arrays.copy, arrays.terms):
        if len(column) != n:
            raise ValueError(f"a column has {len(column)} items; allowed: {n}, one a decision")
    _check_starts(arrays.starts, n)
    for index, end in ((arrays.order, n), (arrays.terms, len(arrays.rates)), (arrays.copy, len(arrays.seen) // 2)):
        if n and int(index.max()) >= end:
            raise ValueError("order, terms or copy points outside")


def _decide(row: _Row, place: int, decided: tuple[int, ...], held: list[tuple[float, float]], out: _Out) -> Flag:
    at, cost, code, retry_after_ms, copy, terms = decided
    rate, burst = held[terms]
    row.enter(at, rate, burst)
    row.refill(at, round(burst / MICRO))
    flags = row.offer(at, cost, copy)
    if code & 15 == 0:
        return flags | row.admit(at, cost, copy, degraded=code >> 4 == Source.DEGRADED)
    flags = row.refuse(at, cost, retry_after_ms, flags)
    if flags & Flag.WRONGFUL and not flags & Flag.DISPLACED:
        out.list_wrong(place, row.level[Levels.REAL])
    return flags
