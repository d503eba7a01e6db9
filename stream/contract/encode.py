"""Verdicts to the bytes of a block: the gateway's side of the codec, written to cost little per decision.

Reads no clock and talks to nobody. Not thread-safe: one encoder serves one thread.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from itertools import compress
from typing import Any, Final, TypeAlias, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt

from enforcer.types import Basis, Plan, Verdict
from stream.contract import layout
from stream.contract.layout import COLUMNS, Column, UnencodableBlock

_Ints: TypeAlias = npt.NDArray[Any]
_Encoded: TypeAlias = tuple[int, int, bytes]
_T = TypeVar("_T")

_SLOTS: Final = 1 << 16
_U64: Final = (1 << 64) - 1

_pack = msgspec.msgpack.Encoder().encode
#: Bytes per element, first byte of each element and layout of the fixed-width MessagePack integers.
_WIDE: Final = {
    3: (b"\xcd", np.dtype([("type", "u1"), ("value", ">u2")])),
    5: (b"\xce", np.dtype([("type", "u1"), ("value", ">u4")])),
    9: (b"\xcf", np.dtype([("type", "u1"), ("value", ">u8")])),
}


def _integers(name: str, values: Sequence[int]) -> _Ints:
    """Turn Python integers into an array.

    MessagePack writes a list of integers three times as fast as numpy reads one; where all of them came out equally
    wide, the bytes are the array.
    """
    count = len(values)
    first = values[0]
    if first is values[-1] and first is values[count // 2] and values.count(first) == count:
        return _constant(name, first, count)
    try:
        packed = _pack(values)
    except OverflowError:
        raise _too_wide(name) from None
    head = 1 if count < 16 else 3 if count < 65_536 else 5
    width, odd = divmod(len(packed) - head, count)
    if not odd and width == 1:
        small = np.frombuffer(packed, np.uint8, offset=head)
        if small.max() < 0x80:
            return small
    elif not odd and width in _WIDE:
        first_byte, row = _WIDE[width]
        if packed[head::width].count(first_byte) == count:
            array = np.frombuffer(packed, row, offset=head)["value"].astype(np.int64)
            if width < 9 or array.min() >= 0:
                return array
    return _mixed(name, values)


def _mixed(name: str, values: Sequence[int]) -> _Ints:
    """Turn Python integers of any size into an array, one by one."""
    try:
        return np.fromiter(values, np.int64, len(values))
    except OverflowError:
        raise _too_wide(name) from None


def _too_wide(name: str) -> UnencodableBlock:
    return UnencodableBlock(f"{name} holds an integer of more than 64 bits")


def _constant(name: str, value: int, count: int) -> _Ints:
    if not -(2**63) <= value < 2**63:
        raise UnencodableBlock(f"{name} is {value}, an integer of more than 64 bits")
    return np.full(count, value, np.int64)


class _Identities:
    """Finds repeated objects in a list by their identity, without hashing or sorting them."""

    def __init__(self) -> None:
        self._table = np.zeros(_SLOTS, np.int64)

    def find(self, objects: list[Any]) -> tuple[bytes, _Ints]:
        """Return a mask with one byte set for each distinct object, and for each object its index among those set."""
        count = len(objects)
        # An object array is an array of pointers, and the list keeps all of them alive meanwhile.
        keys = np.frombuffer(np.fromiter(objects, object, count), np.intp)
        positions = np.arange(count)
        slots = keys >> 4
        slots ^= keys >> 20
        slots &= _SLOTS - 1
        self._table[slots] = positions
        owner = self._table[slots]
        strange = keys[owner] != keys
        if strange.any():
            strangers = np.flatnonzero(strange)
            first: dict[int, int] = {}
            pairs = zip(keys[strangers].tolist(), strangers.tolist(), strict=True)
            owner[strangers] = [first.setdefault(key, position) for key, position in pairs]
        chosen = owner == positions
        where = np.flatnonzero(chosen)
        positions[where] = np.arange(len(where))
        return chosen.tobytes(), positions[owner]

    def index(self, values: list[_T]) -> tuple[_Ints, list[_T]]:
        """Return the list of unequal values, and for each value its index into it."""
        count = len(values)
        first = values[0]
        if first is values[-1] and first is values[count // 2] and values.count(first) == count:
            return np.zeros(count, np.uint8), [first]
        mask, index = self.find(values)
        found = list(compress(values, mask))
        if len(set(found)) == len(found):
            return index, found
        # Equal values in several objects: a caller that was forgotten and came back.
        numbers = {value: number for number, value in enumerate(dict.fromkeys(found))}
        return np.array([numbers[value] for value in found])[index], list(numbers)


def _column(column: Column, values: _Ints) -> _Encoded:
    """Encode one column: width in bytes, base, and the byte planes of ``value - base``."""
    if not len(values):
        return 0, 0, b""
    low, high = int(values.min()), int(values.max())
    if low < column.low or high > column.high:
        wrong = low if low < column.low else high
        raise UnencodableBlock(f"{column.name} is {wrong}; allowed: {column.low} to {column.high}")
    if low == high:
        return 0, low, b""
    width = ((high - low).bit_length() + 7) // 8
    if low > 0 and (high.bit_length() + 7) // 8 == width:
        low = 0
    if width == 1:
        return 1, low, (values if low == 0 else values - values.dtype.type(low)).astype(np.uint8).tobytes()
    offsets = values.astype(np.int64).view(np.uint64)
    if low:
        offsets = offsets - np.uint64(low & _U64)
    lanes = np.ascontiguousarray(offsets, "<u8").view(np.uint8).reshape(-1, 8)
    return width, low, lanes[:, :width].T.tobytes()


class BlockEncoder:
    """Encodes the blocks of one copy, one after the other."""

    def __init__(self) -> None:
        self._identities = _Identities()

    def encode(
        self,
        verdicts: list[Verdict],
        *,
        copy_id: str,
        epoch: int,
        first_seq: int,
        sealed_at_us: int,
        clock_offset_ns: int,
        prev_hash: bytes = layout.NO_HASH,
    ) -> bytes:
        """Write one block.

        Args:
            verdicts: decisions ``first_seq, first_seq + 1, …`` in that order, at most `layout.MAX_DECISIONS`;
                an empty list makes a heartbeat.
            copy_id: whose decisions they are.
            epoch: in which life of the copy.
            first_seq: seq of the first verdict; of the next one to come if there is none.
            sealed_at_us: wall time now, unix microseconds.
            clock_offset_ns: wall time minus monotonic clock now, nanoseconds: dates the verdicts' `at_ns`.
            prev_hash: the hash of the epoch's block before this one.

        Raises:
            UnencodableBlock: the verdicts are not contiguous, too many, or one holds a value that has no room.
        """
        _check_run(verdicts, first_seq)
        bases, columns, first_at_us = self._decision_columns(verdicts, clock_offset_ns)
        names, plans, basis_columns = self._basis_columns(bases)
        columns.extend(basis_columns)
        try:
            packed_names = _pack([*names, [plan.name for plan in plans]])
        except UnicodeEncodeError as error:
            raise UnencodableBlock(f"a name is not text that UTF-8 can write: {error}") from None
        rates = np.array([plan.rate_per_s for plan in plans], "<f8").tobytes()
        name = copy_id.encode()
        body = b"".join(
            (
                layout.DESCRIPTORS.pack(*(part for column in columns for part in column[:2])),
                name,
                packed_names,
                rates,
                *(column[2] for column in columns),
            )
        )
        head = layout.HEADER.pack(
            layout.MAGIC,
            layout.VERSION,
            len(name),
            layout.HEADER.size + len(body),
            0,
            epoch,
            first_seq,
            len(verdicts),
            self._refusals,
            len(bases),
            *map(len, names),
            len(plans),
            len(packed_names),
            sealed_at_us,
            first_at_us,
            clock_offset_ns,
            prev_hash,
        )
        return _with_crc(head, body)

    def _decision_columns(
        self, verdicts: list[Verdict], clock_offset_ns: int
    ) -> tuple[list[Basis], list[_Encoded], int]:
        """Return the distinct bases, the decisions' columns, and the first one's wall time."""
        self._refusals = 0
        if not verdicts:
            return [], [_column(column, np.empty(0, np.int64)) for column in COLUMNS[:6]], 0
        bases = [v.basis for v in verdicts]
        shown, basis = self._identities.find(bases)
        at_ns = _integers("at_ns", [v.at_ns for v in verdicts]).astype(np.int64)
        at_us = (at_ns + np.int64(clock_offset_ns)) // 1000
        if at_us.min() < 0 or at_us.max() > layout.AT_US_MAX:
            raise UnencodableBlock(f"a decision's wall time is outside 0 to {layout.AT_US_MAX} µs")
        code = _integers("code", [v.code for v in verdicts])
        refused = np.flatnonzero(code & 15).tolist()
        self._refusals = len(refused)
        retry = [verdicts[position].retry_after_ms for position in refused]
        arrays = (
            basis,
            np.diff(at_us),
            code,
            _integers("cost", [v.cost for v in verdicts]),
            _mixed("remaining", [v.remaining for v in verdicts]),
            _integers("retry_after_ms", retry) if retry else np.empty(0, np.int64),
        )
        encoded = [_column(column, array) for column, array in zip(COLUMNS[:6], arrays, strict=True)]
        return list(compress(bases, shown)), encoded, int(at_us[0])

    def _basis_columns(self, bases: list[Basis]) -> tuple[list[list[str]], list[Plan], list[_Encoded]]:
        """Return the lists of callers, scopes and limits, the plans, and the columns of the dictionary."""
        if not bases:
            return [[], [], []], [], [_column(column, np.empty(0, np.int64)) for column in COLUMNS[6:]]
        caller, callers = self._identities.index([b.caller for b in bases])
        scope, scopes = self._identities.index([b.scope for b in bases])
        limit, limits = self._identities.index([b.limit for b in bases])
        plan, plans = self._identities.index([b.plan for b in bases])
        arrays = (
            caller,
            scope,
            limit,
            plan,
            _integers("policy_version", [b.policy_version for b in bases]),
            _integers("grant_id", [b.grant_id for b in bases]),
            _integers("k", [b.k for b in bases]),
            _integers("burst", [p.burst for p in plans]),
        )
        encoded = [_column(column, array) for column, array in zip(COLUMNS[6:], arrays, strict=True)]
        return [callers, scopes, limits], plans, encoded


def _check_run(verdicts: list[Verdict], first_seq: int) -> None:
    if len(verdicts) > layout.MAX_DECISIONS:
        raise UnencodableBlock(f"{len(verdicts)} decisions in one block; allowed: up to {layout.MAX_DECISIONS}")
    if verdicts and (verdicts[0].seq != first_seq or verdicts[-1].seq != first_seq + len(verdicts) - 1):
        raise UnencodableBlock(
            f"{len(verdicts)} decisions from seq {verdicts[0].seq} to {verdicts[-1].seq};"
            f" allowed: a run without gaps from first_seq {first_seq}"
        )


def _with_crc(head: bytes, body: bytes) -> bytes:
    start, rest = head[: layout.CRC_AT], head[layout.CRC_END :]
    crc = zlib.crc32(body, zlib.crc32(rest, zlib.crc32(start)))
    return b"".join((start, crc.to_bytes(4, "little"), rest, body))
