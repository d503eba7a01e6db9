"""What is known of each caller in one minute of one partition: its plan, its k, its copies, and its totals.

Nothing here knows of the log, of versions, or of the database.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np

from aggregator.core.live.tables import FIRST_ROWS, Bools, Interner, RowIndex, Rows, grown
from stream.contract.block import Int64s, UInt64s
from stream.contract.usage import USAGE_COUNTS

#: The plan of a caller whose own limit no decision of the minute named.
NO_PLAN = -1
_WORD_BITS = 64


class Lines(NamedTuple):
    """What a block says of callers: rows, which may repeat, and by line the plan (or `NO_PLAN`) and k."""

    rows: Rows
    plans: Int64s
    k: Int64s


class Known(NamedTuple):
    """What is held of callers by row: plan, k, words of the copies' bits, and whether any of these changed."""

    plan: Int64s
    k: Int64s
    bits: UInt64s
    dirty: Bools


#: Notes lines, and that these callers reached the copy of one bit of one word; changes what is known in place.
#: Returns how many lines changed a row that had not changed before.
See = Callable[[Lines, Known, int, int], int]


def see_with_numpy(lines: Lines, known: Known, word: int, bit: int) -> int:
    """See `See`."""
    rows, mask = lines.rows, np.uint64(1 << bit)
    plan_before, k_before = known.plan[rows], known.k[rows]
    unseen = (known.bits[rows, word] & mask) == 0
    told = lines.plans != NO_PLAN
    known.plan[rows[told]] = lines.plans[told]
    np.maximum.at(known.k, rows, lines.k)
    known.bits[rows, word] |= mask
    touched = rows[unseen | (known.plan[rows] != plan_before) | (known.k[rows] != k_before)]
    fresh: int = touched.size - int(np.count_nonzero(known.dirty[touched]))
    known.dirty[touched] = True
    return fresh


def _compiled() -> See | None:
    try:
        from aggregator.core.live import _tally  # noqa: PLC0415  (absent where there was no compiler)
    except ImportError:
        return None

    def see(lines: Lines, known: Known, word: int, bit: int) -> int:
        return _tally.see(*lines, *known, word, bit)

    return see


#: None where the distribution was built without a C compiler.
COMPILED: Final = _compiled()
BEST: Final[See] = see_with_numpy if COMPILED is None else COMPILED


@dataclass(frozen=True, slots=True)
class CallerTotals:
    """Sums over the scopes of some callers in one minute, one line a caller.

    Attributes:
        callers: ids.
        counts: lines x USAGE_COUNTS.
        k: the largest that an owner had counted.
        reached: the words of the copies' bits, lowest first.
    """

    callers: Int64s
    counts: Int64s
    k: Int64s
    reached: UInt64s


class CallersTable:
    """Of each caller: the plan last seen, the largest k, which copies it reached (one bit each), and its totals.

    Attributes:
        counts: rows x USAGE_COUNTS, sums over the scopes.
        counted: by row, whether its counts changed since `take_totals`.
    """

    __slots__ = ("_bits", "_dirty", "_k", "_plan", "copies", "counted", "counts", "index")

    def __init__(self) -> None:
        self.index = RowIndex()
        self.copies: Interner[str] = Interner()
        self.counts = np.zeros((FIRST_ROWS, len(USAGE_COUNTS)), np.int64)
        self.counted = np.zeros(FIRST_ROWS, np.bool_)
        self._plan = np.full(FIRST_ROWS, NO_PLAN, np.int64)
        self._k = np.zeros(FIRST_ROWS, np.int64)
        self._bits = np.zeros((FIRST_ROWS, 1), np.uint64)
        self._dirty = np.zeros(FIRST_ROWS, np.bool_)

    @property
    def dirty(self) -> bool:
        """Whether a plan, a k or a copy changed since `take_changed`."""
        return bool(self._dirty.any())

    def see(self, rows: Rows, plans: Int64s, k: Int64s, copy_id: str) -> int:
        """Note that the callers of these rows reached `copy_id`; a row may repeat, the last line's plan stays.

        A line with `NO_PLAN` leaves the plan as it is.
        Returns how many rows were unchanged before and are changed now (a repeated line may count twice).
        """
        word, bit = self._bit(copy_id)
        known = Known(self._plan, self._k, self._bits, self._dirty)
        return BEST(Lines(rows, plans, k), known, word, bit)

    def put(self, caller: int, plan: int, k: int, copies: Iterable[str]) -> None:
        """Set one caller as it was stored; the row is not marked as changed."""
        row = int(self.rows_of(np.array([caller], np.int64))[0])
        self._plan[row] = plan
        self._k[row] = k
        for copy_id in copies:
            word, bit = self._bit(copy_id)
            self._bits[row, word] |= np.uint64(1 << bit)

    def put_counts(self, ids: Int64s, counts: Int64s) -> None:
        """Add what was stored of these callers' cells to their totals; ids may repeat, no row is marked."""
        # First the rows: finding them may replace the array that they point into.
        rows = self.rows_of(ids)
        np.add.at(self.counts, rows, counts)

    def take_changed(self) -> tuple[Int64s, Int64s, Int64s, Bools]:
        """Ids, plans, k and a matrix (rows x copies) of the rows changed since the last call, as copies."""
        rows = np.flatnonzero(self._dirty[: self.index.count])
        self._dirty[rows] = False
        octets = np.ascontiguousarray(self._bits[rows].astype("<u8")).view(np.uint8)
        reached = np.unpackbits(octets, axis=1, bitorder="little").astype(np.bool_)
        return self.index.ids[rows], self._plan[rows], self._k[rows], reached

    def take_totals(self) -> CallerTotals:
        """The totals of the callers of whom anything was counted since the last call, as copies."""
        rows = np.flatnonzero(self.counted[: self.index.count])
        self.counted[rows] = False
        return CallerTotals(self.index.ids[rows], self.counts[rows], self._k[rows], self._bits[rows])

    def rows_of(self, ids: Int64s) -> Rows:
        """The rows of these callers, new ones appended; an id may repeat."""
        rows = self.index.rows_of(ids)
        need = self.index.count
        if need > self._dirty.size:
            self._plan = grown(self._plan, need, fill=NO_PLAN)
            self._k, self._bits, self._dirty = grown(self._k, need), grown(self._bits, need), grown(self._dirty, need)
            self.counts, self.counted = grown(self.counts, need), grown(self.counted, need)
        return rows

    def _bit(self, copy_id: str) -> tuple[int, int]:
        word, bit = divmod(self.copies.id_of(copy_id), _WORD_BITS)
        if word >= self._bits.shape[1]:
            self._bits = np.pad(self._bits, ((0, 0), (0, word + 1 - self._bits.shape[1])))
        return word, bit
