"""The event reference is the contract, printed: whoever reads the log by it reads what is written."""

from __future__ import annotations

import logging
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from aggregator.core.record.letters import DeadLetter
from aggregator.recorder import dead_letters
from stream import reference
from stream.contract import control, layout, topics
from stream.contract.codec import encode_block
from tests.verdicts import verdict

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "events.md"


def test_page_is_what_the_generator_prints() -> None:
    """``python -m stream.reference > docs/reference/events.md`` writes it anew."""
    assert reference.events_page() == PAGE.read_text()


def test_page_has_every_topic_every_event_and_every_field() -> None:
    """A page that was printed from half of the contract would still equal itself."""
    page = PAGE.read_text()
    for topic in topics.TOPICS:
        assert f"\n## `{topic.name}`\n" in page
    for event in control.AnyControlEvent.__args__:
        (section,) = re.findall(rf"^### `{event.kind}`\n(.*?)(?=^##|\Z)", page, re.MULTILINE | re.DOTALL)
        own = set(event.__struct_fields__) - set(control.ControlEvent.__struct_fields__)
        assert own == set(re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE))
    fields = [one.name for one in layout.HEADER_FIELDS]
    fields += [one.name for one in layout.COLUMNS] + [one.name for one in layout.NAME_LISTS]
    assert [] == [name for name in fields if f"\n| `{name}` |" not in page]


def test_a_field_without_words_is_no_reference(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever adds a field must say what it means, or the page cannot be printed."""

    class Bare(control.ControlEvent, frozen=True, kw_only=True, tag="bare"):
        """An event with a field that nobody has described."""

        oddity: int

    monkeypatch.setattr(control, "AnyControlEvent", control.CopyStarted | Bare)
    with pytest.raises(ValueError, match=r"Bare\.oddity has no description"):
        reference.events_page()
    monkeypatch.setattr(topics, "TOPICS", (*topics.TOPICS, topics.Topic("tallygate.new", 1)))
    with pytest.raises(KeyError, match=r"tallygate\.new"):
        reference.events_page()


def test_lists_of_names_are_those_of_a_block() -> None:
    """Their order is all that a reader has to tell them apart."""
    data = encode_block([verdict(0)], copy_id="a", epoch=1, first_seq=0, sealed_at_us=1, clock_offset_ns=0)
    at = layout.HEADER.size + layout.DESCRIPTORS.size + 1
    size = layout.HEADER.unpack_from(data)[[field.name for field in layout.HEADER_FIELDS].index("names_bytes")]
    assert len(layout.NAME_LISTS) == len(msgspec.msgpack.decode(data[at : at + size]))


def test_headers_of_a_dead_letter_are_those_that_the_recorder_writes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever sends it again needs the place where it stood."""
    sent: list[dict[str, Any]] = []

    class Producer:
        def __init__(self, settings: dict[str, Any]) -> None:
            """Connect to nothing."""

        def produce(self, *_message: object, **more: Any) -> None:
            sent.append(more)

        def flush(self, _timeout_s: float) -> int:
            return 0

    monkeypatch.setattr(dead_letters, "Producer", Producer)
    letter = DeadLetter("tallygate.decisions", 1, 2, 3, "torn", b"key", b"value")
    dead_letters.DeadLetterTopic("nowhere:1", logging.getLogger("test")).send([letter])
    (message,) = sent
    assert list(reference.DEAD_LETTER_HEADERS) == [name for name, _ in message["headers"]]
