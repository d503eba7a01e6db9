"""A copy's letters in files, appended and read again. Blocks for as long as the disk does: only `worker` calls it.

What is written survives the end of the process, however it ends. It survives a power failure once its file was closed,
which is when the file is full and when the copy is closed: until then it is for the operating system to write.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Final, NamedTuple

from enforcer.identity import CopyIdentity
from stream.outbox import Letter
from stream.spool.folder import SpoolFolder
from stream.spool.record import HEAD_BYTES, MAGIC, MAX_BODY, Read, encode_record, read_records, record_bytes

#: A file is at most this share of the bound, so that what is delivered soon makes room.
_SEGMENTS: Final = 16
_MAX_SEGMENT: Final = 8 * 1024 * 1024
#: Control events are small and say what is missing: they may be written beyond the bound, when the copy ends.
_RESERVE: Final = 256 * 1024


class SpoolFull(OSError):
    """There is no room by our own bounds."""


class FileSpan(NamedTuple):
    """Where a record stands: in which file, and from which byte to which."""

    segment: int
    at: int
    end: int


@dataclass(slots=True)
class Written:
    """What became of letters that were to be written.

    Attributes:
        places: where each letter stands, in their order; None for one that is not on disk.
        fault: why not all of them are.
    """

    places: list[FileSpan | None] = field(default_factory=list)
    fault: OSError | None = None


class SpoolStore:
    """The files of one copy. `max_bytes` bounds all of them together; `keep_free` bytes of the disk are left free."""

    def __init__(self, folder: SpoolFolder, *, max_bytes: int, keep_free: int) -> None:
        self._folder = folder
        self._max_bytes = max_bytes
        self._keep_free = keep_free
        self._segment_bytes = min(max(max_bytes // _SEGMENTS, 1), _MAX_SEGMENT)
        self._sizes: dict[int, int] = {}
        self._open: tuple[int, int] | None = None
        self._next_number = 0
        self.bytes = 0
        """Of all files."""

    def write(self, letters: Sequence[Letter], *, ends: bool = False) -> Written:
        """Append letters in order, until one finds no room.

        Args:
            letters: to write.
            ends: the copy ends: control events behind it are written all the same, from what is kept for them.
        """
        written = Written()
        try:
            free = self._free()
        except OSError as error:
            self._tell_of_room(had_room=False)
            return Written([None] * len(letters), error)
        for letter in letters:
            may_pass = ends and not letter.decisions and not letter.facts
            place = None
            if written.fault is None or may_pass:
                data = encode_record(letter)
                try:
                    self._look_for_room(len(data), free, _RESERVE if may_pass else 0)
                    place = self._append(data)
                    free -= len(data)
                except OSError as error:
                    written.fault = error
            written.places.append(place)
        self._tell_of_room(had_room=written.fault is None)
        return written

    def read(self, number: int, at: int, *, letters: int, size: int) -> list[Read]:
        """See `read_segment`."""
        return read_segment(self._folder, number, at, letters=letters, size=size)

    def drop(self, numbers: Sequence[int]) -> None:
        """Remove files: all that was in them is delivered."""
        for number in numbers:
            with contextlib.suppress(OSError):  # what cannot be removed is sent once more by whoever finds it
                if self._open is not None and self._open[0] == number:
                    self._close_open(sync=False)
                self._folder.segment(number).unlink(missing_ok=True)
            self.bytes -= self._sizes.pop(number, 0)

    def close(self) -> OSError | None:
        """Have everything on disk, and let the folder go whatever comes of it; remove it if nothing is in it.

        Returns:
            Why not all of it is sure to be there after a failure of the machine; None if it is.
        """
        fault = None
        try:
            self._close_open(sync=True)
            if not self._sizes:
                self._folder.remove()
        except OSError as error:
            fault = error
        finally:
            self._folder.release()
        return fault

    def after_fork(self) -> None:
        """In a child: keep nothing of the parent's open, neither its lock nor its file."""
        self._folder.release()
        if self._open is not None:
            os.close(self._open[1])
            self._open = None

    def _tell_of_room(self, *, had_room: bool) -> None:
        with contextlib.suppress(OSError):  # a disk that takes not even this has been told of by its first fault
            self._folder.tell_of_room(had_room=had_room)

    def _free(self) -> int:
        disk = os.statvfs(self._folder.path)
        return disk.f_bavail * disk.f_frsize

    def _look_for_room(self, size: int, free: int, reserve: int) -> None:
        if self.bytes + size > self._max_bytes + reserve:
            raise SpoolFull(f"its bound is {self._max_bytes} bytes (TALLYGATE_SPOOL_MAX_BYTES)")
        if self._keep_free and not reserve and free - size < self._keep_free:
            raise SpoolFull(f"{free} bytes of the disk are free (TALLYGATE_SPOOL_KEEP_FREE_BYTES)")
        if size > MAX_BODY:
            raise SpoolFull(f"a message has {size} bytes")

    def _append(self, data: bytes) -> FileSpan:
        if self._open is not None and self._sizes[self._open[0]] >= self._segment_bytes:
            self._close_open(sync=True)
        number, descriptor = self._open or self._begin()
        at = self._sizes[number]
        try:
            write_all(descriptor, data)
        except OSError:
            self._cut(descriptor, at)
            raise
        self._sizes[number] = at + len(data)
        self.bytes += len(data)
        return FileSpan(number, at, at + len(data))

    def _begin(self) -> tuple[int, int]:
        number = self._next_number
        path = self._folder.segment(number)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            write_all(descriptor, MAGIC)
        except OSError:
            os.close(descriptor)
            path.unlink(missing_ok=True)
            raise
        self._next_number += 1
        self._open = number, descriptor
        self._sizes[number] = len(MAGIC)
        self.bytes += len(MAGIC)
        return self._open

    def _cut(self, descriptor: int, at: int) -> None:
        """Part of a record may have been written: cut it off, or write to another file from now on."""
        try:
            os.ftruncate(descriptor, at)
        except OSError:
            os.close(descriptor)
            self._open = None

    def _close_open(self, *, sync: bool) -> None:
        if self._open is None:
            return
        descriptor = self._open[1]
        self._open = None
        try:
            if sync:
                os.fsync(descriptor)
                self._folder.sync()
        finally:
            os.close(descriptor)


def read_segment(
    folder: SpoolFolder, number: int, at: int, *, letters: int, size: int, heir_of: CopyIdentity | None = None
) -> list[Read]:
    """Read records of a file: at least one if there is one whole, and no more than so many and so long.

    What a dead copy left is read past damage: nobody else has it.

    Args:
        folder: where it is.
        number: of the file.
        at: the byte at which the first of them begins.
        letters: how many at most.
        size: how many bytes, more or less.
        heir_of: the dead copy whose letters they are, if they are not this one's.

    Raises:
        OSError: the file cannot be read.
    """
    with open(folder.segment(number), "rb", buffering=0) as file:
        head = os.pread(file.fileno(), HEAD_BYTES, at)
        data = os.pread(file.fileno(), max(size, record_bytes(head) or 0), at)
        found = list(islice(read_records(data, at=at, heir_of=heir_of), letters))
        if heir_of is not None and not found:
            data = os.pread(file.fileno(), os.fstat(file.fileno()).st_size, at)
            found = list(islice(read_records(data, at=at, heir_of=heir_of, past_damage=True), letters))
    return found


def write_all(descriptor: int, data: bytes) -> None:
    """Write all of it; a disk that fills up first takes less than it is given.

    Raises:
        OSError: not all of it could be written, part of it may be.
    """
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]
