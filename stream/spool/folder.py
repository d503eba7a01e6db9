"""The folders of the spool: ``<spool>/<copy_id>/<epoch>/``, each locked for as long as its copy lives.

The lock is the kernel's (flock): a process that is killed holds it no longer, so a folder whose lock is free is a dead
copy's, or one that ended in order and left something. Nothing here reads or writes letters.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from enforcer.identity import CopyIdentity
from stream.contract.layout import COPY_ID_PATTERN

_LOCK: Final = "lock"
_MODE: Final = 0o600
#: In the mode of a lock file: its copy has letters in memory alone, because the disk did not take them.
_NO_ROOM: Final = 0o100
_SUFFIX: Final = ".spool"
_SEGMENT: Final = re.compile(r"([0-9]{10})" + re.escape(_SUFFIX))
_COPY_ID: Final = re.compile(COPY_ID_PATTERN)
_MAX_ADDRESSES: Final = 10_000
#: So often a folder is put into its copy's, which the one that ended just now may take away.
_ATTEMPTS: Final = 10
#: A folder that was begun so long ago is not being made any more.
_DRAFT_S: Final = 60.0
_DRAFT: Final = re.compile(r"\.[A-Za-z0-9][A-Za-z0-9._-]{0,62}-[0-9]{1,20}")


class SpoolFolder:
    """One copy's folder, locked by this process. All methods may raise `OSError`.

    Attributes:
        path: of the folder.
        identity: whose it is.
        bootstrap: the Kafka servers that its letters are for.
        had_room: whether all that its copy meant to write last found room.
    """

    def __init__(self, path: Path, identity: CopyIdentity, bootstrap: str, lock: int, *, had_room: bool = True) -> None:
        self.path = path
        self.identity = identity
        self.bootstrap = bootstrap
        self.had_room = had_room
        self._lock: int | None = lock

    def tell_of_room(self, *, had_room: bool) -> None:
        """Keep whether the last letters found room, for an heir. On a disk that is full: a file's mode takes none."""
        if had_room != self.had_room and self._lock is not None:
            os.fchmod(self._lock, _MODE if had_room else _MODE | _NO_ROOM)
            self.had_room = had_room

    def segment(self, number: int) -> Path:
        """The path of a file."""
        return self.path / f"{number:010}{_SUFFIX}"

    def segments(self) -> list[int]:
        """The numbers of the files that are there, in order."""
        return sorted(int(match[1]) for name in os.listdir(self.path) if (match := _SEGMENT.fullmatch(name)))

    def release(self) -> None:
        """Let others have it. In a fork this takes nothing from the parent, who holds the lock as well."""
        lock, self._lock = self._lock, None
        if lock is not None:
            os.close(lock)

    def remove(self) -> None:
        """Nothing in it is needed any more: remove it, and the copy's folder if this was its last."""
        for number in self.segments():
            self.segment(number).unlink(missing_ok=True)
        (self.path / _LOCK).unlink(missing_ok=True)
        with contextlib.suppress(OSError):  # others may have put something there: then it stays
            self.path.rmdir()
            self.path.parent.rmdir()
        self.release()

    def set_aside(self) -> Path:
        """Keep what cannot be read for somebody to look at, under a name that no heir takes; returns where it is."""
        aside = self.path.with_name(f"{self.path.name}.damaged")
        self.path.rename(aside)
        self.release()
        return aside

    def sync(self) -> None:
        """Have the names of the files on disk."""
        descriptor = os.open(self.path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def make_folder(root: Path, identity: CopyIdentity, *, bootstrap: str) -> SpoolFolder:
    """Make the folder of a copy that starts. It is locked before anybody can find it.

    Raises:
        OSError: it cannot be made, or written.
    """
    path = root / identity.copy_id / str(identity.epoch)
    draft = root / f".{identity.copy_id}-{identity.epoch}"
    shutil.rmtree(draft, ignore_errors=True)  # of an earlier attempt of this very copy
    draft.mkdir(parents=True, mode=0o700)
    try:
        _remove_old_drafts(root, draft.stat().st_mtime)
        lock = os.open(draft / _LOCK, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, _MODE)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.write(lock, bootstrap.encode())
            _move(draft, path)
        except OSError:
            os.close(lock)
            raise
    except OSError:
        shutil.rmtree(draft, ignore_errors=True)
        raise
    return SpoolFolder(path, identity, bootstrap, lock)


def _move(draft: Path, path: Path) -> None:
    """The folder above may be removed by a copy of the same name that ends just now: then it is made again."""
    for left in reversed(range(_ATTEMPTS)):
        try:
            path.parent.mkdir(exist_ok=True, mode=0o700)
            draft.rename(path)
        except (FileNotFoundError, FileExistsError):
            if not left:
                raise
        else:
            return


def _remove_old_drafts(root: Path, now_s: float) -> None:
    """Remove what copies left that were killed while they made their folder: there is nothing in it.

    `now_s` is the time of the file system, in unix seconds.
    """
    for name in _names(root):
        draft = root / name
        with contextlib.suppress(OSError):  # another copy does the same
            is_old = _DRAFT.fullmatch(name) is not None and now_s - draft.stat().st_mtime > _DRAFT_S
            if is_old and set(os.listdir(draft)) <= {_LOCK}:
                (draft / _LOCK).unlink(missing_ok=True)
                draft.rmdir()


def dead_copies(root: Path) -> Iterator[CopyIdentity]:
    """Whose folders are there, the longest dead first; most of them may live.

    What cannot be listed is passed over: another user's folder must not keep what is ours from being shipped.
    """
    found = [
        CopyIdentity(copy_id, int(epoch))
        for copy_id in _names(root)
        if _COPY_ID.match(copy_id)
        for epoch in _names(root / copy_id)
        if epoch.isdigit() and epoch.isascii() and int(epoch) < 1 << 64
    ]
    yield from sorted(found, key=lambda one: (one.epoch, one.copy_id))


def take_folder(root: Path, identity: CopyIdentity) -> SpoolFolder | None:
    """Take over the folder of a copy that is dead; None if it lives, or somebody else has just taken it.

    Raises:
        OSError: it cannot be read.
    """
    path = root / identity.copy_id / str(identity.epoch)
    try:
        lock = os.open(path / _LOCK, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # Whoever had it may have shipped and removed it between our open and our lock.
        found = os.fstat(lock)
        if found.st_ino == os.stat(path / _LOCK).st_ino:
            bootstrap = os.pread(lock, _MAX_ADDRESSES, 0).decode(errors="replace")
            return SpoolFolder(path, identity, bootstrap, lock, had_room=not found.st_mode & _NO_ROOM)
    except (BlockingIOError, FileNotFoundError):
        pass
    except OSError:
        os.close(lock)
        raise
    os.close(lock)
    return None


def is_for(folder: SpoolFolder, bootstrap: str) -> bool:
    """Whether its letters are for the log that these servers carry: they have a server in common."""
    return not _servers(folder.bootstrap).isdisjoint(_servers(bootstrap))


def _servers(bootstrap: str) -> set[str]:
    return {server.strip() for server in bootstrap.split(",")}


def _names(path: Path) -> list[str]:
    try:
        return os.listdir(path)
    except OSError:
        return []
