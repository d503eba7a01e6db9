"""When a copy's letters go to disk, and when they come back: decided by the shipping thread, done by a worker.

Letters are written, in order, as soon as there is trouble: then they are in memory and on disk, and what the courier
does not need soon is only on disk. While anything is only on disk, later letters wait behind it and follow it there; so
the order of a copy's letters is that of the disk, then of what waits behind. A file goes when its last letter is
delivered. Nothing here blocks, reads a clock or raises for a fault of the disk.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

from stream.config import StreamConfig
from stream.outbox import Letter, Outbox
from stream.place import ShelfPlace
from stream.spool.record import Read
from stream.spool.shelves import File, Shelves
from stream.spool.store import SpoolStore, Written
from stream.spool.undecided import is_undecided, share_out
from stream.spool.worker import Worker

log = logging.getLogger("tallygate.stream")

#: A letter that nobody has acknowledged is written once it is so old, and at twice that age at the latest.
SPILL_AFTER_S: Final = 1.0
#: How long a disk without room, or one that fails, is left alone.
_RETRY_S: Final = 1.0
#: So often in a row a file may fail to be read before what is in it counts as lost.
_READ_ATTEMPTS: Final = 5
READY_LETTERS: Final = 1_000
READY_BYTES: Final = 16 * 1024 * 1024
#: What one job reads, more or less.
_READ_BYTES: Final = 4 * 1024 * 1024


def _tell_of_end(fault: OSError | None) -> None:
    if fault is not None:
        log.error(
            "the spool (TALLYGATE_SPOOL_DIR) could not be closed in order: %s. What is in it was written, and may not "
            "outlast a failure of the machine",
            fault,
        )


@dataclass(slots=True)
class _Done:
    """What came of a job."""

    written: Written
    read: list[Read] | OSError | None


class Spooler:
    """The letters of one living copy. Not thread-safe: the shipping thread owns it.

    Args:
        config: of the copy.
        outbox: its letters.
        store: its files.
        worker: does what blocks.
        on_unreadable: told decisions (first seq and how many) and facts that the disk has lost.
        ready_letters: how many letters the courier finds ready.
        ready_bytes: how many bytes, more or less; what is written beyond either is only on disk.
    """

    def __init__(
        self,
        config: StreamConfig,
        outbox: Outbox,
        store: SpoolStore,
        worker: Worker,
        *,
        on_unreadable: Callable[[list[tuple[int, int]], int], None],
        ready_letters: int = READY_LETTERS,
        ready_bytes: int = READY_BYTES,
    ) -> None:
        self._config = config
        self._outbox = outbox
        self._store = store
        self._worker = worker
        self._on_unreadable = on_unreadable
        self._ready_letters = ready_letters
        self._ready_bytes = ready_bytes
        self._shelves = Shelves()
        self._now_s = 0.0
        self._looked_s = -SPILL_AFTER_S
        self._seen = -1
        self._is_overdue = False
        self._wait_until_s = float("-inf")
        self._read_wait_until_s = float("-inf")
        self._failed_reads = 0
        self._busy_since_s: float | None = None
        self.oldest_s: float | None = None
        """Since when the oldest file is there, monotonic seconds; None if there is none."""
        self.has_no_room = False
        """Whether the last letters that were to be written found no room."""

    @property
    def decisions(self) -> int:
        """Decisions on disk that are not delivered."""
        return self._shelves.unread_decisions + self._outbox.spooled_decisions

    @property
    def unread(self) -> int:
        """Letters that are only on disk."""
        return self._shelves.unread

    def turn(self, *, now_s: float, in_trouble: bool, partitions: int | None, ends: bool = False) -> bool:
        """Give the worker what is due, if it is free. What came of its last job must have been taken.

        Args:
            now_s: monotonic time.
            in_trouble: the courier cannot send.
            partitions: of the grants topic; None while nobody has said.
            ends: the copy ends: all letters are to be on disk.

        Returns:
            Whether the worker has something to do.
        """
        self._now_s = now_s
        self.oldest_s = self._shelves.oldest_s
        is_stuck = self._is_stuck()
        if not self._worker.is_busy or is_stuck:
            self._let_through(partitions)
        if self._worker.is_busy:
            return True
        done = self._shelves.take_done()
        file = self._next_to_read(partitions)
        is_due = self._is_due(in_trouble=in_trouble, ends=ends) and (in_trouble or ends or not self._catches_up(file))
        # All of them: rounds may be seconds apart while the broker is looked for, and memory bounds what there is.
        batch = list(self._outbox.bare()) if is_due else []
        if not (done or file or batch):
            return False
        self._busy_since_s = now_s
        job = self._job(done, file, [letter for _, letter in batch], ends=ends)
        self._worker.submit(job, partial(self._take, batch, file, partitions))
        return True

    def end(self) -> None:
        """Have the worker close the files, once it is free; only it may have taken longer than anybody waits."""
        store, done = self._store, self._shelves.take_done()

        def work() -> OSError | None:
            store.drop(done)
            return store.close()

        self._worker.submit(work, _tell_of_end)

    def _is_stuck(self) -> bool:
        if not self._worker.is_busy:
            self._busy_since_s = None
        return self._busy_since_s is not None and self._now_s - self._busy_since_s > _RETRY_S

    def _let_through(self, partitions: int | None) -> None:
        """What waits behind may be sent once nothing is only on disk, if everything in it has its place."""
        outbox = self._outbox
        if not outbox.is_diverted or self._shelves.unread:
            return
        if partitions is None and any(is_undecided(letter) for letter in outbox.behind()):
            return
        for letter in outbox.take_behind():
            for share in self._shares(letter, partitions):
                outbox.put(share)

    def _is_due(self, *, in_trouble: bool, ends: bool) -> bool:
        """Whether letters are to be written now."""
        config, outbox = self._config, self._outbox
        numbers = outbox.bare_numbers
        if self._now_s - self._looked_s >= SPILL_AFTER_S:
            self._is_overdue = numbers is not None and numbers[0] <= self._seen
            self._looked_s, self._seen = self._now_s, -1 if numbers is None else numbers[1]
        if numbers is None or (self._now_s < self._wait_until_s and not ends):
            return False
        is_filling = 2 * outbox.bytes >= config.max_held_bytes or 2 * outbox.decisions >= config.max_held
        return ends or in_trouble or outbox.is_diverted or self._is_overdue or is_filling

    def _catches_up(self, file: File | None) -> bool:
        """Whether soon nothing is only on disk: writing more would put that off for ever."""
        return file is not None and self._shelves.unread <= self._ready_letters

    def _next_to_read(self, partitions: int | None) -> File | None:
        outbox = self._outbox
        has_enough = 2 * outbox.ready > self._ready_letters or 2 * outbox.held_bytes > self._ready_bytes
        if partitions is None or has_enough or self._now_s < self._read_wait_until_s:
            return None
        return self._shelves.next_unread()

    def _job(self, done: list[int], file: File | None, letters: list[Letter], *, ends: bool) -> Callable[[], _Done]:
        store = self._store
        place = None if file is None else (file.number, file.unread_at, min(file.unread, self._ready_letters))

        def work() -> _Done:
            store.drop(done)
            read: list[Read] | OSError | None = None
            if place is not None:
                try:
                    read = store.read(place[0], place[1], letters=place[2], size=_READ_BYTES)
                except OSError as error:
                    read = error
            return _Done(store.write(letters, ends=ends) if letters else Written(), read)

        return work

    def _take(self, batch: list[tuple[int, Letter]], file: File | None, partitions: int | None, done: _Done) -> None:
        self._busy_since_s = None
        if file is not None and done.read is not None:
            self._take_read(file, done.read, partitions)
        if batch:
            self._take_written(batch, done.written)

    def _take_written(self, batch: list[tuple[int, Letter]], written: Written) -> None:
        outbox, shelves = self._outbox, self._shelves
        for (number, letter), span in zip(batch, written.places, strict=True):
            if span is None:
                continue
            place = ShelfPlace(file := shelves.written(span.segment, span.end, now_s=self._now_s), span.at, span.end)
            if outbox.spool(number, place):
                continue
            if outbox.leave_to_disk(number) is None:
                file.outstanding -= 1
            else:
                shelves.leave(letter, place)
        self._tell_of_room(written.fault)
        before: ShelfPlace | None = None

        def follows(place: ShelfPlace) -> bool:
            nonlocal before
            if not shelves.follows(place, before):
                return False
            before = place
            return True

        spared = outbox.spare(letters=self._ready_letters, size=self._ready_bytes, follows=follows)
        for letter, place in reversed(spared):
            shelves.leave(letter, place, first=True)
        if spared:
            outbox.divert()

    def _tell_of_room(self, fault: OSError | None) -> None:
        if fault is not None:
            self._wait_until_s = self._now_s + _RETRY_S
            if not self.has_no_room:
                log.warning(
                    "the spool (TALLYGATE_SPOOL_DIR) takes no more: %s. What follows waits in memory, and is tried "
                    "again; where that is full too, it is lost",
                    fault,
                )
        elif self.has_no_room:
            log.info("the spool takes messages again")
        self.has_no_room = fault is not None

    def _take_read(self, file: File, read: list[Read] | OSError, partitions: int | None) -> None:
        if isinstance(read, OSError) and not isinstance(read, FileNotFoundError):
            self._failed_reads += 1
            if self._failed_reads < _READ_ATTEMPTS:
                self._read_wait_until_s = self._now_s + _RETRY_S
                return
        self._failed_reads = 0
        if isinstance(read, OSError) or not read:
            log.error(
                "a file of the spool cannot be read (%s): what was in it is lost", read or "its records are damaged"
            )
            self._on_unreadable(*self._shelves.give_up(file))
            return
        for letter, at, end in read:
            self._shelves.read(file, letter, end)
            shares = self._shares(letter, partitions)
            file.outstanding += len(shares) - 1
            place = ShelfPlace(file) if is_undecided(letter) else ShelfPlace(file, at, end)
            for share in shares:
                self._outbox.put_from_disk(share, place)

    def _shares(self, letter: Letter, partitions: int | None) -> list[Letter]:
        return share_out(letter, partitions=partitions) if partitions is not None and is_undecided(letter) else [letter]
