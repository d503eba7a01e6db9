"""Exported rows: the same numbers in every format, the same bytes every time, and no cell that a spreadsheet runs."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aggregator.audit import exported
from aggregator.audit.exported import FORMATS, SCHEMA, whole_row
from aggregator.pieces import Cell, cut
from aggregator.words import Span

START = datetime(2026, 1, 2, tzinfo=UTC)
NAMES = SCHEMA.names


def _rows(count: int, **fixed: Any) -> list[list[Any]]:
    made = []
    for number in range(count):
        row: dict[str, Any] = {
            "at": START + timedelta(microseconds=number), "caller": "acct-ü", "scope": '/a,"b"',
            "allowed": number % 2 == 0,
            "source": "local", "reason": "none", "limit": "rate", "plan": "pro", "rate_per_s": 0.1, "burst": 2**32 - 1,
            "per": "", "cost_tokens": 1, "remaining_tokens": -(2**63), "retry_after_ms": -1, "policy_version": 3,
            "grant_id": 2**64 - 1, "k": 4, "charges": [("site", "rate", 2**63 + 1)] if number % 3 == 0 else [],
            "copy_id": "gw-1", "epoch": 2**63 + 1, "seq": number, "log_partition": 1, "log_offset": 2**53 + 1,
        } | fixed  # fmt: skip
        made.append(whole_row([row[name] for name in NAMES[1:]]))
    return made


def _written(form: str, rows: Sequence[list[Any]], *, pieces: int = 1) -> bytes:
    target = io.BytesIO()
    writer = FORMATS[form](target)
    for start in range(0, len(rows), max(len(rows) // pieces, 1)):
        writer.write(rows[start : start + max(len(rows) // pieces, 1)])
    writer.finish()
    return target.getvalue()


def _csv(data: bytes) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(data.decode(), newline="")))


def _plain(row: dict[str, Any]) -> dict[str, str]:
    """A row of any format as text, so that rows of all of them can be compared."""
    said = {}
    for name, value in row.items():
        if name == "charges":
            charges = json.loads(value or "[]") if isinstance(value, str) else value
            said[name] = str([(one["subject"], one["limit"], int(one["grant_id"])) for one in charges])
        elif isinstance(value, bool):
            said[name] = str(value).lower()
        elif isinstance(value, datetime):
            said[name] = value.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        else:
            said[name] = str(value)
    return said


def test_formats_hold_the_same_numbers() -> None:
    """A dispute is not about which file was sent."""
    rows = _rows(7)
    from_csv = [_plain(row) for row in _csv(_written("csv", rows))]
    from_json = [_plain(json.loads(line)) for line in _written("jsonl", rows).decode().splitlines()]
    from_parquet = [_plain(row) for row in pq.read_table(pa.BufferReader(_written("parquet", rows))).to_pylist()]
    assert 7 == len(from_csv)
    assert from_csv == from_json == from_parquet
    first = from_csv[0]
    assert ("gw-1-1y2p0ij32e8e9-0", "18446744073709551615") == (first["request_id"], first["grant_id"])
    assert ("2026-01-02T00:00:00.000000Z", "-9223372036854775808") == (first["at"], first["remaining_tokens"])


@pytest.mark.parametrize("form", FORMATS)
def test_bytes_do_not_depend_on_the_pieces_in_which_rows_come(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """How the record is asked is our affair; the file's hash is everybody's."""
    monkeypatch.setattr(exported, "ROW_GROUP", 40)
    rows = _rows(100)
    whole = _written(form, rows)
    assert whole == _written(form, rows, pieces=7) == _written(form, rows, pieces=100)
    assert whole != _written(form, rows[:-1])


def test_parquet_has_no_metadata_but_its_writers_name() -> None:
    """A time or a machine's name in it would change the hash of the same record."""
    metadata = pq.ParquetFile(pa.BufferReader(_written("parquet", _rows(3)))).metadata
    assert metadata.metadata is None
    assert metadata.created_by.startswith("parquet-cpp-arrow version")


@pytest.mark.parametrize("start", ["=", "+", "-", "@", "\t", "\r"])
def test_csv_has_no_text_that_a_spreadsheet_runs(start: str) -> None:
    """A scope or a caller is what somebody else chose; the other formats have it as it is."""
    rows = _rows(1, scope=f"{start}HYPERLINK(1)", plan="a=b")
    (found,) = _csv(_written("csv", rows))
    assert (f"'{start}HYPERLINK(1)", "a=b", "-1") == (found["scope"], found["plan"], found["retry_after_ms"])
    assert f"{start}HYPERLINK(1)" == json.loads(_written("jsonl", rows))["scope"]


def test_csv_is_what_rfc_4180_says() -> None:
    """Lines end with CR LF, quotes are doubled, the first line has the names."""
    lines = _written("csv", _rows(1)).split(b"\r\n")
    assert [",".join(NAMES).encode(), b""] == [lines[0], lines[-1]]
    assert b'"/a,""b"""' in lines[1]
    assert "acct-ü".encode() in lines[1]


_LENGTHS = st.lists(st.tuples(st.sampled_from([1, 60]), st.integers(0, 3), st.integers(1, 300)), max_size=30)


@given(_LENGTHS, st.integers(0, 900_000_000), st.integers(1, 900_000_000))
def test_cut_covers_every_time_once_and_never_too_much(
    lengths: list[tuple[int, int, int]], from_us: int, length_us: int
) -> None:
    """A second left out is evidence lost, one asked twice is evidence doubled."""
    span = Span(from_us, from_us + length_us)
    cells, at_s = list[Cell](), 0
    for seconds, gap, count in lengths:
        cells.append(Cell(at_s + gap, seconds, count))
        at_s += gap + seconds
    cells = [one for one in cells if one.start_s * 10**6 < span.to_us and (one.start_s + one.seconds) * 10**6 > from_us]
    pieces = list(cut(span, cells, most=100))
    assert all(one.to_us <= later.from_us for one, later in pairwise(pieces))
    assert all(span.from_us <= one.from_us and one.to_us <= span.to_us for one in pieces)
    inside = [[cell for cell in cells if _meets(one, cell)] for one in pieces]
    assert cells == [cell for many in inside for cell in many], "each in one piece"
    assert all(len(many) == 1 or sum(cell.decisions for cell in many) <= 100 for many in inside)
    for one, many in zip(pieces, inside, strict=True):
        assert max(many[0].start_s * 10**6, from_us) == one.from_us
        assert min((many[-1].start_s + many[-1].seconds) * 10**6, span.to_us) == one.to_us


def _meets(span: Span, cell: Cell) -> bool:
    return span.from_us < (cell.start_s + cell.seconds) * 10**6 and span.to_us > cell.start_s * 10**6
