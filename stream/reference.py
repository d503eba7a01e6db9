"""Prints the event reference, every message and every field of it, out of the contract: ``python -m stream.reference``.

``docs/reference/events.md`` is its output, and a test compares the two. It never describes what the code does not have:
a topic, an event or a field without words is an error here.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from inspect import cleandoc
from typing import Any, Final

import msgspec
from msgspec import inspect as types

from enforcer.identity import CopyIdentity
from enforcer.types import Reason, Source
from stream.contract import control, facts, layout, topics, usage
from stream.contract.envelope import (
    CONTROL_EVENT,
    DECISIONS_EVENT,
    FACTS_EVENT,
    USAGE_EVENT,
    EventType,
    event_headers,
)

_HEADERS: Final = {
    "ce_specversion": "version of CloudEvents: `1.0`",
    "ce_id": "unique among the messages of this source",
    "ce_source": "the copy and its epoch: `/tallygate/copies/COPY_ID/EPOCH`",
    "ce_type": "the kind of message",
    "content-type": "how the value is written",
}
#: Of a message of the dead-letters topic; the recorder writes them.
DEAD_LETTER_HEADERS: Final = {
    "reason": "why it could not be read, a sentence",
    "topic": "where it stood",
    "partition": "where it stood, a decimal number",
    "offset": "where it stood, a decimal number",
}
_WIDTHS: Final = {"H": "u16", "I": "u32", "Q": "u64", "q": "i64", "4s": "4 bytes", "16s": "16 bytes"}
_PLAIN_WORDS: Final[dict[type[types.Type], str]] = {
    types.BoolType: "true or false",
    types.BytesType: "bytes",
    types.NoneType: "null",
    types.StructType: "arrays",
}
_DAY_MS: Final = 86_400_000

Lines = Iterator[str]


def events_page() -> str:
    """The whole page.

    Raises:
        KeyError: a topic, a header or a type has no words here.
        ValueError: a field has no description in the contract.
    """
    lines = [
        "# Events: every message and every field",
        "",
        "Written by `python -m stream.reference` out of `stream/contract/`; a test compares this page with the code.",
        "How the bytes of a block are laid out: [the log, byte by byte](block-format.md).",
        "",
        "| topic | key | kept | what |",
        "|---|---|---|---|",
    ]
    for topic in topics.TOPICS:
        key, what, _ = _TOPICS[topic.name]
        lines.append(f"| `{topic.name}` | {key} | {_kept(topic)} | {what} |")
    lines += ["", *_envelope()]
    for topic in topics.TOPICS:
        lines += ["", f"## `{topic.name}`", "", *_TOPICS[topic.name][2]()]
    return "\n".join(lines) + "\n"


def _kept(topic: topics.Topic) -> str:
    if topic.retention_ms < _DAY_MS:
        return f"{topic.retention_ms // 60_000} minutes"
    return f"{topic.retention_ms / _DAY_MS:g} days"


def _envelope() -> Lines:
    yield from (
        "Every message that a copy sends has these Kafka headers ([CloudEvents 1.0](https://cloudevents.io)). Event",
        "time is a field of the message, never the timestamp of the Kafka record.",
        "",
    )
    names = [name for name, _ in event_headers(CONTROL_EVENT, CopyIdentity("copy", 1), 0)]
    yield from _table(("header", "meaning"), ((f"`{name}`", _HEADERS[name]) for name in names))


def _decisions() -> Lines:
    yield from _typed(DECISIONS_EVENT)
    yield from (
        "The value is a block: decisions `first_seq … first_seq + decisions - 1` of one copy in one epoch, or none,",
        "as a sign of life. A decision is identified by copy id, epoch and seq.",
        "",
        "Fields of the block:",
        "",
    )
    fields = ((f"`{field.name}`", _WIDTHS[field.code], field.meaning) for field in layout.HEADER_FIELDS)
    yield from _table(("field", "type", "meaning"), fields)
    yield from ("", "Beside `copy_id`, a text, it has these lists, to which the columns point:", "")
    names = [(f"`{one.name}`", f"list of {one.items}", one.meaning) for one in layout.NAME_LISTS]
    rates = ("`rates`", "list of f64", "of each plan: tokens per second")
    yield from _table(("list", "type", "meaning"), [*names, rates])
    yield from (
        "",
        "Columns. Those of *decisions* have a value for each decision; *gaps* for each but the first; *refusals* for",
        "each that was refused; *bases* for each entry of the dictionary that column `basis` points into; *plans* for",
        "each plan.",
        "",
    )
    columns = (
        (f"`{column.name}`", column.rows, f"integer, {column.low} to {column.high}", column.meaning)
        for column in layout.COLUMNS
    )
    yield from _table(("column", "of", "type", "meaning"), columns)
    yield from ("", f"Sources: {_numbers(Source)}. Reasons: {_numbers(Reason)}.")


def _facts() -> Lines:
    yield from _typed(FACTS_EVENT)
    yield from (
        "The value is one MessagePack array of the fields of the first table, in that order; grants, settlements and",
        "costs are arrays of the fields of theirs. Every number is a total: to read a message twice changes nothing.",
    )
    for title, row in (
        ("The message", facts.LongFactsMessage),
        ("A grant", facts.GrantRow),
        ("A settlement", facts.AdjustedSettlementRow),
        ("A cost", facts.CostRow),
    ):
        yield from ("", f"### {title}", "", cleandoc(row.__doc__ or ""), "")
        yield from _fields(row)


def _control() -> Lines:
    yield from _typed(CONTROL_EVENT)
    yield from ("The value is one JSON object. A reader ignores fields that it does not know. All events have:", "")
    yield "| field | type | meaning |"
    yield "|---|---|---|"
    yield "| `kind` | text | which of the events below it is |"
    yield from list(_fields(control.ControlEvent))[2:]
    shared = set(control.ControlEvent.__struct_fields__)
    for event in control.AnyControlEvent.__args__:
        yield from ("", f"### `{event.kind}`", "", *cleandoc(event.__doc__ or "").splitlines())
        if set(event.__struct_fields__) > shared:
            yield ""
            yield from _fields(event, without=shared)


def _usage() -> Lines:
    yield from _typed(USAGE_EVENT)
    yield from (
        "What the worker tells the second stage. The value is one MessagePack array of the fields of the first table,",
        "in that order; minutes and columns are arrays of the fields of theirs. Each row is a total under (source",
        "partition, minute, caller) at a version, a position in the log of the source partition: the highest stands.",
    )
    for title, row in (
        ("The usage message", usage.UsageMessage),
        ("A minute of it", usage.UsageMinuteRow),
        ("A column of it", usage.UsageColumn),
    ):
        yield from ("", f"### {title}", "", cleandoc(row.__doc__ or ""), "")
        yield from _fields(row)


def _dead_letters() -> Lines:
    yield from (
        "The value and the key are those of the message that could not be read, as they were. Kafka headers:",
        "",
    )
    yield from _table(("header", "meaning"), ((f"`{name}`", meaning) for name, meaning in DEAD_LETTER_HEADERS.items()))


#: What a topic's messages are keyed by, what they are, and their section of the page.
_TOPICS: Final[dict[str, tuple[str, str, Callable[[], Lines]]]] = {
    topics.DECISIONS.name: ("copy id", "every decision, in blocks", _decisions),
    topics.GRANTS.name: ("copy id; the partition is that of the caller", "grants, settlements, later costs", _facts),
    topics.CONTROL.name: ("copy id", "what copies tell of themselves", _control),
    topics.USAGE.name: ("none; the partition is that of the caller", "totals by caller, for the second stage", _usage),
    topics.DEAD_LETTERS.name: ("as it was", "messages that could not be read", _dead_letters),
}


def _typed(event: EventType) -> Lines:
    yield from (f"`ce_type`: `{event.name}`, `content-type`: `{event.content_type}`.", "")


def _fields(struct: type[msgspec.Struct], without: Iterable[str] = ()) -> Lines:
    described = types.type_info(struct)
    if not isinstance(described, types.StructType):
        raise TypeError(f"{struct.__name__} is no struct")
    rows = [
        (f"`{field.encode_name}`", _words(field.type), _description(struct, field))
        for field in described.fields
        if field.name not in without
    ]
    return _table(("field", "type", "meaning"), rows)


def _description(struct: type[msgspec.Struct], field: types.Field) -> str:
    said = field.type.extra_json_schema if isinstance(field.type, types.Metadata) else None
    if not said or not said.get("description"):
        raise ValueError(f"{struct.__name__}.{field.name} has no description: Annotated[…, Meta(description=…)]")
    return str(said["description"])


def _words(kind: types.Type) -> str:
    """The type as a person says it, with its limits."""
    match kind:
        case types.Metadata():
            words = _words(kind.type)
        case types.IntType():
            words = "integer" + _limits(kind.ge, kind.le)
        case types.FloatType():
            words = "number" + _limits(kind.ge, kind.le)
        case types.StrType():
            words = "text" if kind.pattern is None else f"text, `{kind.pattern}`"
        case types.LiteralType():
            words = " or ".join(map(str, kind.values))
        case types.EnumType():
            words = f"integer: {_numbers(kind.cls)}"
        case types.ListType() | types.VarTupleType():
            words = f"list of {_words(kind.item_type)}"
        case types.UnionType():
            words = " or ".join(_words(one) for one in kind.types)
        case _:
            words = _PLAIN_WORDS[type(kind)]
    return words


def _limits(low: float | None, high: float | None) -> str:
    if low is None and high is None:
        return ""
    return f", from {low:g}" if high is None and low is not None else f", {_number(low)} to {_number(high)}"


def _number(value: float | None) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _numbers(enum: Any) -> str:
    return ", ".join(f"{member.value} {member.name.lower()}" for member in enum)


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> Lines:
    yield f"| {' | '.join(head)} |"
    yield "|" + "---|" * len(head)
    for row in rows:
        yield f"| {' | '.join(row)} |"


if __name__ == "__main__":
    sys.stdout.write(events_page())
