"""Totals by caller on the log: one message carries a block of them, as versioned MessagePack with binary columns.

A message is ``["tallygate.usage", 1, table_id, source_partition, minutes]``; see ``docs/reference/events.md``.
Each row is a total under (source partition, minute, caller) with the version it stands at: reading a message twice,
late or out of order changes nothing, if the highest version of a key is kept. Reads no clock and talks to nobody, and
trusts nothing that it reads.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final, TypeAlias

import msgspec
import numpy as np
import numpy.typing as npt
from msgspec import Meta

from stream.contract.block import Int64s
from stream.contract.columns import Encoded, encode_array, read_planes
from stream.contract.layout import I64_MAX, U32_MAX, Column, CorruptBlock

KIND: Final = "tallygate.usage"
VERSION: Final = 1
#: Most rows that one minute of a message holds.
MAX_ROWS: Final = 8_192
MAX_MINUTES: Final = 64
MAX_COPIES: Final = 65_536
#: The last minute that ClickHouse's 32-bit DateTime can hold.
_LAST_MINUTE: Final = U32_MAX // 60 - 1

#: What is counted, in the order in which `UsageMinute.counts` and the message hold it.
USAGE_COUNTS: Final = (
    "offered",
    "admitted",
    "refused_spent",
    "refused_never",
    "refused_emergency",
    "refused_closed",
    "refused_ceiling",
    "degraded",
    "early_returns",
    "cost_offered",
    "cost_admitted",
)
#: All columns of a minute, one entry a row.
USAGE_COLUMNS: Final = tuple(
    Column(name, "bases", 0, I64_MAX, name) for name in ("version", "k_counted", *USAGE_COUNTS)
)

Octets: TypeAlias = npt.NDArray[np.uint8]


class UsageColumn(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """One column of a minute: value = base + what the bytes say."""

    width: Annotated[int, Meta(ge=0, le=8, description="bytes a value; 0: all values are the base")]
    base: Annotated[int, Meta(ge=0, le=I64_MAX, description="what is added to every value")]
    planes: Annotated[bytes, Meta(description="the lowest byte of every value, then the next one of every value, …")]


@dataclass(frozen=True, slots=True)
class UsageMinute:
    """Totals of one minute; all columns have one entry a caller.

    Attributes:
        minute: unix minute.
        callers: distinct names.
        copies: the copies that `reached` speaks of; distinct.
        version: int64, the position of the source partition's log that each row states.
        k_counted: int64, the largest k that an owner had counted.
        counts: int64, rows x USAGE_COUNTS.
        reached: uint8, rows x ceil(copies / 8): bit n of a row (lowest bit of the first octet first) says that the
            caller reached copy n.
    """

    minute: int
    callers: Sequence[str]
    copies: Sequence[str]
    version: Int64s
    k_counted: Int64s
    counts: Int64s
    reached: Octets


@dataclass(frozen=True, slots=True)
class UsageBlock:
    """What one source partition's log says of some callers.

    Attributes:
        table_id: identity of the `live` table that the totals stand in; versions of two tables cannot be compared.
        source_partition: partition of the decisions topic.
        minutes: at most MAX_MINUTES.
    """

    table_id: str
    source_partition: int
    minutes: Sequence[UsageMinute]


class UsageMinuteRow(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Totals of one minute, one entry of each column a caller."""

    minute: Annotated[int, Meta(ge=0, le=_LAST_MINUTE, description="unix minute")]
    callers: Annotated[list[str], Meta(min_length=1, max_length=MAX_ROWS, description="distinct callers")]
    copies: Annotated[list[str], Meta(max_length=MAX_COPIES, description="distinct copies that `reached` speaks of")]
    columns: Annotated[
        list[UsageColumn],
        Meta(
            min_length=len(USAGE_COLUMNS),
            max_length=len(USAGE_COLUMNS),
            description=", ".join(f"`{column.name}`" for column in USAGE_COLUMNS),
        ),
    ]
    reached: Annotated[
        bytes,
        Meta(description="of each caller, one bit a copy that it reached, lowest bit of the first byte first"),
    ]


class UsageMessage(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """What one partition of the decisions topic says of some callers."""

    kind: Annotated[str, Meta(description="`tallygate.usage`")]
    version: Annotated[int, Meta(description="1")]
    table_id: Annotated[str, Meta(max_length=64, description="identity of the `live` table that the totals stand in")]
    source_partition: Annotated[int, Meta(ge=0, le=65_535, description="partition of the decisions topic")]
    minutes: Annotated[list[UsageMinuteRow], Meta(max_length=MAX_MINUTES, description="minutes that changed")]


class _Head(msgspec.Struct, frozen=True, array_like=True):
    kind: str
    version: int


_encoder = msgspec.msgpack.Encoder()
_head_decoder = msgspec.msgpack.Decoder(_Head)
_decoder = msgspec.msgpack.Decoder(UsageMessage)


def encode_usage(block: UsageBlock) -> bytes:
    """Write one message.

    Raises:
        UnencodableBlock: a total is negative.
    """
    minutes = [_encode_minute(one) for one in block.minutes]
    return _encoder.encode([KIND, VERSION, block.table_id, block.source_partition, minutes])


def _encode_minute(one: UsageMinute) -> list[Any]:
    arrays = (one.version, one.k_counted, *one.counts.T)
    columns: list[Encoded] = [
        encode_array(column, np.ascontiguousarray(values)) for column, values in zip(USAGE_COLUMNS, arrays, strict=True)
    ]
    return [one.minute, one.callers, one.copies, columns, one.reached.tobytes()]


def decode_usage(data: bytes) -> UsageBlock:
    """Read one message.

    Raises:
        CorruptBlock: the bytes are not a usage block of version 1, or are damaged; says which field and how.
    """
    try:
        head = _head_decoder.decode(data)
        if head.kind != KIND:
            raise CorruptBlock(f"kind is {head.kind!r}; allowed: {KIND!r}")
        if head.version != VERSION:
            raise CorruptBlock(f"version is {head.version}; allowed: {VERSION}")
        message = _decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise CorruptBlock(f"usage cannot be read: {error}") from None
    minutes = [_decode_minute(one) for one in message.minutes]
    return UsageBlock(message.table_id, message.source_partition, minutes)


def _decode_minute(one: UsageMinuteRow) -> UsageMinute:
    for name, values in (("callers", one.callers), ("copies", one.copies)):
        if len(set(values)) != len(values):
            raise CorruptBlock(f"{name} of minute {one.minute} holds a name twice; allowed: each once")
    rows = len(one.callers)
    arrays = [_decode_column(column, given, rows) for column, given in zip(USAGE_COLUMNS, one.columns, strict=True)]
    return UsageMinute(
        minute=one.minute,
        callers=one.callers,
        copies=one.copies,
        version=arrays[0],
        k_counted=arrays[1],
        counts=np.stack(arrays[2:], axis=1),
        reached=_decode_reached(one, rows),
    )


def _decode_column(column: Column, given: UsageColumn, rows: int) -> Int64s:
    width, base, raw = given.width, given.base, given.planes
    if len(raw) != width * rows:
        raise CorruptBlock(f"column {column.name} is {len(raw)} bytes long; allowed: {width * rows}")
    if width == 0:
        return np.full(rows, base, np.int64)
    offsets = read_planes(np.frombuffer(raw, np.uint8), width, rows)
    most = base + int(offsets.max())
    if most > column.high:
        raise CorruptBlock(f"column {column.name} holds {most}; allowed: {column.low} to {column.high}")
    return offsets.astype(np.int64) + base


def _decode_reached(one: UsageMinuteRow, rows: int) -> Octets:
    octets = -(-len(one.copies) // 8)
    if len(one.reached) != rows * octets:
        raise CorruptBlock(f"reached is {len(one.reached)} bytes long; allowed: {rows * octets}")
    reached = np.frombuffer(one.reached, np.uint8).reshape(rows, octets)
    spare = 8 * octets - len(one.copies)
    if spare and rows and int(reached[:, -1].max()) >> (8 - spare):
        raise CorruptBlock(f"reached names a copy beyond the {len(one.copies)} that are listed")
    return reached
