"""Repeated objects in a list: found by their identity, without hashing or sorting them, and hardly touching them.

Not thread-safe: one finder serves one encoder.
"""

from __future__ import annotations

from typing import Final, TypeVar

import numpy as np

from stream.contract.columns import Ints
from stream.contract.layout import MAX_DECISIONS

_T = TypeVar("_T")

#: Addresses are looked up by the bits above the last four, which are alike in all objects of CPython.
_ENTRIES: Final = 1 << 16
_POSITIONS: Final = np.arange(MAX_DECISIONS)


class Finder:
    """Numbers the distinct objects of one list after the other."""

    def __init__(self) -> None:
        self._table = np.zeros(_ENTRIES, np.intp)

    def find(self, objects: list[_T]) -> tuple[list[_T], Ints]:
        """Return the distinct objects, and for each object its index among them."""
        array = np.fromiter(objects, object, len(objects))
        # An object array is an array of pointers, and the list keeps all of them alive meanwhile.
        keys = np.frombuffer(array, np.intp)
        positions = _POSITIONS[: len(objects)]
        entries = keys >> 4
        entries &= _ENTRIES - 1
        # Whoever writes an entry last owns it; the others that are the same find it there.
        self._table[entries] = positions
        owner = self._table.take(entries)
        strange = keys.take(owner) != keys
        if np.count_nonzero(strange):
            strangers = strange.nonzero()[0]
            addresses = keys[strangers].tolist()
            last = dict(zip(addresses, strangers.tolist(), strict=True))
            owner[strangers] = [last[address] for address in addresses]
        places = (owner == positions).nonzero()[0]
        index = entries
        index[places] = _POSITIONS[: len(places)]
        distinct: list[_T] = array.take(places).tolist()
        return distinct, index.take(owner)
