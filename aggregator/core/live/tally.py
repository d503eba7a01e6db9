"""Decisions of one minute, added to the minute's totals: by a pass in C, or by numpy where there was no compiler.

Both do the same, and change only the arrays that they are given to change. An early return is a decision whose caller
had been told, in the same scope and minute, not to come back yet: see `early_returns`. Pure.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np

from aggregator.core.live.returns import early_returns
from aggregator.core.live.tables import Bools, Rows
from enforcer.types import Reason, Source
from stream.contract.block import Int32s, Int64s, UInt8s, UInt32s
from stream.contract.usage import USAGE_COUNTS

CODES: Final = 256
#: What is counted of each place of the fleet: decisions, early returns, cost.
FLEET_COUNTS: Final = 3
#: Reasons that have a column; one that this version does not know yet is counted as offered alone.
_COUNTED_REASONS: Final = len(Reason)
ADMITTED: Final = USAGE_COUNTS.index("admitted")
DEGRADED: Final = USAGE_COUNTS.index("degraded")
EARLY: Final = USAGE_COUNTS.index("early_returns")
COST_OFFERED: Final = USAGE_COUNTS.index("cost_offered")
COST_ADMITTED: Final = USAGE_COUNTS.index("cost_admitted")
_PLACES: Final = (DEGRADED, EARLY, COST_OFFERED, COST_ADMITTED)
_IS_ADMITTED, _IS_DEGRADED = 1, 2


def _column_of(code: int) -> int:
    reason = code & 15
    return ADMITTED + reason if reason < _COUNTED_REASONS else 0


def _marks_of(code: int) -> int:
    return _IS_ADMITTED * (_column_of(code) == ADMITTED) + _IS_DEGRADED * (code >> 4 == Source.DEGRADED)


#: The column of each code's reason; 0: it has none.
_COLUMN: Final = np.array([_column_of(code) for code in range(CODES)], np.uint8)
_MARKS: Final = np.array([_marks_of(code) for code in range(CODES)], np.uint8)


def _template() -> Int64s:
    """Which columns one decision of each code counts in, 0 or 1; the cost columns stay 0."""
    template = np.zeros((CODES, len(USAGE_COUNTS)), np.int64)
    template[:, 0] = 1
    has_column = np.flatnonzero(_COLUMN)
    template[has_column, _COLUMN[has_column]] = 1
    template[:, DEGRADED] = (_MARKS & _IS_DEGRADED) != 0
    return template


TEMPLATE: Final = _template()


@dataclass(frozen=True, slots=True)
class Decided:
    """Decisions of one minute; `basis` points into the lines of `Places`."""

    basis: UInt32s
    code: UInt8s
    cost: UInt32s
    at_us: Int64s
    retry_after_ms: Int32s

    def part(self, which: Bools | slice) -> Decided:
        """Some of them."""
        return Decided(
            self.basis[which], self.code[which], self.cost[which], self.at_us[which], self.retry_after_ms[which]
        )


@dataclass(frozen=True, slots=True)
class Places:
    """Where the decisions of each basis count.

    Attributes:
        row: by basis, its row in the usage totals; -1 if it has no decision.
        caller: by basis, its caller's row in the callers' totals; -1 likewise.
        fleet: by basis, its first place in the fleet's counts.
        slot: by code, which of the places from there on.
    """

    row: Rows
    caller: Rows
    fleet: Int64s
    slot: Int64s


@dataclass(frozen=True, slots=True)
class Held:
    """What is added to, all of it changed in place.

    Attributes:
        counts: rows x USAGE_COUNTS.
        told: rows x (when, until), what the caller was told last; zeros if nothing.
        dirty: by row.
        callers: callers' rows x USAGE_COUNTS.
        counted: by callers' row.
        fleet: places x FLEET_COUNTS.
    """

    counts: Int64s
    told: Int64s
    dirty: Bools
    callers: Int64s
    counted: Bools
    fleet: Int64s


#: Adds decisions; returns how many rows were clean before.
Tally = Callable[[Decided, Places, Held], int]


def tally_with_numpy(decided: Decided, places: Places, held: Held) -> int:
    """See `Tally`."""
    basis, code, size = decided.basis, decided.code, places.row.size
    # Bases of one row are one group, called after one of them.
    met = np.flatnonzero(places.row >= 0)
    name = np.empty(held.dirty.size, np.int64)
    name[places.row[met]] = met
    group_of = np.full(size, -1, np.int64)
    group_of[met] = name[places.row[met]]
    groups = group_of[basis]
    used = np.flatnonzero(np.bincount(groups, minlength=size))
    told = np.zeros((size, 2), np.int64)
    told[used] = held.told[places.row[used]]
    early = early_returns(groups, decided.at_us, decided.retry_after_ms, told)
    rows = places.row[used]
    held.told[rows] = told[used]
    counts = _counts(groups, decided, early, size)[used]
    held.counts[rows] += counts
    # Cells of several scopes are one caller's.
    np.add.at(held.callers, places.caller[used], counts)
    held.counted[places.caller[used]] = True
    fresh = rows.size - int(np.count_nonzero(held.dirty[rows]))
    held.dirty[rows] = True
    at, most = places.fleet[basis] + places.slot[code], held.fleet.shape[0]
    held.fleet[:, 0] += np.bincount(at, minlength=most)
    held.fleet[:, 1] += np.bincount(at[early], minlength=most)
    held.fleet[:, 2] += np.bincount(at, weights=decided.cost, minlength=most).astype(np.int64)
    return fresh


def _counts(groups: Int64s, decided: Decided, early: Int64s, size: int) -> Int64s:
    """The counts of each group."""
    code, width = decided.code, len(USAGE_COUNTS)
    counts = np.bincount(groups * width + _COLUMN[code], minlength=size * width).reshape(size, width)
    counts[:, 0] = np.bincount(groups, minlength=size)
    counts[:, DEGRADED] = np.bincount(groups[(_MARKS[code] & _IS_DEGRADED) != 0], minlength=size)
    counts[:, EARLY] = np.bincount(groups[early], minlength=size)
    # Sums of one block stay far below 2^53, so the doubles are exact.
    admitted = (_MARKS[code] & _IS_ADMITTED) != 0
    counts[:, COST_OFFERED] = np.bincount(groups, weights=decided.cost, minlength=size)
    counts[:, COST_ADMITTED] = np.bincount(groups, weights=decided.cost * admitted, minlength=size)
    return counts


def _compiled() -> Tally | None:
    try:
        from aggregator.core.live import _tally  # noqa: PLC0415  (absent where there was no compiler)
    except ImportError:
        return None

    def tally(decided: Decided, places: Places, held: Held) -> int:
        return _tally.tally(
            *(decided.basis, decided.code, decided.cost, decided.at_us, decided.retry_after_ms),
            *(places.row, places.caller, places.fleet, places.slot, _COLUMN, _MARKS),
            *(held.counts, held.told, held.dirty, held.callers, held.counted, held.fleet),
            *_PLACES,
        )

    return tally


#: None where the distribution was built without a C compiler.
COMPILED: Final = _compiled()
BEST: Final[Tally] = tally_with_numpy if COMPILED is None else COMPILED
