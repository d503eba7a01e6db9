"""A copy's files: bounded, in order, whole after a disk that filled up in the middle of a record."""

from __future__ import annotations

import errno
import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from enforcer.identity import CopyIdentity
from stream.buffer import Loss
from stream.contract.topics import CONTROL
from stream.outbox import Letter
from stream.spool import store
from stream.spool.folder import make_folder, take_folder
from stream.spool.record import MAGIC
from stream.spool.store import SpoolFull, SpoolStore, Written
from tests.unit.stream.spool.letters import block, blocks

LOSS = Letter(CONTROL.name, b"gw-1", b"{}", [], loss=Loss(0, 5, "tested"))


def store_in(root: Path, *, max_bytes: int = 1_000_000, keep_free: int = 0) -> SpoolStore:
    folder = make_folder(root, CopyIdentity("gw-1", 7), bootstrap="kafka:9092")
    return SpoolStore(folder, max_bytes=max_bytes, keep_free=keep_free)


def seqs(opened: SpoolStore, numbers: range) -> list[int]:
    """What the files hold, in order."""
    return [
        read.letter.first_seq for number in numbers for read in opened.read(number, len(MAGIC), letters=99, size=10**6)
    ]


def segments(written: Written) -> list[int | None]:
    return [None if span is None else span.segment for span in written.places]


@contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    """The operating system itself ends a write in the middle, as a full disk or a quota does."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_letters_come_back_in_order_over_files(tmp_path: Path) -> None:
    """A file ends at a sixteenth of the bound, so that room comes back while the rest still waits."""
    opened = store_in(tmp_path, max_bytes=8_000)
    written = opened.write(blocks(12))
    assert (None, 12) == (written.fault, len(written.places))
    numbers = segments(written)
    assert numbers == sorted(numbers, key=lambda number: number or 0)
    assert [number * 5 for number in range(12)] == seqs(opened, range((numbers[-1] or 0) + 1))


def test_reading_takes_so_many_and_goes_on_behind_them(tmp_path: Path) -> None:
    """Memory is bounded while a backlog is shipped."""
    opened = store_in(tmp_path)
    opened.write(blocks(5))
    first = opened.read(0, len(MAGIC), letters=2, size=10**6)
    rest = opened.read(0, first[-1].end, letters=99, size=10**6)
    assert [[0, 5], [10, 15, 20]] == [[read.letter.first_seq for read in part] for part in (first, rest)]
    assert [[0], [5, 10]] == [
        [read.letter.first_seq for read in opened.read(0, at, letters=99, size=size)]
        for at, size in ((len(MAGIC), 1), (first[0].end, 2 * (first[0].end - len(MAGIC)) + 9))
    ]


def test_bound_stops_the_newest_and_a_delivery_makes_room(tmp_path: Path) -> None:
    """Beyond the bound nothing is written, until what was delivered has gone."""
    opened = store_in(tmp_path, max_bytes=1_000)
    written = opened.write(blocks(20))
    kept = [span for span in written.places if span is not None]
    assert 0 < len(kept) < 20
    assert [None] * (20 - len(kept)) == written.places[len(kept) :]
    assert isinstance(written.fault, SpoolFull)
    assert opened.bytes <= 1_000
    opened.drop([kept[0].segment])
    assert opened.write([block(100)]).fault is None


def test_control_events_pass_the_bound_when_the_copy_ends(tmp_path: Path) -> None:
    """The record of a loss must not be lost for the same want of room."""
    opened = store_in(tmp_path, max_bytes=1_000)
    opened.write(blocks(20))
    assert [None, None] == opened.write([block(500), LOSS]).places
    last = opened.write([block(500), LOSS], ends=True).places
    assert (True, False) == (last[0] is None, last[1] is None)


def test_space_of_the_disk_is_left_free(tmp_path: Path) -> None:
    """A record must not fill the disk that a database stands on."""
    opened = store_in(tmp_path, keep_free=2**60)
    written = opened.write([block(0)])
    assert [None] == written.places
    assert "TALLYGATE_SPOOL_KEEP_FREE_BYTES" in str(written.fault)


def test_write_that_ends_in_the_middle_is_cut_and_others_follow(tmp_path: Path) -> None:
    """EFBIG or ENOSPC in the middle of a record: what stands before it stays whole, and what comes later as well."""
    opened = store_in(tmp_path)
    with files_of_at_most(1_000):
        written = opened.write(blocks(20))
    kept = [span for span in written.places if span is not None]
    assert errno.EFBIG == (written.fault.errno if written.fault else 0)
    assert kept[-1].end == (tmp_path / "gw-1" / "7" / "0000000000.spool").stat().st_size
    assert opened.write([block(500), block(505)]).fault is None
    assert [*(5 * number for number in range(len(kept))), 500, 505] == seqs(opened, range(1))


def test_file_that_cannot_even_be_cut_is_left_for_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Half a record in the middle of a file would hide all that follows it."""
    opened = store_in(tmp_path)
    opened.write([block(0)])

    def half(descriptor: int, data: bytes) -> None:
        os.write(descriptor, data[: len(data) // 2])
        raise OSError(errno.EIO, "tested")

    def cannot(descriptor: int, length: int) -> None:
        raise OSError(errno.EIO, "tested")

    with monkeypatch.context() as patch:
        patch.setattr(store, "write_all", half)
        patch.setattr(os, "ftruncate", cannot)
        assert [None] == opened.write([block(5)]).places
    assert [1] == segments(opened.write([block(5)]))
    assert [0, 5] == seqs(opened, range(2))


def test_closed_empty_spool_leaves_nothing_and_a_full_one_everything(tmp_path: Path) -> None:
    """Whoever starts next looks at what is there."""
    empty = store_in(tmp_path)
    empty.write([block(0)])
    empty.drop([0])
    empty.close()
    assert [] == list(tmp_path.iterdir())
    full = store_in(tmp_path)
    full.write([block(0)])
    full.close()
    assert ["0000000000.spool", "lock"] == sorted(path.name for path in (tmp_path / "gw-1" / "7").iterdir())


@pytest.mark.parametrize("failing", ["fsync", "unlink"])
def test_disk_that_fails_at_the_close_lets_the_folder_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    """A process that lives on would keep what is there from being shipped by anybody."""
    opened = store_in(tmp_path)
    opened.write([block(0)])
    if failing == "unlink":
        opened.drop([0])

    def fail(*_: object, **__: object) -> None:
        raise OSError(errno.EIO, "the disk has failed")

    monkeypatch.setattr(os, failing, fail)
    monkeypatch.setattr(Path, "unlink", fail)
    fault = opened.close()
    monkeypatch.undo()
    assert fault is not None
    assert errno.EIO == fault.errno
    heir = take_folder(tmp_path, CopyIdentity("gw-1", 7))
    assert heir is not None, "it can be taken over"
    assert ([0] if failing == "fsync" else []) == heir.segments()


def test_files_and_folders_are_the_users_alone(tmp_path: Path) -> None:
    """They name callers."""
    store_in(tmp_path / "spool").write([block(0)])
    modes = {path.stat().st_mode & 0o077 for path in (tmp_path / "spool" / "gw-1").rglob("*")}
    assert {0} == modes
