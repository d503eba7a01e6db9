"""Growable tables of one minute of one partition: totals by cell, and what is known of each caller.

Rows are integers in numpy arrays and are found by interned id, so a block is added with a handful of vector operations.
Nothing here knows of the log, of versions, or of the database.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Generic, TypeVar

import numpy as np
import numpy.typing as npt

from stream.contract.block import Int64s

Bools = npt.NDArray[np.bool_]
Rows = npt.NDArray[np.intp]

#: The count columns of the `live` table, in the order in which every totals array holds them.
COUNT_COLUMNS = (
    "offered",
    "admitted",
    "refused_spent",
    "refused_never",
    "refused_emergency",
    "refused_closed",
    "refused_ceiling",
    "degraded",
    "cost_offered",
    "cost_admitted",
)

#: The plan of a caller whose own limit no decision of the minute named.
NO_PLAN = -1
_FIRST_ROWS = 64
_WORD_BITS = 64

K = TypeVar("K", str, int, tuple[str, float, int])


class Interner(Generic[K]):
    """Gives each distinct key a small number, in order of appearance; `keys` leads back and only ever grows."""

    __slots__ = ("_ids", "keys")

    def __init__(self) -> None:
        self._ids: _Ids[K] = _Ids()
        self.keys: list[K] = self._ids.keys_in_order

    def __len__(self) -> int:
        return len(self.keys)

    def id_of(self, key: K) -> int:
        """The number of one key, new or known."""
        return self._ids[key]

    def ids_of(self, keys: list[K]) -> Int64s:
        """The numbers of many keys, one dict lookup each."""
        return np.fromiter(map(self._ids.__getitem__, keys), np.int64, len(keys))


class _Ids(dict[K, int]):
    """A dict that numbers what it does not know yet."""

    __slots__ = ("keys_in_order",)

    def __init__(self) -> None:
        super().__init__()
        self.keys_in_order: list[K] = []

    def __missing__(self, key: K) -> int:
        number = self[key] = len(self.keys_in_order)
        self.keys_in_order.append(key)
        return number


class RowIndex:
    """Which row of a table an interned id has; -1 in `_row_of` is "none yet"."""

    __slots__ = ("_ids", "_row_of", "count")

    def __init__(self) -> None:
        self._row_of = np.full(_FIRST_ROWS, -1, np.int32)
        self._ids = np.zeros(_FIRST_ROWS, np.int64)
        self.count = 0

    @property
    def ids(self) -> Int64s:
        """The id of each row."""
        return self._ids[: self.count]

    def rows_of(self, ids: Int64s) -> Rows:
        """The rows of `ids`, new ones appended; an id may stand in `ids` more than once."""
        if ids.size == 0:
            return np.zeros(0, np.intp)
        top = int(ids.max())
        if top >= self._row_of.size:
            self._row_of = grown(self._row_of, top + 1, fill=-1)
        rows = self._row_of[ids]
        if (rows < 0).any():
            fresh = np.unique(ids[rows < 0])
            self._ids = grown(self._ids, self.count + fresh.size)
            self._ids[self.count : self.count + fresh.size] = fresh
            self._row_of[fresh] = np.arange(self.count, self.count + fresh.size, dtype=np.int32)
            self.count += fresh.size
            rows = self._row_of[ids]
        return rows.astype(np.intp)


class TotalsTable:
    """Counts by interned id: what `usage` and `fleet` rows are made of."""

    __slots__ = ("_counts", "_dirty", "index")

    def __init__(self) -> None:
        self.index = RowIndex()
        self._counts = np.zeros((_FIRST_ROWS, len(COUNT_COLUMNS)), np.int64)
        self._dirty = np.zeros(_FIRST_ROWS, np.bool_)

    @property
    def dirty(self) -> bool:
        """Whether a row changed since `take_changed`."""
        return bool(self._dirty.any())

    def add(self, ids: Int64s, counts: Int64s) -> int:
        """Add `counts` (one line per id, columns as COUNT_COLUMNS) and mark the rows as changed.

        The ids are distinct. Returns how many rows were unchanged before.
        """
        rows = self._rows(ids)
        self._counts[rows] += counts
        fresh = rows.size - int(np.count_nonzero(self._dirty[rows]))
        self._dirty[rows] = True
        return fresh

    def put(self, ids: Int64s, counts: Int64s) -> None:
        """Set totals as they were stored; the rows are not marked as changed."""
        # First the rows: finding them may replace the array that they point into.
        rows = self._rows(ids)
        self._counts[rows] = counts

    def take_changed(self) -> tuple[Int64s, Int64s]:
        """Ids and totals of the rows changed since the last call, as copies."""
        rows = np.flatnonzero(self._dirty[: self.index.count])
        self._dirty[rows] = False
        return self.index.ids[rows], self._counts[rows]

    def _rows(self, ids: Int64s) -> Rows:
        rows = self.index.rows_of(ids)
        if self.index.count > self._dirty.size:
            self._counts = grown(self._counts, self.index.count)
            self._dirty = grown(self._dirty, self.index.count)
        return rows


class CallersTable:
    """Of each caller in a minute: the plan last seen, the largest k, and which copies it reached (one bit each)."""

    __slots__ = ("_bits", "_dirty", "_k", "_plan", "copies", "index")

    def __init__(self) -> None:
        self.index = RowIndex()
        self.copies: Interner[str] = Interner()
        self._plan = np.full(_FIRST_ROWS, NO_PLAN, np.int64)
        self._k = np.zeros(_FIRST_ROWS, np.int64)
        self._bits = np.zeros((_FIRST_ROWS, 1), np.uint64)
        self._dirty = np.zeros(_FIRST_ROWS, np.bool_)

    @property
    def dirty(self) -> bool:
        """Whether a row changed since `take_changed`."""
        return bool(self._dirty.any())

    def see(self, ids: Int64s, plans: Int64s, k: Int64s, copy_id: str) -> int:
        """Note that these callers reached `copy_id`; lines for one caller may repeat, the last one's plan stays.

        A line with `NO_PLAN` leaves the plan as it is.
        Returns how many rows were unchanged before and are changed now (a repeated line may count twice).
        """
        rows = self._rows(ids)
        word, mask = self._bit(copy_id)
        plan_before, k_before = self._plan[rows], self._k[rows]
        unseen = (self._bits[rows, word] & mask) == 0
        told = plans != NO_PLAN
        self._plan[rows[told]] = plans[told]
        np.maximum.at(self._k, rows, k)
        self._bits[rows, word] |= mask
        changed = unseen | (self._plan[rows] != plan_before) | (self._k[rows] != k_before)
        touched = rows[changed]
        fresh: int = touched.size - int(np.count_nonzero(self._dirty[touched]))
        self._dirty[touched] = True
        return fresh

    def put(self, caller: int, plan: int, k: int, copies: Iterable[str]) -> None:
        """Set one caller as it was stored; the row is not marked as changed."""
        row = int(self._rows(np.array([caller], np.int64))[0])
        self._plan[row] = plan
        self._k[row] = k
        for copy_id in copies:
            word, mask = self._bit(copy_id)
            self._bits[row, word] |= mask

    def take_changed(self) -> tuple[Int64s, Int64s, Int64s, Bools]:
        """Ids, plans, k and a matrix (rows x copies) of the rows changed since the last call, as copies."""
        rows = np.flatnonzero(self._dirty[: self.index.count])
        self._dirty[rows] = False
        octets = np.ascontiguousarray(self._bits[rows].astype("<u8")).view(np.uint8)
        reached = np.unpackbits(octets, axis=1, bitorder="little").astype(np.bool_)
        return self.index.ids[rows], self._plan[rows], self._k[rows], reached

    def _bit(self, copy_id: str) -> tuple[int, np.uint64]:
        word, bit = divmod(self.copies.id_of(copy_id), _WORD_BITS)
        if word >= self._bits.shape[1]:
            self._bits = np.pad(self._bits, ((0, 0), (0, word + 1 - self._bits.shape[1])))
        return word, np.uint64(1 << bit)

    def _rows(self, ids: Int64s) -> Rows:
        rows = self.index.rows_of(ids)
        if self.index.count > self._dirty.size:
            self._plan = grown(self._plan, self.index.count, fill=NO_PLAN)
            self._k = grown(self._k, self.index.count)
            self._bits = grown(self._bits, self.index.count)
            self._dirty = grown(self._dirty, self.index.count)
        return rows


A = TypeVar("A", bound=np.generic)


def grown(array: npt.NDArray[A], need: int, *, fill: int = 0) -> npt.NDArray[A]:
    """`array` itself if it has `need` lines, else a copy at least twice as long, filled up."""
    if need <= array.shape[0]:
        return array
    longer = np.full((max(need, 2 * array.shape[0]), *array.shape[1:]), fill, array.dtype)
    longer[: array.shape[0]] = array
    return longer
