"""The page on the block format is what others write readers from: it must say what the code does."""

from __future__ import annotations

import re
from pathlib import Path

from stream.contract import layout
from stream.contract.control import AnyControlEvent
from stream.contract.envelope import CONTROL_EVENT, DECISIONS_EVENT, FACTS_EVENT

PAGE = (Path(__file__).resolve().parents[4] / "docs/reference/block-format.md").read_text()
TYPES = {"H": "u16", "I": "u32", "Q": "u64", "q": "i64", "4s": "4 bytes", "16s": "16 bytes"}


def table_after(heading: str) -> list[list[str]]:
    """The cells of the first table after a heading, without its head."""
    section = PAGE.split(f"\n{heading}\n", 1)[1].split("\n#", 1)[0]
    lines = [line for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines[2:]]


def test_header_table_is_the_header() -> None:
    """Name, width, order and meaning of each field."""
    expected = [[f"`{field.name}`", TYPES[field.code], field.meaning] for field in layout.HEADER_FIELDS]
    assert expected == table_after("### Header")


def test_column_table_is_the_columns() -> None:
    """Name, rows, range and meaning of each column."""
    expected = [
        [f"`{column.name}`", column.rows, str(column.low), str(column.high), column.meaning]
        for column in layout.COLUMNS
    ]
    assert expected == table_after("### Columns")


def test_control_table_names_every_kind_and_its_fields() -> None:
    """A kind that is not on the page does not exist for a reader."""
    shared = {"copy_id", "epoch", "at_us", "version", "owner_offset_us"}
    expected = {event.kind: set(event.__struct_fields__) - shared for event in AnyControlEvent.__args__}
    found = {
        kind.strip("`"): set(re.findall(r"`(\w+)`", fields))
        for kind, fields in table_after("## Control events, version 1")
    }
    assert expected == found


def test_event_types_stand_on_the_page() -> None:
    """Consumers subscribe and dispatch by them."""
    for event in (DECISIONS_EVENT, FACTS_EVENT, CONTROL_EVENT):
        assert f"`{event.name}` | `{event.content_type}`" in PAGE
