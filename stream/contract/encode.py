"""Verdicts to the bytes of a block: the gateway's side of the codec, written to cost little per decision.

Reads no clock and talks to nobody. Not thread-safe: one encoder serves one thread.
"""

from __future__ import annotations

import zlib
from functools import lru_cache
from typing import Final, NamedTuple, TypeAlias

import msgspec
import numpy as np

from enforcer.types import MAX_RECORDED_MS, NEVER_NS, Basis, Plan, Verdict
from stream.contract import layout
from stream.contract.columns import NOTHING, Encoded, Ints, encode_array, encode_index
from stream.contract.layout import COLUMNS, UnencodableBlock
from stream.contract.names import name_all
from stream.contract.reading import BEST, Reader

#: Columns of the decisions; those of the bases and plans follow.
_BASIS, _GAP, _CODE, _COST, _REMAINING, _RETRY = COLUMNS[:6]
_GRANT_ID, _K, _BURST = COLUMNS[11:]

_pack = msgspec.msgpack.Encoder().encode


#: Charges as (number of the basis, subject, limit, grant id), and the plans' calendars.
_More: TypeAlias = tuple[list[tuple[int, str, str, int]], list[str]]


class _Content(NamedTuple):
    """What a block says: names in their lists, plans' rates, and the columns in the order of the layout.

    `more` is what only version 2 has room for: further charges, and the plans' calendars.
    """

    names: tuple[list[str], list[str], list[str], list[str]]
    more: _More | None
    rates: bytes
    columns: tuple[Encoded, ...]
    refusals: int
    bases: int
    first_at_us: int


_NO_CONTENT: Final = _Content(([], [], [], []), None, b"", (NOTHING,) * len(COLUMNS), 0, 0, 0)


class BlockEncoder:
    """Encodes the blocks of one copy, one after the other.

    Args:
        reader: how the verdicts are read; the blocks are the same with each.
    """

    def __init__(self, reader: Reader = BEST) -> None:
        self._reader = reader

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
        content = self._content(verdicts, clock_offset_ns) if verdicts else _NO_CONTENT
        try:
            packed_names = _pack(content.names if content.more is None else (*content.names, *content.more))
        except UnicodeEncodeError as error:
            raise UnencodableBlock(f"a name is not text that UTF-8 can write: {error}") from None
        name = copy_id.encode()
        body = b"".join(
            (
                layout.DESCRIPTORS.pack(*[part for column in content.columns for part in column[:2]]),
                name,
                packed_names,
                content.rates,
                *[column[2] for column in content.columns],
            )
        )
        head = layout.HEADER.pack(
            layout.MAGIC,
            layout.VERSION if content.more is None else layout.VERSION_WITH_CHARGES,
            len(name),
            layout.HEADER.size + len(body),
            0,
            epoch,
            first_seq,
            len(verdicts),
            content.refusals,
            content.bases,
            *map(len, content.names),
            len(packed_names),
            sealed_at_us,
            content.first_at_us,
            clock_offset_ns,
            prev_hash,
        )
        return _with_crc(head, body)

    def _content(self, verdicts: list[Verdict], clock_offset_ns: int) -> _Content:
        reader = self._reader
        bases, basis = reader.distinct(verdicts, Verdict.basis)
        at_ns = reader.integers(verdicts, Verdict.at_ns)
        at_us = _wall_times_us(at_ns, clock_offset_ns)
        code = reader.integers(verdicts, Verdict.code)
        refused = (code & 15).nonzero()[0]
        named = name_all(bases, reader)
        plan_names, rates, burst = _plan_parts(tuple(plan for plan, _ in named.plans))
        columns = (
            encode_index(basis, len(bases)),
            encode_array(_GAP, at_us[1:] - at_us[:-1]),
            encode_array(_CODE, code),
            encode_array(_COST, reader.integers(verdicts, Verdict.cost)),
            encode_array(_REMAINING, reader.integers(verdicts, Verdict.remaining)),
            encode_array(_RETRY, self._waits_ms([verdicts[place] for place in refused.tolist()], at_ns.take(refused))),
            *named.columns,
            encode_array(_GRANT_ID, reader.integers(bases, Basis.grant_id)),
            encode_array(_K, reader.integers(bases, Basis.k)),
            burst,
        )
        names = (named.callers, named.scopes, named.limits, plan_names)
        more = self._more(bases, [per for _, per in named.plans])
        return _Content(names, more, rates, columns, len(refused), len(bases), int(at_us[0]))

    def _more(self, bases: list[Basis], calendars: list[str]) -> _More | None:
        distinct, _ = self._reader.distinct(bases, Basis.also)
        if not any(distinct) and not any(calendars):
            return None
        charges = [
            (number, charge.subject, charge.limit, charge.grant_id)
            for number, basis in enumerate(bases)
            for charge in basis.also
        ]
        return charges, calendars

    def _waits_ms(self, refused: list[Verdict], at_ns: Ints) -> Ints:
        """`Verdict.retry_after_ms` of these, which were decided at these times; at most what the record can carry."""
        ready_at_ns = self._reader.integers(refused, Verdict.ready_at_ns)
        waits_ms: Ints = -((at_ns - ready_at_ns) // 1_000_000)
        np.clip(waits_ms, 1, MAX_RECORDED_MS, out=waits_ms)
        waits_ms[ready_at_ns == NEVER_NS] = -1
        return waits_ms


def _wall_times_us(at_ns: Ints, clock_offset_ns: int) -> Ints:
    at_us: Ints = (at_ns + np.int64(clock_offset_ns)) // 1000
    if at_us.min() < 0 or at_us.max() > layout.AT_US_MAX:
        raise UnencodableBlock(f"a decision's wall time is outside 0 to {layout.AT_US_MAX} µs")
    return at_us


@lru_cache(maxsize=64)
def _plan_parts(plans: tuple[Plan, ...]) -> tuple[list[str], bytes, Encoded]:
    """The plans' names, rates and bursts: the same in nearly all blocks of a copy."""
    rates = np.array([plan.rate_per_s for plan in plans], "<f8").tobytes()
    return [plan.name for plan in plans], rates, encode_array(_BURST, BEST.integers(list(plans), Plan.burst))


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
