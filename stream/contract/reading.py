"""One slot of many objects at once: as an array of integers, or as the distinct values and an index into them.

There are two readers of one behaviour: one in C, where the distribution was built with a compiler, and one in Python
for everywhere else, which gives the same and takes longer. Pure: neither changes an object or keeps one.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from operator import attrgetter
from typing import Any, Final, TypeVar

import numpy as np

from stream.contract.columns import Ints
from stream.contract.layout import UnencodableBlock

_V = TypeVar("_V")
_Integers = Callable[[list[Any], Any], bytes]
_Distinct = Callable[[list[Any], Any], tuple[list[Any], bytes]]


class Reader:
    """Reads slots; a slot is named by what its class calls it, as in ``reader.integers(verdicts, Verdict.cost)``."""

    __slots__ = ("_distinct", "_integers")

    def __init__(self, integers: _Integers, distinct: _Distinct) -> None:
        self._integers = integers
        self._distinct = distinct

    def integers(self, objects: list[Any], member: object) -> Ints:
        """One 64-bit integer an object.

        Raises:
            UnencodableBlock: a value is none; the message names the slot and the value.
        """
        try:
            column = self._integers(objects, member)
        except (OverflowError, TypeError, struct.error):
            name = _name(member)
            for value in map(attrgetter(name), objects):
                if not isinstance(value, int) or not -(2**63) <= value < 2**63:
                    raise UnencodableBlock(f"{name} is {value!r}; allowed: an integer of at most 64 bits") from None
            raise
        return np.frombuffer(column, np.int64)

    def distinct(self, objects: list[Any], member: _V) -> tuple[list[_V], Ints]:
        """The distinct values by identity, in the order of their first appearance, and each object's index in them."""
        values, index = self._distinct(objects, member)
        return values, np.frombuffer(index, np.int64)


def _name(member: Any) -> str:
    name: str = member.__name__
    return name


def _integers_in_python(objects: list[Any], member: object) -> bytes:
    return struct.pack(f"{len(objects)}q", *map(attrgetter(_name(member)), objects))


def _distinct_in_python(objects: list[Any], member: object) -> tuple[list[Any], bytes]:
    count = len(objects)
    values = list(map(attrgetter(_name(member)), objects))
    # An object array is an array of addresses, and the list keeps all of the objects alive meanwhile.
    array = np.fromiter(values, object, count)
    addresses = np.frombuffer(array, np.intp)
    positions = np.arange(count)
    # The last four bits of all addresses are alike. Whoever writes an entry last owns it, so the first comes last.
    entries = (addresses >> 4) & ((1 << (4 * count).bit_length()) - 1)
    table = np.empty(1 << (4 * count).bit_length(), np.intp)
    table[entries[::-1]] = positions[::-1]
    first = table.take(entries)
    strangers = (addresses.take(first) != addresses).nonzero()[0]
    if len(strangers):
        alike = addresses[strangers].tolist()
        firsts = dict(zip(reversed(alike), reversed(strangers.tolist()), strict=True))
        first[strangers] = [firsts[address] for address in alike]
    places = (first == positions).nonzero()[0]
    numbers = np.empty(count, np.int64)
    numbers[places] = np.arange(len(places))
    distinct: list[Any] = array.take(places).tolist()
    return distinct, numbers.take(first).tobytes()


def _compiled() -> Reader | None:
    try:
        from stream.contract import _reading  # noqa: PLC0415  (absent where there was no compiler)
    except ImportError:
        return None
    return Reader(_reading.integers, _reading.distinct)


IN_PYTHON: Final = Reader(_integers_in_python, _distinct_in_python)
#: None where the distribution was built without a C compiler.
COMPILED: Final = _compiled()
BEST: Final = IN_PYTHON if COMPILED is None else COMPILED
