"""``tallygate audit export``: the raw decisions of one caller as a file, and a manifest that says what it holds.

Holds at most some 65,000 decisions in memory, or those of one second of the caller if they are more. A file appears
when it is whole, or not at all; the same record gives the same bytes.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import stat
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, cast

from aggregator.audit.exported import FORMATS, ROW_GROUP, whole_row
from aggregator.audit.gaps import find
from aggregator.pieces import pieces
from aggregator.retention.kept import kept
from aggregator.sql import load_queries
from aggregator.store import Store
from aggregator.words import LATEST_US, Span, add_caller, add_span, moment, span_of

HELP = "write one caller's raw decisions into a file: CSV, JSON lines or Parquet"

_QUERIES = load_queries("aggregator.sql", "export.sql")
_SECOND_US = 1_000_000
_FAILED = 1


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Whose, when, how and where to."""
    add_caller(parser, required=True)
    add_span(parser)
    parser.add_argument("--format", choices=sorted(FORMATS), default="csv", help="csv")
    parser.add_argument("--out", required=True, metavar="FILE", help="the file to write; - for standard output")
    parser.add_argument("--manifest", type=Path, metavar="FILE", help="where the manifest goes (standard error)")


def run(options: argparse.Namespace, store: Store) -> int:
    """Write the file and its manifest: 0, or 1 if the file cannot be written."""
    span = span_of(options)
    try:
        with _opened(options.out) as target:
            seen = Counted(target)
            rows, admitted = _write(store, options.caller, span, options.format, seen)
            said = {
                "admitted": admitted,
                "bytes": seen.bytes,
                "caller": options.caller,
                "format": options.format,
                "from": moment(span.from_us),
                "refused": rows - admitted,
                "rows": rows,
                "sha256": seen.sha256,
                "to": moment(span.to_us),
                **completeness(store, span),
            }
        _tell(said, options.manifest)
    except OSError as fault:
        if options.out == "-" and fault.filename is None:
            # Of standard output, as whoever called says.
            raise
        sys.stderr.write(f"tallygate audit export: {options.out}: {fault.strerror or fault}\n")
        return _FAILED
    return 0


def _write(store: Store, caller: str, span: Span, form: str, target: Counted) -> tuple[int, int]:
    """All decisions of a span; returns how many, and how many of them were admitted."""
    writer = FORMATS[form](cast(BinaryIO, target))
    written = admitted = 0
    for piece in pieces(store, caller, span, most=ROW_GROUP):
        found = store.rows(_QUERIES["export_rows"].sql, {"caller": caller, **piece.parameters})
        rows = [whole_row(row) for row in found]
        writer.write(rows)
        written += len(rows)
        admitted += sum(1 for row in found if row[3])
    writer.finish()
    return written, admitted


def completeness(store: Store, span: Span) -> dict[str, object]:
    """What of a span the record lacks, for a manifest: ``complete``, and sentences that say why not."""
    missing = kept(store).gone(span.from_us, span.to_us)
    gaps = find(store, span).facts
    said, silent, older = (cast(int, gaps[name]) for name in ("lost", "missing", "before_record"))
    if older:
        missing.append(f"{older} decisions of all callers are from before this record begins, of copies that are older")
    if said or silent:
        missing.append(
            f"{said + silent} decisions of all callers are not on record, before their copies' blocks or at their end:"
            f" {said} lost by the copies' own records, {silent} without a loss record"
        )
    reach_us = int(store.rows(_QUERIES["export_reach"].sql, span.parameters)[0][0])
    if span.to_us < LATEST_US:
        after = store.rows(_QUERIES["export_reach"].sql, {"from_us": span.to_us, "to_us": LATEST_US})
        if not int(after[0][0]):
            missing.append(f"the record ends at {moment(reach_us)}")
    return {"complete": not missing, "missing": missing}


class Counted:
    """A file that is being written: counts its bytes and computes their hash."""

    def __init__(self, target: BinaryIO) -> None:
        self._target = target
        self._hash = hashlib.sha256()
        self.bytes = 0
        self.closed = False

    @property
    def sha256(self) -> str:
        """Of all that was written."""
        return self._hash.hexdigest()

    def write(self, data: bytes) -> int:
        """Write, count and hash."""
        self._hash.update(data)
        self.bytes += len(data)
        self._target.write(data)
        return len(data)

    def flush(self) -> None:
        """Pass on."""
        self._target.flush()

    def tell(self) -> int:
        """Where the writer stands."""
        return self.bytes

    def close(self) -> None:
        """The file is closed by who opened it."""

    def writable(self) -> bool:
        """It is."""
        return True

    def readable(self) -> bool:
        """It is not."""
        return False

    def seekable(self) -> bool:
        """It is not: what was written stands."""
        return False


def _is_written_through(out: str) -> bool:
    """Whether it is a device, a pipe or a descriptor of this process (``/dev/stdout``): nothing may take its place."""
    folder = os.path.realpath(os.path.dirname(out) or ".")
    if folder == "/dev" or folder.startswith("/proc/"):
        return os.path.exists(out)
    try:
        return not stat.S_ISREG(os.stat(out).st_mode)
    except FileNotFoundError:
        return False


@contextmanager
def _opened(out: str) -> Iterator[BinaryIO]:
    """The file to write to: beside its place, and put there whole at the end; ``-`` is standard output.

    A link stays, and its target is written. What is no regular file, such as a pipe, is written to as it stands.
    """
    if out == "-":
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    if _is_written_through(out):
        with open(out, "wb") as target:
            yield target
        return
    place = Path(os.path.realpath(out))
    handle, name = tempfile.mkstemp(prefix=f".{place.name}.", dir=place.parent)
    try:
        with os.fdopen(handle, "wb") as target:
            yield target
            target.flush()
            os.fsync(target.fileno())
        # As the shell would have made it; a temporary file is its owner's alone.
        umask = os.umask(0)
        os.umask(umask)
        os.chmod(name, 0o666 & ~umask)
        os.replace(name, place)
    except BaseException:
        with suppress(FileNotFoundError):
            os.unlink(name)
        raise


def _tell(said: Mapping[str, object], manifest: Path | None) -> None:
    line = json.dumps(said, sort_keys=True, ensure_ascii=False) + "\n"
    if manifest is None:
        sys.stderr.write(line)
    else:
        with _opened(str(manifest)) as target:
            target.write(line.encode())
