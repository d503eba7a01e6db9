"""What a block says to the bytes that say it: the only writer of the layout, for those who seal and those who check.

Reads no clock and talks to nobody. The bytes follow from the content alone: nothing else is looked at.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from functools import lru_cache
from typing import Final, NamedTuple, TypeAlias

import msgspec
import numpy as np

from stream.contract import layout
from stream.contract.block import Totals
from stream.contract.canonical import unequal_rows
from stream.contract.columns import NOTHING, Encoded, Ints, encode_array, encode_index
from stream.contract.layout import COLUMNS, UnencodableBlock

_BASIS, _GAP, _CODE, _COST, _REMAINING, _RETRY, *_INDEXES, _VERSION, _GRANT_ID, _K, _BURST = COLUMNS

_pack = msgspec.msgpack.Encoder().encode

#: A further grant that paid: subject, limit, grant id.
ChargeRow: TypeAlias = tuple[str, str, int]
#: A plan: name, rate per second, burst, calendar of a quota or an empty text.
PlanRow: TypeAlias = tuple[str, float, int, str]


class Heading(NamedTuple):
    """What stands in the header and does not follow from the decisions; see `DecisionBlock`."""

    copy_id: str
    epoch: int
    first_seq: int
    sealed_at_us: int
    clock_offset_ns: int
    prev_hash: bytes
    owner_offset_us: int | None


class BaseColumns(NamedTuple):
    """The dictionary of a block: one entry a basis in each column, 64 bits wide.

    The lists hold each name once, in order of first appearance among the bases; `charges` the distinct sets of further
    charges, to which `charged` points.
    """

    callers: list[str]
    scopes: list[str]
    limits: list[str]
    plans: list[PlanRow]
    charges: list[tuple[ChargeRow, ...]]
    caller: Ints
    scope: Ints
    limit: Ints
    plan: Ints
    policy_version: Ints
    grant_id: Ints
    k: Ints
    charged: Ints


class DecisionColumns(NamedTuple):
    """One entry a decision in each column, 64 bits wide; `wait_ms` has one for each refusal, in order."""

    basis: Ints
    at_us: Ints
    code: Ints
    cost: Ints
    remaining: Ints
    refused: Ints
    """The places of the refusals."""
    wait_ms: Ints


class _Content(NamedTuple):
    names: tuple[list[str], list[str], list[str], list[str]]
    charges: list[tuple[int, str, str, int]]
    calendars: list[str]
    rates: bytes
    columns: tuple[Encoded, ...]
    decisions: int
    refusals: int
    bases: int
    first_at_us: int


_NO_CONTENT: Final = _Content(([], [], [], []), [], [], b"", (NOTHING,) * len(COLUMNS), 0, 0, 0, 0)


def write_heartbeat(heading: Heading, totals: Totals) -> bytes:
    """Write a block without decisions."""
    return _write(heading, _NO_CONTENT, totals)


def write_block(heading: Heading, decisions: DecisionColumns, bases: BaseColumns, totals: Totals) -> bytes:
    """Write a block; bases that say the same become one.

    Args:
        heading: of the block.
        decisions: in order of seq, at least one.
        bases: in order of first appearance among the decisions.
        totals: the copy's own at the end of this block.

    Raises:
        UnencodableBlock: something has no room in the log.
    """
    columns = (bases.grant_id, bases.scope, bases.caller, bases.k, bases.policy_version)
    lists = ((bases.limits, bases.limit), (bases.plans, bases.plan), (bases.charges, bases.charged))
    alike = unequal_rows([*columns, *[index for names, index in lists if len(names) > 1]])
    if alike is not None:
        first, number = alike
        decisions = decisions._replace(basis=number.take(decisions.basis))
        bases = BaseColumns(*bases[:5], *[column.take(first) for column in bases[5:]])
    return _write(heading, _content(decisions, bases), totals)


def wall_times_us(at_ns: Ints, clock_offset_ns: int) -> Ints:
    """Wall times of decisions that a monotonic clock dated; see `Heading.clock_offset_ns`."""
    at_us: Ints = (at_ns + np.int64(clock_offset_ns)) // 1000
    return at_us


def _content(decisions: DecisionColumns, bases: BaseColumns) -> _Content:
    at_us = decisions.at_us
    if at_us.min() < 0 or at_us.max() > layout.AT_US_MAX:
        raise UnencodableBlock(f"a decision's wall time is outside 0 to {layout.AT_US_MAX} µs")
    plan_names, rates, burst, calendars = _plan_parts(tuple(bases.plans))
    columns = (
        encode_index(decisions.basis, len(bases.grant_id)),
        encode_array(_GAP, at_us[1:] - at_us[:-1]),
        encode_array(_CODE, decisions.code),
        encode_array(_COST, decisions.cost),
        encode_array(_REMAINING, decisions.remaining),
        encode_array(_RETRY, decisions.wait_ms),
        encode_index(bases.caller, len(bases.callers)),
        encode_index(bases.scope, len(bases.scopes)),
        encode_index(bases.limit, len(bases.limits)),
        encode_index(bases.plan, len(bases.plans)),
        encode_array(_VERSION, bases.policy_version),
        encode_array(_GRANT_ID, bases.grant_id),
        encode_array(_K, bases.k),
        burst,
    )
    return _Content(
        (bases.callers, bases.scopes, bases.limits, plan_names),
        _numbered(bases),
        calendars,
        rates,
        columns,
        len(at_us),
        len(decisions.refused),
        len(bases.grant_id),
        int(at_us[0]),
    )


def _numbered(bases: BaseColumns) -> list[tuple[int, str, str, int]]:
    """The further charges of the bases, each with the number of its basis."""
    if not any(bases.charges):
        return []
    return [(number, *charge) for number, which in enumerate(bases.charged.tolist()) for charge in bases.charges[which]]


@lru_cache(maxsize=64)
def _plan_parts(plans: tuple[PlanRow, ...]) -> tuple[list[str], bytes, Encoded, list[str]]:
    """The plans' names, rates, bursts and calendars: the same in nearly all blocks of a copy."""
    # There is no rate of -0.0, which equals 0.0 and has other bytes.
    rates = (np.array([plan[1] for plan in plans], "<f8") + 0.0).tobytes()
    return [plan[0] for plan in plans], rates, encode_array(_BURST, _bursts(plans)), [plan[3] for plan in plans]


def _bursts(plans: Sequence[PlanRow]) -> Ints:
    bursts: list[object] = [plan[2] for plan in plans]
    for burst in bursts:
        if not isinstance(burst, int) or not layout.I64_MIN <= burst <= layout.I64_MAX:
            raise UnencodableBlock(f"burst is {burst!r}; allowed: an integer of at most 64 bits")
    return np.array(bursts, np.int64)


def _write(heading: Heading, content: _Content, totals: Totals) -> bytes:
    try:
        packed_names = _pack((*content.names, content.charges, content.calendars))
    except UnicodeEncodeError as error:
        raise UnencodableBlock(f"a name is not text that UTF-8 can write: {error}") from None
    name = heading.copy_id.encode()
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
        layout.VERSION,
        len(name),
        layout.HEADER.size + len(body),
        0,
        heading.epoch,
        heading.first_seq,
        content.decisions,
        content.refusals,
        content.bases,
        *map(len, content.names),
        len(packed_names),
        heading.sealed_at_us,
        content.first_at_us,
        heading.clock_offset_ns,
        heading.prev_hash,
        layout.NO_OWNER_CLOCK if heading.owner_offset_us is None else heading.owner_offset_us,
        totals.admitted,
        totals.refused,
        # A copy that has spent as many tokens as the field can say goes on recording.
        min(totals.cost, layout.U64_MAX),
    )
    return _with_crc(head, body)


def _with_crc(head: bytes, body: bytes) -> bytes:
    start, rest = head[: layout.CRC_AT], head[layout.CRC_END :]
    crc = zlib.crc32(body, zlib.crc32(rest, zlib.crc32(start)))
    return b"".join((start, crc.to_bytes(4, "little"), rest, body))
