"""Raw decisions as files: CSV, JSON lines and Parquet of the same numbers, and the same bytes of the same rows.

Asks no database, reads no clock, and writes nothing into a file that the rows do not say. A text that a spreadsheet
would take for a formula stands behind an apostrophe in CSV; the other two formats have it as it is.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from datetime import datetime
from typing import Any, BinaryIO, Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from enforcer.identity import CopyIdentity, format_request_id

#: Decisions in a Parquet row group, and so held in memory at a time; part of the format, for the bytes follow from it.
ROW_GROUP = 65_536
_CHARGE = pa.struct({"subject": pa.string(), "limit": pa.string(), "grant_id": pa.uint64()})
#: The columns, in order. The first is made of copy_id, epoch and seq; the others are those of `decisions`.
SCHEMA = pa.schema(
    {
        "request_id": pa.string(),
        "at": pa.timestamp("us", "UTC"),
        "caller": pa.string(),
        "scope": pa.string(),
        "allowed": pa.bool_(),
        "source": pa.string(),
        "reason": pa.string(),
        "limit": pa.string(),
        "plan": pa.string(),
        "rate_per_s": pa.float64(),
        "burst": pa.uint32(),
        "per": pa.string(),
        "cost_tokens": pa.uint32(),
        "remaining_tokens": pa.int64(),
        "retry_after_ms": pa.int32(),
        "policy_version": pa.uint32(),
        "grant_id": pa.uint64(),
        "k": pa.uint32(),
        "charges": pa.list_(_CHARGE),
        "copy_id": pa.string(),
        "epoch": pa.uint64(),
        "seq": pa.uint64(),
        "log_partition": pa.uint16(),
        "log_offset": pa.uint64(),
    }
)
_NAMES = tuple(SCHEMA.names)
_COPY_ID, _EPOCH, _SEQ = (_NAMES.index(name) for name in ("copy_id", "epoch", "seq"))
_AT, _CHARGES = _NAMES.index("at"), _NAMES.index("charges")
_TEXTS = tuple(place for place, field in enumerate(SCHEMA) if pa.types.is_string(field.type))
#: Integers that programs which read JSON numbers as floating point would round.
_WIDE = tuple(place for place, field in enumerate(SCHEMA) if field.type in {pa.uint64(), pa.int64()})
_FORMULA = ("=", "+", "-", "@", "\t", "\r")
Row = Sequence[Any]


class RowWriter(Protocol):
    """Writes rows of `SCHEMA` in one format."""

    def write(self, rows: Sequence[Row]) -> None:
        """Add rows."""
        ...

    def finish(self) -> None:
        """Write what is left; nothing may be added after it."""
        ...


def whole_row(row: Row) -> list[Any]:
    """A row of the query `export_rows`, with the request id as support shows it before it."""
    identity = CopyIdentity(row[_COPY_ID - 1], row[_EPOCH - 1])
    return [format_request_id(identity, row[_SEQ - 1]), *row]


class CsvWriter:
    """RFC 4180, UTF-8, with a header."""

    def __init__(self, target: BinaryIO) -> None:
        self._target = target
        self._put([_NAMES])

    def write(self, rows: Sequence[Row]) -> None:
        """See `RowWriter.write`."""
        self._put([_csv_row(row) for row in rows])

    def finish(self) -> None:
        """Nothing is left."""

    def _put(self, rows: Sequence[Row]) -> None:
        text = io.StringIO(newline="")
        csv.writer(text, lineterminator="\r\n").writerows(rows)
        self._target.write(text.getvalue().encode())


class JsonLinesWriter:
    """One object a line; 64-bit integers are strings, for many programs would round them."""

    def __init__(self, target: BinaryIO) -> None:
        self._target = target

    def write(self, rows: Sequence[Row]) -> None:
        """See `RowWriter.write`."""
        self._target.write("".join(f"{_compact(_json_row(row))}\n" for row in rows).encode())

    def finish(self) -> None:
        """Nothing is left."""


class ParquetWriter:
    """Row groups of `ROW_GROUP` decisions, whatever the pieces are in which they come; Zstandard, no metadata of ours.

    The file names the library that wrote it, and nothing else that is not in the rows: the same version of pyarrow
    writes the same bytes.
    """

    def __init__(self, target: BinaryIO) -> None:
        self._writer = pq.ParquetWriter(
            target, SCHEMA, version="2.6", compression="zstd", compression_level=3, use_dictionary=True,
            write_statistics=True, data_page_version="1.0", data_page_size=1 << 20, store_schema=False,
        )  # fmt: skip
        self._held: list[Row] = []

    def write(self, rows: Sequence[Row]) -> None:
        """See `RowWriter.write`."""
        self._held += rows
        while len(self._held) >= ROW_GROUP:
            self._put(self._held[:ROW_GROUP])
            self._held = self._held[ROW_GROUP:]

    def finish(self) -> None:
        """Write the last row group and the file's end."""
        if self._held:
            self._put(self._held)
        self._held = []
        self._writer.close()

    def _put(self, rows: Sequence[Row]) -> None:
        columns = [[row[place] for row in rows] for place in range(len(_NAMES))]
        columns[_CHARGES] = [[_charge(one) for one in charges] for charges in columns[_CHARGES]]
        arrays = [pa.array(column, field.type) for column, field in zip(columns, SCHEMA, strict=True)]
        self._writer.write_table(pa.Table.from_arrays(arrays, schema=SCHEMA), row_group_size=ROW_GROUP)


FORMATS: dict[str, type[CsvWriter] | type[JsonLinesWriter] | type[ParquetWriter]] = {
    "csv": CsvWriter,
    "jsonl": JsonLinesWriter,
    "parquet": ParquetWriter,
}


def _csv_row(row: Row) -> list[Any]:
    cells = list(row)
    for place in _TEXTS:
        if cells[place].startswith(_FORMULA):
            cells[place] = f"'{cells[place]}"
    cells[_NAMES.index("allowed")] = "true" if cells[_NAMES.index("allowed")] else "false"
    cells[_AT] = _moment(cells[_AT])
    cells[_CHARGES] = _compact(_json_charges(cells[_CHARGES])) if cells[_CHARGES] else ""
    return cells


def _json_row(row: Row) -> dict[str, Any]:
    cells = list(row)
    for place in _WIDE:
        cells[place] = str(cells[place])
    cells[_AT] = _moment(cells[_AT])
    cells[_CHARGES] = _json_charges(cells[_CHARGES])
    return dict(zip(_NAMES, cells, strict=True))


def _json_charges(charges: Sequence[Any]) -> list[dict[str, str]]:
    return [{name: str(value) for name, value in _charge(one).items()} for one in charges]


def _charge(one: Any) -> dict[str, Any]:
    """A further grant that paid; drivers give a named tuple as a mapping or as a plain one."""
    subject, limit, grant_id = one.values() if isinstance(one, dict) else one
    return {"subject": subject, "limit": limit, "grant_id": grant_id}


def _compact(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def _moment(at: datetime) -> str:
    return at.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
