"""Control events on the log, one JSON object a message: a copy's start and stop, degraded state, and what was lost.

Reads no clock and talks to nobody.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Final, Literal, TypeAlias

import msgspec
from msgspec import Meta

from stream.contract.layout import AT_US_MAX, COPY_ID_PATTERN, CorruptBlock

VERSION: Final = 1

_CopyId = Annotated[str, Meta(pattern=COPY_ID_PATTERN)]
_Count = Annotated[int, Meta(ge=0, le=2**63 - 1)]
_AtUs = Annotated[int, Meta(ge=0, le=AT_US_MAX)]


class ControlEvent(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind"):
    """What every control event says: which copy, in which life, and when by its wall clock (unix microseconds)."""

    kind: ClassVar[str] = ""

    copy_id: _CopyId
    epoch: Annotated[int, Meta(ge=0)]
    at_us: _AtUs
    version: Literal[1] = 1


class CopyStarted(ControlEvent, frozen=True, kw_only=True, tag="copy_started"):
    """The copy began to record; its first decision has seq 0."""

    kind: ClassVar[str] = "copy_started"


class CopyStopped(ControlEvent, frozen=True, kw_only=True, tag="copy_stopped"):
    """The copy ended in order; `next_seq` is one past its last decision."""

    kind: ClassVar[str] = "copy_stopped"

    next_seq: _Count


class DegradeChanged(ControlEvent, frozen=True, kw_only=True, tag="degrade_changed"):
    """The copy began (or ceased) to decide without an owner; `owner` is its address without credentials."""

    kind: ClassVar[str] = "degrade_changed"

    owner: str
    entered: bool
    cause: str


class DecisionsLost(ControlEvent, frozen=True, kw_only=True, tag="decisions_lost"):
    """Decisions ``first_seq … first_seq + count - 1`` were taken and will never be on the log."""

    kind: ClassVar[str] = "decisions_lost"

    first_seq: _Count
    count: Annotated[int, Meta(ge=1, le=2**63 - 1)]
    cause: str


class FactsLost(ControlEvent, frozen=True, kw_only=True, tag="facts_lost"):
    """So many grants and settlements of this copy, in all its epoch, will never be on the log: a total."""

    kind: ClassVar[str] = "facts_lost"

    total: Annotated[int, Meta(ge=1, le=2**63 - 1)]


class SoftLimitReached(ControlEvent, frozen=True, kw_only=True, tag="soft_limit_reached"):
    """So much of a limit is used that its caller should be warned; `subject` is whose bucket it is."""

    kind: ClassVar[str] = "soft_limit_reached"

    subject: str
    limit: str
    policy_version: _Count
    used_share: Annotated[float, Meta(ge=0, le=1)]
    k: _Count


class WouldRefuse(ControlEvent, frozen=True, kw_only=True, tag="would_refuse"):
    """A limit in shadow mode would have refused so many requests of this epoch, of so many tokens: totals."""

    kind: ClassVar[str] = "would_refuse"

    caller: str
    scope: str
    limit: str
    policy_version: _Count
    requests: _Count
    cost: _Count


class PolicyChanged(ControlEvent, frozen=True, kw_only=True, tag="policy_changed"):
    """A policy was loaded; or, if there are `faults`, was refused, and `policy_version` stays in force."""

    kind: ClassVar[str] = "policy_changed"

    policy_version: _Count
    digest: str
    source: str
    faults: tuple[str, ...]


AnyControlEvent: TypeAlias = (
    CopyStarted
    | CopyStopped
    | DegradeChanged
    | DecisionsLost
    | FactsLost
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
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise CorruptBlock(f"control event cannot be read: {error}") from None
    if event.epoch >= 1 << 64:
        raise CorruptBlock(f"epoch is {event.epoch}; allowed: below 2**64")
    return event
