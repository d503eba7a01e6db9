"""The usage message: whatever the bytes, a block in which every index points somewhere, or an error that says why."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream.contract.layout import I64_MAX, CorruptBlock
from stream.contract.usage import USAGE_COLUMNS, USAGE_COUNTS, UsageBlock, UsageMinute, decode_usage, encode_usage

NUMBERS = st.integers(0, I64_MAX) | st.integers(0, 300)


@st.composite
def minutes(draw: st.DrawFn) -> UsageMinute:
    callers = draw(st.lists(st.text(max_size=8), min_size=1, max_size=9, unique=True))
    copies = draw(st.lists(st.text(max_size=5), max_size=20, unique=True))
    rows = len(callers)

    def column(width: int) -> Any:
        return np.array(draw(st.lists(NUMBERS, min_size=rows * width, max_size=rows * width)), np.int64)

    reached = draw(st.lists(st.booleans(), min_size=rows * len(copies), max_size=rows * len(copies)))
    bits = np.packbits(np.array(reached, np.uint8).reshape(rows, len(copies)), axis=1, bitorder="little")
    counts = column(len(USAGE_COUNTS)).reshape(rows, -1)
    return UsageMinute(draw(st.integers(0, 71_000_000)), callers, copies, column(1), column(1), counts, bits)


def _plain(block: UsageBlock) -> Any:
    return [
        (
            *(one.minute, list(one.callers), list(one.copies), one.version.tolist(), one.k_counted.tolist()),
            *(one.counts.tolist(), one.reached.tolist()),
        )
        for one in block.minutes
    ]


@given(st.lists(minutes(), max_size=3), st.integers(0, 65_535))
def test_usage_is_read_as_it_was_written(parts: list[UsageMinute], source: int) -> None:
    """A total that changes on the way is a wrong alarm."""
    block = UsageBlock("0b6f", source, parts)

    found = decode_usage(encode_usage(block))

    assert (found.table_id, found.source_partition, _plain(found)) == ("0b6f", source, _plain(block))


def _message() -> list[Any]:
    one = UsageMinute(
        minute=28_333_333,
        callers=["acme", "b"],
        copies=["gw-1", "gw-2", "gw-3"],
        version=np.array([7, 9]),
        k_counted=np.array([1, 2]),
        counts=np.arange(2 * len(USAGE_COUNTS)).reshape(2, -1) * 300,
        reached=np.array([[0b101], [0b010]], np.uint8),
    )
    message: list[Any] = msgspec.msgpack.decode(encode_usage(UsageBlock("t", 3, [one])))
    return message


def _set(*path: int) -> Callable[[list[Any], Any], None]:
    def change(message: list[Any], value: Any) -> None:
        for step in path[:-1]:
            message = message[step]
        message[path[-1]] = value

    return change


@pytest.mark.parametrize(
    ("change", "value", "said"),
    [
        (_set(0), "tallygate.facts", "kind"),
        (_set(1), 2, "version is 2"),
        (_set(3), -1, "cannot be read"),
        (_set(4, 0, 0), 2**32, "cannot be read"),
        (_set(4, 0, 1), ["acme", "acme"], "holds a name twice"),
        (_set(4, 0, 1), [], "cannot be read"),
        (_set(4, 0, 2), ["gw-1", "gw-1"], "holds a name twice"),
        (_set(4, 0, 3, 0), [1, 0, b"abc"], "column version is 3 bytes long; allowed: 2"),
        (_set(4, 0, 3, 0), [9, 0, b""], "cannot be read"),
        (_set(4, 0, 3, 2), [8, 1, b"\xff" * 16], "column offered holds"),
        (_set(4, 0, 3), [], "cannot be read"),
        (_set(4, 0, 4), b"\x01", "reached is 1 bytes long; allowed: 2"),
        (_set(4, 0, 4), b"\x01\x08", "beyond the 3 that are listed"),
    ],
)
def test_usage_that_was_tampered_with_is_refused(
    change: Callable[[list[Any], Any], None], value: Any, said: str
) -> None:
    """Whoever can write to the topic must not be able to stop, or fill, its reader."""
    message = _message()
    change(message, value)

    with pytest.raises(CorruptBlock, match=said):
        decode_usage(msgspec.msgpack.encode(message))


@given(st.binary(max_size=200))
def test_any_bytes_are_usage_or_are_refused(data: bytes) -> None:
    """No other error may come out, for it would end the process."""
    try:
        decode_usage(data)
    except CorruptBlock:
        return


def test_usage_has_a_column_for_everything_that_is_counted() -> None:
    """A count without a column would be lost between the two stages."""
    assert [column.name for column in USAGE_COLUMNS] == ["version", "k_counted", *USAGE_COUNTS]
