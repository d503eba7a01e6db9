"""One column of a block: an array of integers to the bytes that stand in the block, and back.

Pure. Knows how a column is written, not what it means.
"""

from __future__ import annotations

from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from stream.contract.layout import Column, UnencodableBlock

Ints: TypeAlias = npt.NDArray[Any]
#: Width in bytes, base, and the byte planes of ``value - base``.
Encoded: TypeAlias = tuple[int, int, bytes]

NOTHING: Final[Encoded] = (0, 0, b"")
_LITTLE: Final = np.dtype("<i8")


def encode_array(column: Column, values: Ints) -> Encoded:
    """Encode a column of 64-bit integers, in the narrowest width that fits.

    Raises:
        UnencodableBlock: a value is outside the column's range.
    """
    if not len(values):
        return NOTHING
    low, high = int(values.min()), int(values.max())
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


def read_planes(raw: Ints, width: int, rows: int) -> Ints:
    """Byte planes, lowest first, back to unsigned integers."""
    if width < 2:
        return raw
    kind = np.uint16 if width == 2 else np.uint32 if width <= 4 else np.uint64
    values = raw[:rows].astype(kind)
    for plane in range(1, width):
        part = raw[plane * rows : (plane + 1) * rows].astype(kind)
        np.left_shift(part, kind(8 * plane), out=part)
        np.bitwise_or(values, part, out=values)
    return values


def _planes(values: Ints, width: int) -> bytes:
    if width == 1:
        return values.astype(np.uint8).tobytes()
    lanes = np.ascontiguousarray(values, _LITTLE).view(np.uint8)
    return b"".join([lanes[plane::8].tobytes() for plane in range(width)])
