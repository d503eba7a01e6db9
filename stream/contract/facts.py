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
#: Of several kinds of facts.
_Caller = Annotated[str, Meta(description="whose bucket it is")]
_Limit = Annotated[str, Meta(description="of which limit")]
_StatedAt = Annotated[
    _AtUs, Meta(description="when it was stated, by the owner's clock where the copy knew it, unix microseconds")
]
_GrantId = Annotated[_Count, Meta(description="of the grant, unique for this bucket")]


class GrantRow(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A grant that the owner has issued to the copy."""

    caller: _Caller
    limit: _Limit
    policy_version: Annotated[_U32, Meta(description="version of the policy that was in force")]
    grant_id: _GrantId
    size: Annotated[_Count, Meta(description="tokens")]
    k: Annotated[_U32, Meta(description="copies that the owner had counted for the caller")]
    issued_at_us: Annotated[_AtUs, Meta(description="owner's clock, unix microseconds")]
    expires_at_us: Annotated[_AtUs, Meta(description="owner's clock, unix microseconds")]
    tokens_left: Annotated[float, Meta(ge=-1e18, le=1e18, description="in the bucket; below 0 while a debt is paid")]


class SettlementRow(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The total that was spent of a grant, as it stands in version 1."""

    caller: _Caller
    limit: _Limit
    member: Annotated[str, Meta(description="whose grant it was: `copy_id/epoch`")]
    grant_id: _GrantId
    spent: Annotated[_Count, Meta(description="tokens, in total")]
    final: Annotated[bool, Meta(description="whether nothing more will be spent of it")]
    cause: Annotated[SettleCause, Meta(description="what made the copy, or the owner, state it")]
    at_us: _StatedAt


class AdjustedSettlementRow(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The total that was spent of a grant, as it stands in version 2."""

    caller: _Caller
    limit: _Limit
    member: Annotated[str, Meta(description="whose grant it was: `copy_id/epoch`")]
    grant_id: _GrantId
    spent: Annotated[_Count, Meta(description="tokens, in total")]
    final: Annotated[bool, Meta(description="whether nothing more will be spent of it")]
    cause: Annotated[SettleCause, Meta(description="what made the copy, or the owner, state it")]
    at_us: _StatedAt
    adjusted: Annotated[
        int, Meta(ge=-(2**63), le=2**63 - 1, description="the part that no decision names; below 0 for refunds")
    ]


class CostRow(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Requests whose cost became known after they were decided: totals of the epoch, for one caller and scope."""

    caller: Annotated[str, Meta(description="whose requests")]
    scope: Annotated[str, Meta(description="of which class of routes")]
    requests: Annotated[_Count, Meta(description="how many")]
    charged: Annotated[_Count, Meta(description="tokens charged later")]
    refunded: Annotated[_Count, Meta(description="tokens given back")]
    at_us: _StatedAt


class FactsMessage(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A message of version 1."""

    kind: Annotated[str, Meta(description="`tallygate.facts`")]
    version: Annotated[int, Meta(description="1, or 2 where there is an adjustment or a cost")]
    copy_id: Annotated[_CopyId, Meta(description="which copy says it")]
    epoch: Annotated[int, Meta(ge=0, description="in which life of it; below 2**64")]
    grants: Annotated[list[GrantRow], Meta(description="grants")]
    settlements: Annotated[list[SettlementRow], Meta(description="settlements")]


class LongFactsMessage(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A message of version 2."""

    kind: Annotated[str, Meta(description="`tallygate.facts`")]
    version: Annotated[int, Meta(description="1, or 2 where there is an adjustment or a cost")]
    copy_id: Annotated[_CopyId, Meta(description="which copy says it")]
    epoch: Annotated[int, Meta(ge=0, description="in which life of it; below 2**64")]
    grants: Annotated[list[GrantRow], Meta(description="grants")]
    settlements: Annotated[
        list[AdjustedSettlementRow], Meta(description="settlements; those of version 1 end before `adjusted`")
    ]
    costs: Annotated[list[CostRow], Meta(description="costs that changed after the fact; not in version 1")]


class _Head(msgspec.Struct, frozen=True, array_like=True):
    kind: str
    version: int


_encoder = msgspec.msgpack.Encoder()
_head_decoder = msgspec.msgpack.Decoder(_Head)
_decoder = msgspec.msgpack.Decoder(FactsMessage)
_long_decoder = msgspec.msgpack.Decoder(LongFactsMessage)


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
    message: FactsMessage | LongFactsMessage
    if is_long:
        paid = [CostRow(*msgspec.structs.astuple(cost)) for cost in costs]
        message = LongFactsMessage(
            KIND, VERSION_WITH_COSTS, *whose, [_adjusted_row(fact) for fact in settlements], paid
        )
    else:
        message = FactsMessage(KIND, VERSION, *whose, [_settlement_row(fact) for fact in settlements])
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


def _grant_row(fact: GrantIssued) -> GrantRow:
    grant = fact.grant
    return GrantRow(
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


def _settlement_row(fact: GrantSettled) -> SettlementRow:
    stated = fact.settlement
    return SettlementRow(
        fact.caller, fact.limit, fact.member, stated.grant_id, stated.spent, stated.final, stated.cause, fact.at_us
    )


def _adjusted_row(fact: GrantSettled) -> AdjustedSettlementRow:
    total = fact.settlement
    whose = (fact.caller, fact.limit, fact.member)
    return AdjustedSettlementRow(
        *whose, total.grant_id, total.spent, total.final, total.cause, fact.at_us, total.adjusted
    )


def _grant_fact(row: GrantRow) -> GrantIssued:
    grant = Grant(row.grant_id, row.size, row.k, row.issued_at_us, row.expires_at_us)
    return GrantIssued(row.caller, row.limit, row.policy_version, grant, row.tokens_left)


def _settlement_fact(row: SettlementRow | AdjustedSettlementRow) -> GrantSettled:
    adjusted = row.adjusted if isinstance(row, AdjustedSettlementRow) else 0
    settlement = Settlement(row.grant_id, row.spent, row.final, row.cause, adjusted=adjusted)
    return GrantSettled(row.caller, row.limit, row.member, settlement, row.at_us)
