"""The bytes of a block to columns: the reader's side of the codec. Trusts nothing that it reads.

Whatever the bytes are, the outcome is a block in which every index points somewhere and every value is in its range,
or `CorruptBlock`; memory stays proportional to the length of the bytes. Reads no clock and talks to nobody.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Final, TypeAlias

import msgspec
import numpy as np
import numpy.typing as npt
from msgspec import Meta

from enforcer.types import Reason, Source, outcome_code
from stream.contract import layout
from stream.contract.block import Bases, BlockPlan, DecisionBlock, OtherCharge
from stream.contract.columns import read_planes
from stream.contract.header import Header, hash_block, read_header
from stream.contract.layout import Column, CorruptBlock

_Ints: TypeAlias = npt.NDArray[Any]

_COPY_ID: Final = re.compile(layout.COPY_ID_PATTERN.encode())
_U64: Final = layout.U64_MAX
_Charge: TypeAlias = tuple[int, str, str, Annotated[int, Meta(ge=0, le=layout.I64_MAX)]]
_Names: TypeAlias = tuple[list[str], list[str], list[str], list[str]]
_names_decoder = msgspec.msgpack.Decoder(_Names)
_more_decoder = msgspec.msgpack.Decoder(tuple[list[str], list[str], list[str], list[str], list[_Charge], list[str]])
_KNOWN_CODES: Final = bytes(outcome_code(source, reason) for source in Source for reason in Reason)
#: The arrays that a decoded block has, by column; the others stay 64 bits wide.
_TYPES: Final[Mapping[str, type[np.generic]]] = {
    "basis": np.uint32,
    "code": np.uint8,
    "cost": np.uint32,
    "retry_after_ms": np.int32,
    "caller": np.uint32,
    "scope": np.uint32,
    "limit": np.uint32,
    "plan": np.uint32,
    "policy_version": np.uint32,
    "grant_id": np.uint64,
    "k": np.uint32,
}


@dataclass(slots=True)
class _Cursor:
    """Hands out the rest of the block piece by piece, and never more than there is."""

    data: bytes
    at: int

    def take(self, what: str, length: int) -> memoryview:
        if length > len(self.data) - self.at:
            raise CorruptBlock(f"{what} needs {length} bytes; only {len(self.data) - self.at} are left")
        piece = memoryview(self.data)[self.at : self.at + length]
        self.at += length
        return piece


def decode_block(data: bytes) -> DecisionBlock:
    """Read one block.

    Args:
        data: the value of one message of the decisions topic.

    Raises:
        CorruptBlock: the bytes are not a block of a known version, or are damaged; says which field and how.
    """
    header = read_header(data)
    cursor = _Cursor(data, layout.header_of(header.version).size)
    pairs = layout.DESCRIPTORS.unpack(cursor.take("column descriptors", layout.DESCRIPTORS.size))
    copy_id = bytes(cursor.take("copy_id", header.copy_id_bytes))
    if _COPY_ID.match(copy_id) is None:
        raise CorruptBlock(f"copy_id is {copy_id!r}; allowed: A-Z a-z 0-9 . _ -, the first a letter or digit")
    names, charges, calendars = _names(bytes(cursor.take("names", header.names_bytes)), header)
    rates = _rates(cursor.take("plan rates", 8 * header.plans))
    rows = {
        "decisions": header.decisions,
        "gaps": max(header.decisions - 1, 0),
        "refusals": header.refusals,
        "bases": header.bases,
        "plans": header.plans,
    }
    columns: dict[str, _Ints] = {}
    for number, column in enumerate(layout.COLUMNS):
        high = _index_limit(column, header)
        columns[column.name] = _column(column, high, rows[column.rows], pairs[2 * number : 2 * number + 2], cursor)
    if cursor.at != len(data):
        raise CorruptBlock(f"{len(data) - cursor.at} bytes stand after the last column; allowed: none")
    return _block(header, copy_id.decode(), data, columns, _bases(names, rates, charges, calendars, columns))


def _block(header: Header, copy_id: str, data: bytes, columns: Mapping[str, _Ints], bases: Bases) -> DecisionBlock:
    return DecisionBlock(
        copy_id=copy_id,
        epoch=header.epoch,
        first_seq=header.first_seq,
        count=header.decisions,
        sealed_at_us=header.sealed_at_us,
        prev_hash=header.prev_hash,
        block_hash=hash_block(data),
        bases=bases,
        basis=columns["basis"],
        at_us=_times(header, columns["gap_us"]),
        code=columns["code"],
        cost=columns["cost"],
        remaining=columns["remaining"],
        retry_after_ms=_retries(header, columns["code"], columns["retry_after_ms"]),
        version=header.version,
        clock_offset_ns=header.clock_offset_ns,
        owner_offset_us=None if header.owner_offset_us == layout.NO_OWNER_CLOCK else header.owner_offset_us,
        admitted_total=header.admitted_total,
        refused_total=header.refused_total,
        cost_total=header.cost_total,
    )


def _names(packed: bytes, header: Header) -> tuple[_Names, list[_Charge], list[str]]:
    charges: list[_Charge] = []
    calendars = [""] * header.plans
    try:
        if header.version == layout.VERSION_PLAIN:
            names = _names_decoder.decode(packed)
        else:
            *lists, charges, calendars = _more_decoder.decode(packed)
            names = (lists[0], lists[1], lists[2], lists[3])
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise CorruptBlock(f"names cannot be read: {error}") from None
    for field, strings in zip(("callers", "scopes", "limits", "plans"), names, strict=True):
        if len(strings) != getattr(header, field):
            raise CorruptBlock(f"{field} is {getattr(header, field)}; the names hold {len(strings)} of them")
        if len(set(strings)) != len(strings) and field != "plans":
            raise CorruptBlock(f"{field} holds a name twice; allowed: each once")
    if len(calendars) != header.plans:
        raise CorruptBlock(f"plans is {header.plans}; the names hold {len(calendars)} calendars")
    for basis, *_ in charges:
        if not 0 <= basis < header.bases:
            raise CorruptBlock(f"a charge is of basis {basis}; allowed: 0 to {header.bases - 1}")
    return names, charges, calendars


def _rates(raw: memoryview) -> list[float]:
    rates: list[float] = np.frombuffer(raw, "<f8").tolist()
    for rate in rates:
        if not 0.0 <= rate < float("inf"):
            raise CorruptBlock(f"a plan's rate_per_s is {rate}; allowed: 0 or more, finite")
    return rates


def _index_limit(column: Column, header: Header) -> int:
    """The largest value of an index column follows from the list that it points into."""
    if column.name == "basis":
        return header.bases - 1
    if column.name in {"caller", "scope", "limit", "plan"}:
        return int(getattr(header, column.name + "s")) - 1
    return column.high


def _column(column: Column, high: int, rows: int, descriptor: tuple[int, int], cursor: _Cursor) -> _Ints:
    """Read one column and prove that all its values lie between `column.low` and `high`."""
    width, base = descriptor
    if width > 8:
        raise CorruptBlock(f"the width of column {column.name} is {width} bytes; allowed: 0 to 8")
    raw = np.frombuffer(cursor.take(f"column {column.name}", width * rows), np.uint8)
    target = _TYPES.get(column.name, np.int64)
    if rows == 0:
        return np.empty(0, target)
    offsets = read_planes(raw, width, rows)
    least, most = (base, base) if width == 0 else (base + int(offsets.min()), base + int(offsets.max()))
    if least < column.low or most > high:
        wrong = least if least < column.low else most
        raise CorruptBlock(f"column {column.name} holds {wrong}; allowed: {column.low} to {high}")
    if width == 0:
        return np.full(rows, base, target)
    if base == 0:
        return offsets.astype(target, copy=False)
    # The sum is in range, so that it is right modulo 2**64 whatever the signs.
    return (offsets.astype(np.uint64) + np.uint64(base & _U64)).astype(target)


def _times(header: Header, gaps: _Ints) -> npt.NDArray[np.int64]:
    at_us = np.empty(header.decisions, np.int64)
    if header.decisions:
        at_us[0] = header.first_at_us
        np.cumsum(gaps, out=at_us[1:])
        at_us[1:] += header.first_at_us
        if at_us.min() < 0 or at_us.max() > layout.AT_US_MAX:
            raise CorruptBlock(f"at_us reaches {int(at_us.min())} to {int(at_us.max())}; allowed: 0 to 2**53 - 1")
    return at_us


def _retries(header: Header, code: _Ints, refused: _Ints) -> npt.NDArray[np.int32]:
    """Give the waits, which the block holds for refusals only, to their decisions."""
    unknown = code.tobytes().translate(None, delete=_KNOWN_CODES)
    if unknown:
        raise CorruptBlock(f"column code holds {unknown[0]}; no such source and reason")
    retry_after_ms = np.zeros(header.decisions, np.int32)
    at = np.flatnonzero(code & 15)
    if len(at) != header.refusals:
        raise CorruptBlock(f"refusals is {header.refusals}; the codes name {len(at)}")
    retry_after_ms[at] = refused
    return retry_after_ms


def _bases(
    names: _Names, rates: list[float], charges: list[_Charge], calendars: list[str], columns: Mapping[str, _Ints]
) -> Bases:
    callers, scopes, limits, plan_names = names
    plans = [BlockPlan(*one) for one in zip(plan_names, rates, columns["burst"].tolist(), calendars, strict=True)]
    return Bases(
        callers=callers,
        scopes=scopes,
        limits=limits,
        plans=plans,
        caller=columns["caller"],
        scope=columns["scope"],
        limit=columns["limit"],
        plan=columns["plan"],
        policy_version=columns["policy_version"],
        grant_id=columns["grant_id"],
        k=columns["k"],
        also=[OtherCharge(*charge) for charge in charges],
    )
