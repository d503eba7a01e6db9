"""Growable tables of one minute of one partition: rows found by number, and totals by cell.

Rows are integers in numpy arrays and are found by interned id, so a block is added with a handful of vector operations.
Nothing here knows of the log, of versions, or of the database.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Generic, TypeVar

import numpy as np
import numpy.typing as npt

from stream.contract.block import Int64s
from stream.contract.usage import USAGE_COUNTS

Bools = npt.NDArray[np.bool_]
Rows = npt.NDArray[np.intp]

FIRST_ROWS = 64

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


class _NameTable(Interner[str]):
    """The same for names, looked up by a loop in C: a table in an array of pairs (hash, number), at most half full."""

    __slots__ = ("_number_names", "_table")

    def __init__(self, number_names: Callable[[list[str], list[str], Int64s, Int64s], None]) -> None:
        super().__init__()
        self._number_names = number_names
        self._table = np.full((2 * FIRST_ROWS, 2), -1, np.int64)

    def id_of(self, key: str) -> int:
        """The number of one name, new or known."""
        return int(self.ids_of([key])[0])

    def ids_of(self, keys: list[str]) -> Int64s:
        """The numbers of many names."""
        need = len(self.keys) + len(keys)
        if 2 * need > self._table.shape[0]:
            self._table = np.full((1 << (4 * need).bit_length(), 2), -1, np.int64)
            self._number_names(self.keys, [], np.empty(len(self.keys), np.int64), self._table)
        ids = np.empty(len(keys), np.int64)
        self._number_names(keys, self.keys, ids, self._table)
        return ids


def _compiled() -> Callable[[], Interner[str]] | None:
    try:
        from aggregator.core.live import _tally  # noqa: PLC0415  (absent where there was no compiler)
    except ImportError:
        return None
    return lambda: _NameTable(_tally.number_names)


#: Makes an interner of many names; None where the distribution was built without a C compiler.
COMPILED: Final = _compiled()
names_interner: Final[Callable[[], Interner[str]]] = Interner[str] if COMPILED is None else COMPILED


class RowIndex:
    """Which row of a table an interned id has; -1 in `_row_of` is "none yet"."""

    __slots__ = ("_ids", "_row_of", "count")

    def __init__(self) -> None:
        self._row_of = np.full(FIRST_ROWS, -1, np.intp)
        self._ids = np.zeros(FIRST_ROWS, np.int64)
        self.count = 0

    @property
    def ids(self) -> Int64s:
        """The id of each row."""
        return self._ids[: self.count]

    def known(self, ids: Int64s) -> Rows:
        """The rows of `ids`, -1 for those that have none."""
        rows = np.full(ids.size, -1, np.intp)
        within = ids < self._row_of.size
        rows[within] = self._row_of[ids[within]]
        return rows

    def rows_of(self, ids: Int64s) -> Rows:
        """The rows of `ids`, new ones appended; an id may stand in `ids` more than once."""
        if ids.size == 0:
            return np.zeros(0, np.intp)
        top = int(ids.max())
        if top >= self._row_of.size:
            self._row_of = grown(self._row_of, top + 1, fill=-1)
        rows = self._row_of[ids]
        if rows.min() < 0:
            fresh = ids[rows < 0]
            self._ids = grown(self._ids, self.count + fresh.size)
            # Of each id one place stays, whichever was written last: distinct ones without sorting.
            places = np.arange(fresh.size)
            self._row_of[fresh] = places
            fresh = fresh[self._row_of[fresh] == places]
            self._ids[self.count : self.count + fresh.size] = fresh
            self._row_of[fresh] = np.arange(self.count, self.count + fresh.size)
            self.count += fresh.size
            rows = self._row_of[ids]
        return rows


class TotalsTable:
    """Counts by interned id: what `usage` and `fleet` rows are made of."""

    __slots__ = ("_counts", "_dirty", "index")

    def __init__(self) -> None:
        self.index = RowIndex()
        self._counts = np.zeros((FIRST_ROWS, len(USAGE_COUNTS)), np.int64)
        self._dirty = np.zeros(FIRST_ROWS, np.bool_)

    @property
    def dirty(self) -> bool:
        """Whether a row changed since `take_changed`."""
        return bool(self._dirty.any())

    def add(self, ids: Int64s, counts: Int64s) -> int:
        """Add `counts` (one line per id, columns as USAGE_COUNTS) and mark the rows as changed.

        The ids are distinct. Returns how many rows were unchanged before.
        """
        return self._add_to(self._rows(ids), counts)

    def _add_to(self, rows: Rows, counts: Int64s) -> int:
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


A = TypeVar("A", bound=np.generic)


def grown(array: npt.NDArray[A], need: int, *, fill: int = 0) -> npt.NDArray[A]:
    """`array` itself if it has `need` lines, else a copy at least twice as long, filled up."""
    if need <= array.shape[0]:
        return array
    longer = np.full((max(need, 2 * array.shape[0]), *array.shape[1:]), fill, array.dtype)
    longer[: array.shape[0]] = array
    return longer
