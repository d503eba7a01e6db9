"""What dead copies left on disk: found by the lock that nobody holds, shipped as it is, removed when it is delivered.

One folder at a time, the longest dead first, and only what is for the same log. Whoever ships it holds its lock; should
that one die, the next finds it again. What it sends twice is harmless: the identities are the dead copy's.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from enforcer.identity import CopyIdentity
from stream.contract.control import CopyStopped, decode_control
from stream.contract.layout import CorruptBlock
from stream.contract.topics import CONTROL
from stream.outbox import Letter, Outbox
from stream.place import Shelf, ShelfPlace
from stream.spool.folder import SpoolFolder, dead_copies, is_for, take_folder
from stream.spool.record import MAGIC, Read, is_torn, read_records
from stream.spool.store import read_segment
from stream.spool.undecided import is_undecided, share_out
from stream.spool.worker import Worker

log = logging.getLogger("tallygate.stream")

#: How often somebody who may have died is looked for.
LOOK_EVERY_S: Final = 30.0
#: What is read ahead; the next is read when all of it is delivered, so that it holds up this copy's own letters little.
_AHEAD_LETTERS: Final = 200
_AHEAD_BYTES: Final = 1024 * 1024


@dataclass(slots=True)
class Left:
    """What a dead copy left.

    Attributes:
        folder: of the copy, locked by this process.
        counts: letters of each file that has any, by its number.
        decisions: in all of them.
        next_seq: one past the last decision; None if there is none.
        has_stopped: whether it said that it ended.
        damaged: bytes that cannot be read, but for the tail that a kill tears.
        end_is_unknown: whether more decisions may have come behind the last that can be read: what stands there is
            damaged, or the copy had letters that found no room.
    """

    folder: SpoolFolder
    counts: dict[int, int]
    decisions: int = 0
    next_seq: int | None = None
    has_stopped: bool = False
    damaged: int = 0
    end_is_unknown: bool = False


def find_left(root: Path, *, bootstrap: str, without: set[CopyIdentity]) -> Left | None:
    """Take over the folder of the longest dead copy, if there is one whose letters are for this log.

    Args:
        root: of the spool.
        bootstrap: the Kafka servers of the log.
        without: copies that are left alone; those whose letters are for another log, or cannot be read, become some
            of them.
    """
    for identity in dead_copies(root):
        if identity in without:
            continue
        try:
            left = _taken(root, identity, bootstrap)
        except OSError as error:
            log.warning("what %s (epoch %d) left is left alone: %s", identity.copy_id, identity.epoch, error)
            without.add(identity)
            continue
        if isinstance(left, Left):
            return left
        if left is not None:
            log.warning("%s is left alone: it is for Kafka at %s, or of a later version", left.path, left.bootstrap)
            without.add(identity)
    return None


def _taken(root: Path, identity: CopyIdentity, bootstrap: str) -> Left | SpoolFolder | None:
    """What is left of a copy; its folder, released, if it is not for us; None if it lives."""
    folder = take_folder(root, identity)
    if folder is None:
        return None
    try:
        left = look_into(folder) if is_for(folder, bootstrap) else None
    except OSError:
        folder.release()
        raise
    if left is None:
        folder.release()
    return left or folder


def look_into(folder: SpoolFolder) -> Left | None:
    """Count what a folder holds; None if a later version of ours wrote it.

    Raises:
        OSError: it cannot be read.
    """
    left = Left(folder, {})
    numbers = folder.segments()
    for number in numbers:
        data = folder.segment(number).read_bytes()
        if data[: len(MAGIC)] != MAGIC[: len(data)]:
            return None
        end = len(MAGIC)
        for read in read_records(memoryview(data)[end:], at=end, past_damage=True):
            left.counts[number] = left.counts.get(number, 0) + 1
            left.damaged += read.at - end
            end = read.end
            _count(left, read.letter)
        # Only the last file ends where the copy did.
        is_damaged = len(data) > end and not (number == numbers[-1] and is_torn(memoryview(data)[end:]))
        left.damaged += len(data) - end if is_damaged else 0
        left.end_is_unknown = is_damaged or not folder.had_room
    return left


def _count(left: Left, letter: Letter) -> None:
    left.decisions += letter.decisions
    spans = [(letter.first_seq, letter.decisions)] if letter.decisions else []
    if letter.loss is not None:
        spans.append((letter.loss.first_seq, letter.loss.count))
    for first_seq, count in spans:
        left.next_seq = max(left.next_seq or 0, first_seq + count)
    if letter.topic == CONTROL.name and not left.has_stopped:
        try:
            left.has_stopped = isinstance(decode_control(letter.value), CopyStopped)
        except CorruptBlock:
            return


class Heirs:
    """Ships what the dead left. Not thread-safe: the shipping thread owns it.

    Args:
        root: of the spool.
        bootstrap: the Kafka servers of this copy.
        outbox: where the letters go.
        worker: does what blocks.
        found: makes the letter that says so, of a copy that ended without saying it, and what it had got to.
    """

    def __init__(
        self,
        root: Path,
        bootstrap: str,
        outbox: Outbox,
        worker: Worker,
        *,
        found: Callable[[CopyIdentity, int | None], Letter],
    ) -> None:
        self._root = root
        self._bootstrap = bootstrap
        self._outbox = outbox
        self._worker = worker
        self._found = found
        self._look_at_s = 0.0
        self._left: Left | None = None
        self._shelves: list[Shelf] = []
        self._counts: dict[int, int] = {}
        self._at = len(MAGIC)
        self._is_whole = True
        self._left_alone: set[CopyIdentity] = set()

    def turn(self, *, now_s: float, partitions: int) -> None:
        """Give the worker what is due; it is free, and the broker takes letters.

        Args:
            now_s: monotonic time.
            partitions: of the grants topic.
        """
        if self._left is None:
            if now_s >= self._look_at_s:
                self._look_at_s = now_s + LOOK_EVERY_S
                self._worker.submit(self._look, self._take_left)
        elif not any(shelf.outstanding for shelf in self._shelves):
            self._go_on(self._left, partitions)

    def after_fork(self) -> None:
        """In a child: the parent ships it."""
        self.release()

    def release(self) -> None:
        """Leave the rest to whoever finds it."""
        left, self._left = self._left, None
        if left is not None:
            left.folder.release()

    def _look(self) -> Left | None:
        return find_left(self._root, bootstrap=self._bootstrap, without=self._left_alone)

    def _take_left(self, left: Left | None) -> None:
        if left is None:
            return
        self._left, self._counts, self._at, self._is_whole = left, dict(left.counts), len(MAGIC), not left.damaged
        whose = left.folder.identity
        log.info(
            "copy %s (epoch %d) left %d decisions in the spool: they go to Kafka now",
            whose.copy_id,
            whose.epoch,
            left.decisions,
        )
        if not (left.folder.had_room or left.has_stopped):
            log.warning("it was killed when its spool was full: what it then had in memory alone is lost")
        if left.damaged:
            log.error("%d bytes of it are damaged in %s: what they held is missing", left.damaged, left.folder.path)
        shelf = Shelf(-1, 0.0)
        self._shelves = [shelf]
        if not left.has_stopped:
            # Where the end is unknown, so is how far the copy had come: the doubt must stay.
            self._send(self._found(whose, None if left.end_is_unknown else left.next_seq), shelf)

    def _go_on(self, left: Left, partitions: int) -> None:
        """All that was read is delivered: read more, or remove it."""
        number = next(iter(self._counts), None)
        if number is None:
            self._worker.submit(partial(_remove if self._is_whole else _set_aside, left.folder), self._forget)
            return
        job = partial(_read, left.folder, number, self._at)
        self._worker.submit(job, partial(self._take_read, number, partitions))

    def _take_read(self, number: int, partitions: int, read: list[Read] | OSError) -> None:
        if isinstance(read, OSError) or not read:
            log.error("what an earlier copy left in the spool cannot be read any more: %s", read or "it is damaged")
            self._is_whole = False
            del self._counts[number]
            self._at = len(MAGIC)
            return
        shelf = Shelf(number, 0.0)
        self._shelves = [shelf]
        for letter, _, end in read:
            for share in share_out(letter, partitions=partitions) if is_undecided(letter) else [letter]:
                self._send(share, shelf)
            self._at = end
        self._counts[number] -= len(read)
        if self._counts[number] <= 0:
            del self._counts[number]
            self._at = len(MAGIC)

    def _send(self, letter: Letter, shelf: Shelf) -> None:
        shelf.outstanding += 1
        self._outbox.put_from_disk(letter, ShelfPlace(shelf))

    def _forget(self, fault: OSError | None) -> None:
        left, self._left = self._left, None
        self._look_at_s = 0.0
        if left is not None and fault is not None:
            log.warning("%s stays in the spool: %s", left.folder.path, fault)
            self._left_alone.add(left.folder.identity)
            left.folder.release()


def _read(folder: SpoolFolder, number: int, at: int) -> list[Read] | OSError:
    try:
        return read_segment(folder, number, at, letters=_AHEAD_LETTERS, size=_AHEAD_BYTES, heir_of=folder.identity)
    except OSError as error:
        return error


def _set_aside(folder: SpoolFolder) -> OSError | None:
    """It holds what could not be read: another heir would send the rest of it again and again."""
    try:
        log.error("what cannot be read stays in %s", folder.set_aside())
    except OSError as error:
        return error
    return None


def _remove(folder: SpoolFolder) -> OSError | None:
    try:
        folder.remove()
    except OSError as error:
        return error
    return None
