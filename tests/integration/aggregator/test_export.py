"""The export of a caller's raw decisions, on a real engine, as a command."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from aggregator.audit import command, export
from aggregator.audit.exported import SCHEMA
from aggregator.core.record.batches import decision_batches
from aggregator.core.record.blocks import block_batches
from aggregator.migrate import migrate
from aggregator.retention.apply import apply
from aggregator.retention.tiers import Keep
from aggregator.store_clickhouse import ClickHouseStore
from tests.recordblocks import MIDNIGHT_US, SPENT, Made, at, make_block
from tests.recordrows import record_control

SPAN = ("--from", "2026-01-01", "--to", "2026-01-03")


@pytest.fixture
def store(database_dsn: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[ClickHouseStore]:
    """Two callers' decisions of two copies, on both sides of a midnight, some of them stored twice."""
    migrate(database_dsn)
    monkeypatch.setenv("TALLYGATE_CLICKHOUSE", database_dsn)
    with closing(ClickHouseStore.connect(database_dsn)) as handle:
        for copy_id in ("gw-2", "gw-1"):
            made = [
                Made(
                    ("acct-1", "acct-2")[n % 2], MIDNIGHT_US - 30_000_000 + n * 100_000, code=SPENT if n % 5 == 0 else 0
                )
                for n in range(600)
            ]
            placed = [at(make_block(made, copy_id=copy_id, sealed_at_us=MIDNIGHT_US + 30_000_001), 1)]
            for batch in (*decision_batches(placed), *decision_batches(placed), *block_batches(placed)):
                handle.insert(batch.table, batch.stamped(MIDNIGHT_US))
        yield handle


def _export(folder: Path, form: str, *words: str) -> tuple[bytes, dict[str, Any]]:
    out, manifest = folder / f"out.{form}", folder / "manifest.json"
    asked = ["export", "--caller", "acct-1", "--format", form, "--out", str(out), "--manifest", str(manifest)]
    assert 0 == command.main([*asked, *(words or SPAN)])
    assert [] == [path.name for path in folder.iterdir() if path.name.startswith(".")], "nothing else is left behind"
    return out.read_bytes(), json.loads(manifest.read_text())


@pytest.mark.parametrize("form", ["csv", "jsonl", "parquet"])
def test_export_is_the_same_bytes_when_repeated(
    store: ClickHouseStore, tmp_path: Path, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both sides of a dispute can make the file and compare hashes; merges and the size of pieces must not show."""
    data, manifest = _export(tmp_path, form)
    assert (600, 120, 480) == (manifest["rows"], manifest["refused"], manifest["admitted"])
    assert (len(data), hashlib.sha256(data).hexdigest()) == (manifest["bytes"], manifest["sha256"])
    store.command("OPTIMIZE TABLE decisions FINAL")
    monkeypatch.setattr(export, "ROW_GROUP", 7)
    assert (data, manifest) == _export(tmp_path, form)


def test_export_holds_every_column_of_the_record_in_the_order_in_which_things_happened(
    store: ClickHouseStore, tmp_path: Path
) -> None:
    """A column that is left out is a question that cannot be answered from the file."""
    columns = store.rows("SELECT name FROM system.columns WHERE database = currentDatabase() AND table = 'decisions'")
    assert {"request_id", *(name for (name,) in columns)} == set(SCHEMA.names)
    data, _ = _export(tmp_path, "csv")
    rows = list(csv.DictReader(io.StringIO(data.decode(), newline="")))
    places = [(row["at"], row["copy_id"], int(row["epoch"]), int(row["seq"])) for row in rows]
    assert (sorted(places), 600) == (places, len(set(places)))
    assert {"acct-1"} == {row["caller"] for row in rows}
    assert ("gw-1-7-0", "2026-01-01T23:59:30.000000Z", "false", "spent") == tuple(
        rows[0][name] for name in ("request_id", "at", "allowed", "reason")
    )
    _export(tmp_path, "parquet")
    table = pq.read_table(tmp_path / "out.parquet")
    assert [int(row["seq"]) for row in rows] == table["seq"].to_pylist()


def test_export_without_a_span_is_all_that_is_recorded(store: ClickHouseStore, tmp_path: Path) -> None:
    """And an end within the second is kept to the microsecond."""
    _, manifest = _export(tmp_path, "jsonl", "--from", "1970-01-01")
    assert (600, True) == (manifest["rows"], manifest["complete"])
    data, manifest = _export(
        tmp_path, "jsonl", "--from", "2026-01-01T23:59:30.200000Z", "--to", "2026-01-01T23:59:30.6Z"
    )
    assert [2, 2, 4, 4] == [int(json.loads(line)["seq"]) for line in data.decode().splitlines()]


def test_manifest_says_what_the_record_lacks(store: ClickHouseStore, tmp_path: Path) -> None:
    """A file that is not the whole truth must say so."""
    _, manifest = _export(tmp_path, "csv")
    assert ["the record ends at 2026-01-02T00:00:30.000001Z"] == manifest["missing"]
    later = make_block([Made(at_us=MIDNIGHT_US + 40_000_000)], copy_id="gw-1", first_seq=607,
                       sealed_at_us=MIDNIGHT_US + 41_000_000)  # fmt: skip
    end = make_block([], copy_id="gw-1", first_seq=608, sealed_at_us=MIDNIGHT_US + 2 * 86_400_000_000)
    for batch in block_batches([at(later, 2), at(end, 3)]):
        store.insert(batch.table, batch.stamped(MIDNIGHT_US))
    apply(store, Keep(admitted_days=1, refused_days=10_000), recounted_days=1, unsettled_too=True)
    _, manifest = _export(tmp_path, "csv")
    assert not manifest["complete"]
    gone, lost = manifest["missing"]
    assert gone.startswith("admitted raw decisions before 20")
    assert _not_on_record(0, 7) == lost


def _not_on_record(said: int, silent: int) -> str:
    return (
        f"{said + silent} decisions of all callers are not on record, before their copies' blocks or at their end: "
        f"{said} lost by the copies' own records, {silent} without a loss record"
    )


def test_manifest_counts_as_audit_gaps_does(store: ClickHouseStore, tmp_path: Path) -> None:
    """Numbers that two blocks hold hide none that no block holds, and a hole may lie before the first of the span."""
    blocks = [
        make_block([Made(at_us=MIDNIGHT_US - 1)] * count, copy_id=copy, first_seq=first, sealed_at_us=MIDNIGHT_US + at)
        for copy, first, count, at in [
            ("again", 0, 100, 0), ("again", 0, 60, 1), ("again", 60, 40, 2), ("again", 200, 100, 3),
            ("edge", 0, 100, -1), ("edge", 109, 1, 5), ("cut", 0, 3, 6),
        ]
    ]  # fmt: skip
    for batch in block_batches([at(block, 2 + n) for n, block in enumerate(blocks)]):
        store.insert(batch.table, batch.stamped(MIDNIGHT_US))
    record_control(store, "copy_stopped", copy_id="cut", next_seq=8)
    record_control(store, "decisions_lost", copy_id="edge", first_seq=102, count=3, cause="no room")
    _, manifest = _export(tmp_path, "csv", "--from", "2026-01-02", "--to", "2026-01-03")
    assert [_not_on_record(3, 100 + 6 + 5), "the record ends at 2026-01-02T00:00:30.000001Z"] == manifest["missing"]


def test_export_that_fails_leaves_the_old_file(
    store: ClickHouseStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Half a file with a good name is worse than none."""
    before, _ = _export(tmp_path, "csv")
    monkeypatch.setattr(
        export, "completeness", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left on device"))
    )
    words = ["export", "--caller", "acct-1", "--out", str(tmp_path / "out.csv")]
    assert 1 == command.main(words)
    assert "out.csv: No space left on device" in capsys.readouterr().err
    assert before == (tmp_path / "out.csv").read_bytes()
    assert {"out.csv", "manifest.json"} == {path.name for path in tmp_path.iterdir()}


def test_export_writes_through_what_is_no_file(store: ClickHouseStore, tmp_path: Path) -> None:
    """A pipe that a file took the place of has a reader that waits for ever; a device is the whole machine's."""
    data, said = _export(tmp_path, "jsonl")
    pipes = [tmp_path / "data", tmp_path / "said"]
    for pipe in pipes:
        os.mkfifo(pipe)
    words = ["export", "--caller", "acct-1", "--format", "jsonl", *SPAN]
    with ThreadPoolExecutor() as readers:
        read = [readers.submit(pipe.read_bytes) for pipe in pipes]
        assert 0 == command.main([*words, "--out", str(pipes[0]), "--manifest", str(pipes[1])])
        assert [data, said] == [read[0].result(30), json.loads(read[1].result(30))]
    assert all(pipe.is_fifo() for pipe in pipes)


def test_export_to_a_link_writes_its_target(store: ClickHouseStore, tmp_path: Path) -> None:
    """Whoever made the link decides where the bytes are kept; it may point to what is not there yet."""
    data, _ = _export(tmp_path, "jsonl")
    kept = tmp_path / "kept"
    kept.mkdir()
    words = ["export", "--caller", "acct-1", "--format", "jsonl", *SPAN]
    for name in ("out", "manifest"):
        (tmp_path / name).symlink_to(kept / name)
    for _ in range(2):
        assert 0 == command.main([*words, "--out", str(tmp_path / "out"), "--manifest", str(tmp_path / "manifest")])
        assert data == (kept / "out").read_bytes()
        assert ["manifest", "out"] == sorted(path.name for path in kept.iterdir())
        assert all((tmp_path / name).is_symlink() for name in ("out", "manifest"))


@pytest.mark.parametrize(
    ("out", "is_written_through"),
    [("/dev/full", True), ("/dev/null", True), ("/dev/stdout", True), ("/dev/fd/1", True), ("/dev/none", False),
     ("/etc/passwd", False), ("nothing", False), ("/tmp", True)],
)  # fmt: skip
def test_devices_are_written_through(out: str, is_written_through: bool) -> None:
    """As root the rename would succeed: not tried on the machine's own."""
    assert is_written_through == export._is_written_through(out)
