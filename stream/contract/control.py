"""Control events on the log, one JSON object a message: a copy's life, degraded state, losses, anchors of the chain.

Reads no clock and talks to nobody.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Final, Literal, TypeAlias

import msgspec
from msgspec import Meta

from stream.contract.layout import AT_US_MAX, COPY_ID_PATTERN, CorruptBlock

VERSION: Final = 1

_CopyId = Annotated[str, Meta(pattern=COPY_ID_PATTERN)]
_Epoch = Annotated[int, Meta(ge=0)]
_Count = Annotated[int, Meta(ge=0, le=2**63 - 1)]
_Some = Annotated[int, Meta(ge=1, le=2**63 - 1)]
_AtUs = Annotated[int, Meta(ge=0, le=AT_US_MAX)]
_OffsetUs = Annotated[int, Meta(ge=-AT_US_MAX, le=AT_US_MAX)]
_Hash = Annotated[str, Meta(pattern=r"^[0-9a-f]{32}\Z")]
_Share = Annotated[float, Meta(ge=0, le=1)]
#: Of several kinds of events.
_PolicyVersion = Annotated[_Count, Meta(description="version of the policy that is in force")]
_Limit = Annotated[str, Meta(description="which limit of it")]


class ControlEvent(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind"):
    """What every control event says: which copy, in which life, and when by its wall clock (unix microseconds)."""

    kind: ClassVar[str] = ""

    copy_id: Annotated[_CopyId, Meta(description="which copy")]
    epoch: Annotated[_Epoch, Meta(description="in which life of it; below 2**64")]
    at_us: Annotated[_AtUs, Meta(description="when, by its wall clock, unix microseconds")]
    version: Annotated[Literal[1], Meta(description="of the layout of control events")] = 1
    owner_offset_us: Annotated[
        _OffsetUs | msgspec.UnsetType,
        Meta(description="the owner's clock minus this wall clock, µs; left out while unknown"),
    ] = msgspec.UNSET


class CopyStarted(ControlEvent, frozen=True, kw_only=True, tag="copy_started"):
    """The copy began to record; its first decision has seq 0."""

    kind: ClassVar[str] = "copy_started"


class CopyStopped(ControlEvent, frozen=True, kw_only=True, tag="copy_stopped"):
    """The copy ended in order; `next_seq` is one past its last decision."""

    kind: ClassVar[str] = "copy_stopped"

    next_seq: Annotated[_Count, Meta(description="one past the last decision")]


class CopyFound(ControlEvent, frozen=True, kw_only=True, tag="copy_found"):
    """The life `epoch` ended without a stop: its successor, of epoch `by`, has found and ships what that left.

    `next_seq` is one past the last decision that was found; null where nothing was, where the end of it is damaged, and
    where the disk had taken no more.
    """

    kind: ClassVar[str] = "copy_found"

    by: Annotated[_Epoch, Meta(description="epoch of the life that found it; below 2**64")]
    next_seq: Annotated[_Count | None, Meta(description="one past the last decision that was found")]


class Anchor(ControlEvent, frozen=True, kw_only=True, tag="anchor"):
    """How far the epoch's chain of blocks had come: whoever cuts its tail off must cut this off as well.

    `blocks` have been sealed; the last of them has the hash `head`, and `next_seq` is one past its last decision.
    """

    kind: ClassVar[str] = "anchor"

    next_seq: Annotated[_Count, Meta(description="one past the last decision of the last block")]
    head: Annotated[_Hash, Meta(description="hash of the last block, hexadecimal")]
    blocks: Annotated[_Some, Meta(description="blocks that were sealed so far")]


class DegradeChanged(ControlEvent, frozen=True, kw_only=True, tag="degrade_changed"):
    """The copy began (or ceased) to decide without an owner; `owner` is its address without credentials."""

    kind: ClassVar[str] = "degrade_changed"

    owner: Annotated[str, Meta(description="address of the owner, without credentials")]
    entered: Annotated[bool, Meta(description="whether it began")]
    cause: Annotated[str, Meta(description="why, for people")]


class DecisionsLost(ControlEvent, frozen=True, kw_only=True, tag="decisions_lost"):
    """Decisions ``first_seq … first_seq + count - 1`` were taken and will never be on the log."""

    kind: ClassVar[str] = "decisions_lost"

    first_seq: Annotated[_Count, Meta(description="seq of the first of them")]
    count: Annotated[_Some, Meta(description="how many")]
    cause: Annotated[str, Meta(description="why, for people")]


class FactsLost(ControlEvent, frozen=True, kw_only=True, tag="facts_lost"):
    """So many grants and settlements of this copy, in all its epoch, will never be on the log: a total."""

    kind: ClassVar[str] = "facts_lost"

    total: Annotated[_Some, Meta(description="so many of this epoch so far")]


class SoftLimitReached(ControlEvent, frozen=True, kw_only=True, tag="soft_limit_reached"):
    """So much of a limit is used that its caller should be warned; `subject` is whose bucket it is."""

    kind: ClassVar[str] = "soft_limit_reached"

    subject: Annotated[str, Meta(description="whose bucket it is")]
    limit: _Limit
    policy_version: _PolicyVersion
    used_share: Annotated[_Share, Meta(description="how much of the burst, or of the quota, is used")]
    k: Annotated[_Count, Meta(description="copies that the owner had counted for the caller")]


class WouldRefuse(ControlEvent, frozen=True, kw_only=True, tag="would_refuse"):
    """A limit in shadow mode would have refused so many requests of this epoch, of so many tokens: totals."""

    kind: ClassVar[str] = "would_refuse"

    caller: Annotated[str, Meta(description="whose requests")]
    scope: Annotated[str, Meta(description="of which class of routes")]
    limit: _Limit
    policy_version: _PolicyVersion
    requests: Annotated[_Count, Meta(description="how many of this epoch so far")]
    cost: Annotated[_Count, Meta(description="tokens of these requests")]


class PolicyChanged(ControlEvent, frozen=True, kw_only=True, tag="policy_changed"):
    """A policy was loaded; or, if there are `faults`, was refused, and `policy_version` stays in force."""

    kind: ClassVar[str] = "policy_changed"

    policy_version: _PolicyVersion
    digest: Annotated[str, Meta(description="hash of the document that was read")]
    source: Annotated[str, Meta(description="where it was read, without credentials")]
    faults: Annotated[tuple[str, ...], Meta(description="why it was refused; empty if it was taken")]


AnyControlEvent: TypeAlias = (
    CopyStarted
    | CopyStopped
    | Anchor
    | DegradeChanged
    | DecisionsLost
    | FactsLost
    | CopyFound
    | SoftLimitReached
    | WouldRefuse
    | PolicyChanged
)

_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(AnyControlEvent)


def encode_control(event: AnyControlEvent) -> bytes:
    """Write one event."""
    return _encoder.encode(event)


def decode_control(data: bytes) -> AnyControlEvent:
    """Read one event; fields that this version does not know are ignored.

    Raises:
        CorruptBlock: the bytes are not a control event; says which field and how.
    """
    try:
        event: AnyControlEvent = _decoder.decode(data)
        # Text of fields that are not known was skipped unread, and whoever keeps the event keeps it as text.
        data.decode()
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise CorruptBlock(f"control event cannot be read: {error}") from None
    for name, epoch in (("epoch", event.epoch), ("by", event.by if isinstance(event, CopyFound) else 0)):
        if epoch >= 1 << 64:
            raise CorruptBlock(f"{name} is {epoch}; allowed: below 2**64")
    return event
