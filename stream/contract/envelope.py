"""CloudEvents 1.0 attributes as Kafka headers (binary content mode). Reads no clock and talks to nobody."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, TypeAlias

from enforcer.identity import CopyIdentity

Headers: TypeAlias = list[tuple[str, bytes]]


@dataclass(frozen=True, slots=True)
class EventType:
    """What a topic's messages are: their type, the letter that begins their ids, and their content type."""

    name: str
    letter: str
    content_type: str


DECISIONS_EVENT: Final = EventType("tallygate.decisions.v1", "d", "application/vnd.tallygate.block")
FACTS_EVENT: Final = EventType("tallygate.facts.v1", "f", "application/vnd.tallygate.facts+msgpack")
USAGE_EVENT: Final = EventType("tallygate.usage.v1", "u", "application/vnd.tallygate.usage+msgpack")
CONTROL_EVENT: Final = EventType("tallygate.control.v1", "c", "application/json")


def event_headers(event: EventType, identity: CopyIdentity, number: int) -> Headers:
    """The headers of one message; `number` is unique in the copy's epoch among messages of this type."""
    return [
        ("ce_specversion", b"1.0"),
        ("ce_id", f"{event.letter}{number}".encode()),
        ("ce_source", f"/tallygate/copies/{identity.copy_id}/{identity.epoch}".encode()),
        ("ce_type", event.name.encode()),
        ("content-type", event.content_type.encode()),
    ]
