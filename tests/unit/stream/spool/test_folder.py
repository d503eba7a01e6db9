"""Whose folder it is: the kernel's lock says whether a copy lives, and nobody else."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from enforcer.identity import CopyIdentity
from stream.spool.folder import dead_copies, is_for, make_folder, take_folder

ONE = CopyIdentity("gw-1", 7)


def test_folder_of_a_living_copy_is_not_taken(tmp_path: Path) -> None:
    """Its record is its own to ship."""
    folder = make_folder(tmp_path, ONE, bootstrap="kafka:9092")
    assert [ONE] == list(dead_copies(tmp_path))
    assert take_folder(tmp_path, ONE) is None
    folder.release()
    taken = take_folder(tmp_path, ONE)
    assert taken is not None
    assert "kafka:9092" == taken.bootstrap


def test_two_heirs_never_have_the_same_folder(tmp_path: Path) -> None:
    """Shipped by two at once, the order of its blocks on the log would be nobody's."""
    make_folder(tmp_path, ONE, bootstrap="kafka:9092").release()
    first = take_folder(tmp_path, ONE)
    assert first is not None
    assert take_folder(tmp_path, ONE) is None
    first.release()
    assert take_folder(tmp_path, ONE) is not None


def test_folder_that_was_removed_meanwhile_is_not_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the opening of the lock and the locking, another heir may have shipped it all and removed it."""
    make_folder(tmp_path, ONE, bootstrap="kafka:9092").release()
    opened = os.open

    def open_and_lose(path: Path, flags: int) -> int:
        descriptor = opened(path, flags)
        monkeypatch.undo()
        other = take_folder(tmp_path, ONE)
        assert other is not None
        other.remove()
        return descriptor

    monkeypatch.setattr(os, "open", open_and_lose)
    assert take_folder(tmp_path, ONE) is None
    assert [] == list(tmp_path.iterdir())


def test_fork_neither_keeps_nor_frees_its_parents_lock(tmp_path: Path) -> None:
    """A child that outlives its parent must not keep its record from being found."""
    folder = make_folder(tmp_path, ONE, bootstrap="kafka:9092")
    ready, go = os.pipe(), os.pipe()
    child = os.fork()
    if child == 0:
        folder.release()
        os.write(ready[1], b"x")
        os.read(go[0], 1)
        os._exit(0)
    try:
        os.read(ready[0], 1)
        assert take_folder(tmp_path, ONE) is None
        folder.release()
        assert take_folder(tmp_path, ONE) is not None
    finally:
        os.write(go[1], b"x")
        os.waitpid(child, 0)
        for end in (*ready, *go):
            os.close(end)


def test_longest_dead_comes_first_and_strangers_are_passed_over(tmp_path: Path) -> None:
    """The folder may lie beside anything."""
    for name in ("gw-2/5", "gw-1/900", "gw-1/7", "gw-1/seven", ".gw-3-4/lock", "gw-1/99999999999999999999", "a b/7"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "gw-4").write_text("no folder")
    expected = [CopyIdentity("gw-2", 5), ONE, CopyIdentity("gw-1", 900)]
    assert expected == list(dead_copies(tmp_path))
    assert [] == list(dead_copies(tmp_path / "absent"))
    assert take_folder(tmp_path, ONE) is None


@pytest.mark.parametrize(
    ("theirs", "ours", "same"),
    [
        ("kafka:9092", "kafka:9092", True),
        ("a:1,b:1", "b:1, c:1", True),
        ("a:1", "b:1", False),
        ("", "b:1", False),
    ],
)
def test_letters_go_only_to_the_log_that_they_are_for(tmp_path: Path, theirs: str, ours: str, *, same: bool) -> None:
    """Two systems may share a machine, and so the default folder."""
    assert same == is_for(make_folder(tmp_path, ONE, bootstrap=theirs), ours)


def test_folder_is_made_while_the_one_before_it_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A copy that ends removes the folder of its name, just as the next of that name is about to move into it."""
    old = make_folder(tmp_path, ONE, bootstrap="kafka:9092")
    rename = Path.rename

    def rename_late(draft: Path, path: Path) -> Path:
        monkeypatch.undo()
        old.remove()
        return rename(draft, path)

    monkeypatch.setattr(Path, "rename", rename_late)
    after = CopyIdentity(ONE.copy_id, ONE.epoch + 1)
    new = make_folder(tmp_path, after, bootstrap="kafka:9092")
    assert [after] == list(dead_copies(tmp_path))
    assert [] == new.segments()


def test_folder_that_a_kill_left_half_made_is_removed_later(tmp_path: Path) -> None:
    """Nobody else would ever look at it; one that is being made just now is left alone, and so is what is not ours."""
    (tmp_path / ".cache-12" / "theirs").mkdir(parents=True)
    for name in (".gw-1-3", ".gw-1-4", ".config", ".cache-12"):
        (tmp_path / name).mkdir(exist_ok=True)
        (tmp_path / name / "lock").write_text("")
        if name != ".gw-1-4":
            os.utime(tmp_path / name, (1.0, 1.0))
    make_folder(tmp_path, ONE, bootstrap="kafka:9092")
    assert [".cache-12", ".config", ".gw-1-4", "gw-1"] == sorted(path.name for path in tmp_path.iterdir())


def test_folder_that_cannot_be_made_leaves_nothing(tmp_path: Path) -> None:
    """A second attempt must not stumble over the first."""
    (tmp_path / "gw-1").write_text("no folder")
    with pytest.raises(OSError, match="gw-1"):
        make_folder(tmp_path, ONE, bootstrap="kafka:9092")
    assert ["gw-1"] == [path.name for path in tmp_path.iterdir()]
