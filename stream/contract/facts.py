"""Grants and settlements on the log: one message carries a block of them, as versioned MessagePack.

A message is ``["tallygate.facts", 1, copy_id, epoch, grants, settlements]``; see ``docs/reference/block-format.md``.
Every settlement states a total, so reading a message twice changes nothing. Reads no clock and talks to nobody.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from enforcer.identity import CopyIdentity
from enforcer.sink import GrantIssued, GrantSettled
from enforcer.types import Grant, SettleCause, Settlement
from stream.contract.layout import AT_US_MAX, COPY_ID_PATTERN, U32_MAX, CorruptBlock, UnencodableBlock

KIND: Final = "tallygate.facts"
VERSION: Final = 1

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


class _Message(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    kind: str
    version: int
    copy_id: _CopyId
    epoch: Annotated[int, Meta(ge=0)]
    grants: list[_Grant]
    settlements: list[_Settlement]


class _Head(msgspec.Struct, frozen=True, array_like=True):
    kind: str
    version: int


_encoder = msgspec.msgpack.Encoder()
_head_decoder = msgspec.msgpack.Decoder(_Head)
_decoder = msgspec.msgpack.Decoder(_Message)


@dataclass(frozen=True, slots=True)
class FactBlock:
    """What one copy learned of grants and stated of settlements."""

    copy_id: str
    epoch: int
    grants: list[GrantIssued]
    settlements: list[GrantSettled]


def encode_facts(identity: CopyIdentity, grants: Sequence[GrantIssued], settlements: Sequence[GrantSettled]) -> bytes:
    """Write one message.

    Raises:
        UnencodableBlock: a fact holds a value that the log has no room for.
    """
    message = _Message(
        KIND,
        VERSION,
        identity.copy_id,
        identity.epoch,
        [_grant_row(fact) for fact in grants],
        [_settlement_row(fact) for fact in settlements],
    )
    try:
        data = _encoder.encode(message)
        # What a reader would refuse must not reach the log: the same rules are applied on both sides.
        _decoder.decode(data)
    except (msgspec.DecodeError, UnicodeEncodeError, OverflowError) as error:
        raise UnencodableBlock(f"a fact does not fit the log: {error}") from None
    return data


def decode_facts(data: bytes) -> FactBlock:
    """Read one message.

    Raises:
        CorruptBlock: the bytes are not facts of version 1; says which field and how.
    """
    try:
        head = _head_decoder.decode(data)
        if head.kind != KIND:
            raise CorruptBlock(f"kind is {head.kind[:80]!r}; allowed: {KIND!r}")
        if head.version != VERSION:
            raise CorruptBlock(f"version is {head.version}; allowed: {VERSION}")
        message = _decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise CorruptBlock(f"facts cannot be read: {error}") from None
    if message.epoch >= 1 << 64:
        raise CorruptBlock(f"epoch is {message.epoch}; allowed: below 2**64")
    return FactBlock(
        message.copy_id,
        message.epoch,
        [_grant_fact(row) for row in message.grants],
        [_settlement_fact(row) for row in message.settlements],
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


def _grant_fact(row: _Grant) -> GrantIssued:
    grant = Grant(row.grant_id, row.size, row.k, row.issued_at_us, row.expires_at_us)
    return GrantIssued(row.caller, row.limit, row.policy_version, grant, row.tokens_left)


def _settlement_fact(row: _Settlement) -> GrantSettled:
    settlement = Settlement(row.grant_id, row.spent, row.final, row.cause)
    return GrantSettled(row.caller, row.limit, row.member, settlement, row.at_us)
