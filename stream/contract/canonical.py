"""Which bases of a block say the same: whoever lists each once, in order of first appearance, writes the same bytes.

Pure; works on whole columns, and does no more than a mix and a sort where all differ, as they nearly always do.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Final, TypeVar

import numpy as np

from stream.contract.columns import Ints

_H = TypeVar("_H", bound=Hashable)

#: An odd number whose powers are spread over 64 bits.
_SPREAD: Final = np.uint64(0x9E37_79B9_7F4A_7C15)


def unequal_rows(columns: Sequence[Ints]) -> tuple[Ints, Ints] | None:
    """Find rows that are equal in every column.

    Args:
        columns: of 64-bit integers, all of one length; the two that tell most rows apart come first.

    Returns:
        The place of the first of each kind of row, rising, and for each row which of these it equals; None if no two
        rows are equal.
    """
    mixed = _mixed(columns[:2])
    if _all_differ(mixed):
        return None
    mixed = _mixed(columns)
    if _all_differ(mixed):
        return None
    _, first, kind = np.unique(mixed, return_index=True, return_inverse=True)
    representative = first.take(kind)
    if not all(np.array_equal(column, column.take(representative)) for column in columns):
        # Two different rows have the same mix: compare them as they are.
        return _unequal_exactly(columns)
    return _by_appearance(first, kind)


def first_appearances(index: Ints) -> tuple[Ints, Ints]:
    """The distinct numbers of an index in order of first appearance, and each entry's place among them."""
    values, first, kind = np.unique(index, return_index=True, return_inverse=True)
    _, places = _by_appearance(first, kind)
    return values.take(np.argsort(first)), places


def unequal_values(values: Sequence[_H], index: Ints) -> tuple[list[_H], Ints]:
    """The values without repetition, and the index into them that replaces the one into `values`."""
    if len(set(values)) == len(values):
        return values if isinstance(values, list) else list(values), index
    numbers = {value: number for number, value in enumerate(dict.fromkeys(values))}
    return list(numbers), np.array([numbers[value] for value in values]).take(index)


def _all_differ(numbers: Ints) -> bool:
    in_order = np.sort(numbers)
    return not (in_order[1:] == in_order[:-1]).any()


def _mixed(columns: Sequence[Ints]) -> Ints:
    """One number a row; equal rows have equal numbers, and different ones nearly always different numbers."""
    mixed = columns[0].astype(np.uint64)
    for column in columns[1:]:
        np.multiply(mixed, _SPREAD, out=mixed)
        np.add(mixed, column.view(np.uint64), out=mixed)
    return mixed


def _unequal_exactly(columns: Sequence[Ints]) -> tuple[Ints, Ints] | None:
    rows = list(zip(*(column.tolist() for column in columns), strict=True))
    first: dict[tuple[int, ...], int] = {}
    kind = np.array([first.setdefault(row, len(first)) for row in rows])
    if len(first) == len(rows):
        return None
    return _by_appearance(np.unique(kind, return_index=True)[1], kind)


def _by_appearance(first: Ints, kind: Ints) -> tuple[Ints, Ints]:
    """Number kinds, each of which has its first row at `first`, in the order of these."""
    order = np.argsort(first)
    number = np.empty(len(order), np.int64)
    number[order] = np.arange(len(order))
    return first.take(order), number.take(kind)
