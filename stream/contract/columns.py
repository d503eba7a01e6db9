"""One column of a block: Python integers to an array, an array to the bytes that stand in the block.

Pure. Knows how a column is written, not what it means.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from stream.contract.layout import Column, UnencodableBlock

Ints: TypeAlias = npt.NDArray[Any]
#: Width in bytes, base, and the byte planes of ``value - base``.
Encoded: TypeAlias = tuple[int, int, bytes]

NOTHING: Final[Encoded] = (0, 0, b"")
_LITTLE: Final = np.dtype("<i8")


def to_array(name: str, values: Sequence[int]) -> Ints:
    """Turn Python integers into an array; ``n``, as wide as a pointer, is what CPython converts fastest.

    Raises:
        UnencodableBlock: one of them has more than 64 bits; the message names the field and the value.
    """
    try:
        return np.frombuffer(struct.pack(f"{len(values)}n", *values), np.intp)
    except struct.error:
        wide = [value for value in values if not -(2**63) <= value < 2**63]
        raise UnencodableBlock(f"{name} is {wide[0]}, an integer of more than 64 bits") from None


def small_to_array(name: str, values: Sequence[int]) -> Ints:
    """Do the same, faster where all of them are below 256."""
    try:
        return np.frombuffer(bytes(values), np.uint8).astype(np.intp)
    except ValueError:
        return to_array(name, values)


def encode_array(column: Column, values: Ints) -> Encoded:
    """Encode a column of 64-bit integers, in the narrowest width that fits.

    Raises:
        UnencodableBlock: a value is outside the column's range.
    """
    if not len(values):
        return NOTHING
    low, high = int(np.minimum.reduce(values)), int(np.maximum.reduce(values))
    if low < column.low or high > column.high:
        wrong = low if low < column.low else high
        raise UnencodableBlock(f"{column.name} is {wrong}; allowed: {column.low} to {column.high}")
    if low == high:
        return 0, low, b""
    width = ((high - low).bit_length() + 7) // 8
    if low > 0 and (high.bit_length() + 7) // 8 == width:
        low = 0
    # In 64 bits a difference wraps, and its bytes are right all the same.
    return width, low, _planes(values - low if low else values, width)


def encode_index(index: Ints, size: int) -> Encoded:
    """Encode an index into a list of `size` entries, each of which is pointed at."""
    if size <= 1:
        return NOTHING
    width = ((size - 1).bit_length() + 7) // 8
    return width, 0, _planes(index, width)


def _planes(values: Ints, width: int) -> bytes:
    if width == 1:
        return values.astype(np.uint8).tobytes()
    lanes = np.ascontiguousarray(values, _LITTLE).view(np.uint8).reshape(-1, 8)
    return lanes[:, :width].T.tobytes()
