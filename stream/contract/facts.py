"""Grants and settlements on the log: one message carries a block of them, as versioned MessagePack.

A message is ``["tallygate.facts", 1, copy_id, epoch, grants, settlements]``; see ``docs/reference/block-format.md``.
Version 2 has more: what was charged or refunded after the fact. Every number is a total, so reading a message twice
changes nothing. Reads no clock and talks to nobody.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from enforcer.identity import CopyIdentity
from enforcer.messages import SettleCause, Settlement
from enforcer.sink import CostChanged, GrantIssued, GrantSettled
from enforcer.types import Grant
from stream.contract.layout import AT_US_MAX, COPY_ID_PATTERN, U32_MAX, CorruptBlock, UnencodableBlock

KIND: Final = "tallygate.facts"
VERSION: Final = 1
#: With costs that changed after the fact; written only where there are any.
VERSION_WITH_COSTS: Final = 2

_CopyId = Annotated[str, Meta(pattern=COPY_ID_PATTERN)]
_Count = Annotated[int, Meta(ge=0, le=2**63 - 1)]
_U32 = Annotated[int, Meta(ge=0, le=U32_MAX)]
_AtUs = Annotated[int, Meta(ge=0, le=AT_US_MAX)]


class _Grant(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    caller: str
    limit: str
    policy_version: _U32
    grant_id: _Count
    size: _Count
    k: _U32
    issued_at_us: _AtUs
    expires_at_us: _AtUs
    tokens_left: Annotated[float, Meta(ge=-1e18, le=1e18)]


class _Settlement(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    caller: str
    limit: str
    member: str
    grant_id: _Count
    spent: _Count
    final: bool
    cause: SettleCause
    at_us: _AtUs


class _AdjustedSettlement(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    caller: str
    limit: str
    member: str
    grant_id: _Count
    spent: _Count
    final: bool
    cause: SettleCause
    at_us: _AtUs
    adjusted: Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]


class _Cost(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    caller: str
    scope: str
    requests: _Count
    charged: _Count
    refunded: _Count
    at_us: _AtUs


class _Message(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    kind: str
    version: int
    copy_id: _CopyId
    epoch: Annotated[int, Meta(ge=0)]
    grants: list[_Grant]
    settlements: list[_Settlement]


class _LongMessage(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    kind: str
    version: int
    copy_id: _CopyId
    epoch: Annotated[int, Meta(ge=0)]
    grants: list[_Grant]
    settlements: list[_AdjustedSettlement]
    costs: list[_Cost]


class _Head(msgspec.Struct, frozen=True, array_like=True):
    kind: str
    version: int


_encoder = msgspec.msgpack.Encoder()
_head_decoder = msgspec.msgpack.Decoder(_Head)
_decoder = msgspec.msgpack.Decoder(_Message)
_long_decoder = msgspec.msgpack.Decoder(_LongMessage)


@dataclass(frozen=True, slots=True)
class FactBlock:
    """What one copy learned of grants, stated of settlements, and says of costs that changed after the fact."""

    copy_id: str
    epoch: int
    grants: list[GrantIssued]
    settlements: list[GrantSettled]
    costs: list[CostChanged] = field(default_factory=list)


def encode_facts(
    identity: CopyIdentity,
    grants: Sequence[GrantIssued],
    settlements: Sequence[GrantSettled],
    costs: Sequence[CostChanged] = (),
) -> bytes:
    """Write one message, of the version that has room for all of it.

    Raises:
        UnencodableBlock: a fact holds a value that the log has no room for.
    """
    is_long = bool(costs) or any(fact.settlement.adjusted for fact in settlements)
    whose = (identity.copy_id, identity.epoch, [_grant_row(fact) for fact in grants])
    message: _Message | _LongMessage
    if is_long:
        paid = [_Cost(*msgspec.structs.astuple(cost)) for cost in costs]
        message = _LongMessage(KIND, VERSION_WITH_COSTS, *whose, [_adjusted_row(fact) for fact in settlements], paid)
    else:
        message = _Message(KIND, VERSION, *whose, [_settlement_row(fact) for fact in settlements])
    try:
        data = _encoder.encode(message)
        # What a reader would refuse must not reach the log: the same rules are applied on both sides.
        (_long_decoder if is_long else _decoder).decode(data)
    except (msgspec.DecodeError, UnicodeEncodeError, OverflowError) as error:
        raise UnencodableBlock(f"a fact does not fit the log: {error}") from None
    return data


def decode_facts(data: bytes) -> FactBlock:
    """Read one message.

    Raises:
        CorruptBlock: the bytes are not facts of version 1 or 2; says which field and how.
    """
    try:
        head = _head_decoder.decode(data)
        if head.kind != KIND:
            raise CorruptBlock(f"kind is {head.kind[:80]!r}; allowed: {KIND!r}")
        if head.version not in (VERSION, VERSION_WITH_COSTS):
            raise CorruptBlock(f"version is {head.version}; allowed: {VERSION}, {VERSION_WITH_COSTS}")
        message = _decoder.decode(data) if head.version == VERSION else _long_decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise CorruptBlock(f"facts cannot be read: {error}") from None
    if message.epoch >= 1 << 64:
        raise CorruptBlock(f"epoch is {message.epoch}; allowed: below 2**64")
    return FactBlock(
        message.copy_id,
        message.epoch,
        [_grant_fact(row) for row in message.grants],
        [_settlement_fact(row) for row in message.settlements],
        [CostChanged(*msgspec.structs.astuple(row)) for row in getattr(message, "costs", ())],
    )


def _grant_row(fact: GrantIssued) -> _Grant:
    grant = fact.grant
    return _Grant(
        fact.caller,
        fact.limit,
        fact.policy_version,
        grant.grant_id,
        grant.size,
        grant.k,
        grant.issued_at_us,
        grant.expires_at_us,
        fact.tokens_left,
    )


def _settlement_row(fact: GrantSettled) -> _Settlement:
    stated = fact.settlement
    return _Settlement(
        fact.caller, fact.limit, fact.member, stated.grant_id, stated.spent, stated.final, stated.cause, fact.at_us
    )


def _adjusted_row(fact: GrantSettled) -> _AdjustedSettlement:
    total = fact.settlement
    whose = (fact.caller, fact.limit, fact.member)
    return _AdjustedSettlement(
        *whose, total.grant_id, total.spent, total.final, total.cause, fact.at_us, total.adjusted
    )


def _grant_fact(row: _Grant) -> GrantIssued:
    grant = Grant(row.grant_id, row.size, row.k, row.issued_at_us, row.expires_at_us)
    return GrantIssued(row.caller, row.limit, row.policy_version, grant, row.tokens_left)


def _settlement_fact(row: _Settlement | _AdjustedSettlement) -> GrantSettled:
    adjusted = row.adjusted if isinstance(row, _AdjustedSettlement) else 0
    settlement = Settlement(row.grant_id, row.spent, row.final, row.cause, adjusted=adjusted)
    return GrantSettled(row.caller, row.limit, row.member, settlement, row.at_us)
