"""Numbers for pairs of (caller, scope): which cell of a shard's usage a decision counts in.

A hash table in an array, which a loop in C looks through; where there was no compiler, a dict. Both give the same
numbers. Pure state, only ever grows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

import numpy as np

from aggregator.core.live.tables import grown
from stream.contract.block import Int64s

SCOPE_BITS = 24
_FIRST_BITS = 8


class Numbers(Protocol):
    """Gives each distinct key from 0 on a small number, in order of appearance."""

    def __len__(self) -> int:
        """How many there are."""
        ...

    def of(self, keys: Int64s) -> Int64s:
        """The numbers of these keys, new or known."""
        ...


class DictNumbers:
    """`Numbers` in a dict."""

    __slots__ = ("_ids",)

    def __init__(self) -> None:
        self._ids: dict[int, int] = {}

    def __len__(self) -> int:
        """See `Numbers`."""
        return len(self._ids)

    def of(self, keys: Int64s) -> Int64s:
        """See `Numbers`."""
        known = self._ids
        return np.fromiter((known.setdefault(key, len(known)) for key in keys.tolist()), np.int64, keys.size)


class TableNumbers:
    """`Numbers` in an array of pairs (key, number), at most half full; -1 is "none"."""

    __slots__ = ("_known", "_number", "_table")

    def __init__(self, number: Callable[[Int64s, Int64s, Int64s, int], int]) -> None:
        self._number = number
        self._known = 0
        self._table = np.full((1 << _FIRST_BITS, 2), -1, np.int64)

    def __len__(self) -> int:
        """See `Numbers`."""
        return self._known

    def of(self, keys: Int64s) -> Int64s:
        """See `Numbers`."""
        if 2 * (self._known + keys.size) > self._table.shape[0]:
            self._grow(self._known + keys.size)
        ids = np.empty(keys.size, np.int64)
        self._known = self._number(keys, ids, self._table, self._known)
        return ids

    def _grow(self, need: int) -> None:
        held = self._table[self._table[:, 1] >= 0]
        self._table = np.full((1 << (4 * need).bit_length(), 2), -1, np.int64)
        in_order = np.empty(self._known, np.int64)
        in_order[held[:, 1]] = held[:, 0]
        self._number(in_order, np.empty(self._known, np.int64), self._table, 0)


def _compiled() -> Callable[[], Numbers] | None:
    try:
        from aggregator.core.live import _tally  # noqa: PLC0415  (absent where there was no compiler)
    except ImportError:
        return None
    return lambda: TableNumbers(_tally.number)


#: None where the distribution was built without a C compiler.
COMPILED: Final = _compiled()
BEST: Final[Callable[[], Numbers]] = DictNumbers if COMPILED is None else COMPILED


class CellIndex:
    """Gives each distinct pair a small number, in order of appearance."""

    __slots__ = ("_numbers", "_scopes")

    def __init__(self, numbers: Callable[[], Numbers] = BEST) -> None:
        self._numbers = numbers()
        self._scopes = np.zeros(1 << _FIRST_BITS, np.int64)

    def __len__(self) -> int:
        return len(self._numbers)

    def ids_of(self, callers: Int64s, scopes: Int64s) -> Int64s:
        """The numbers of these pairs, new or known."""
        before = len(self._numbers)
        ids = self._numbers.of((callers << SCOPE_BITS) | scopes)
        count = len(self._numbers)
        if count > before:
            self._scopes = grown(self._scopes, count)
            fresh = np.flatnonzero(ids >= before)
            self._scopes[ids[fresh]] = scopes[fresh]
        return ids

    def scopes_of(self, ids: Int64s) -> Int64s:
        """The scope of each cell."""
        return self._scopes[ids]
