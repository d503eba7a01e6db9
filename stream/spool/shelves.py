"""What is only on disk, as the shipping thread knows it: which files, how much of each, which decisions. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

from stream.outbox import Letter
from stream.place import Shelf, ShelfPlace
from stream.spool.record import MAGIC


@dataclass(slots=True, eq=False)
class File(Shelf):
    """A file of this copy. Its unread letters, which are nowhere else, are its last ones, without gaps.

    Attributes:
        end: the byte behind its last letter.
        unread: letters that are nowhere else.
        unread_at: the byte at which they begin.
        unread_facts: grants and settlements in them.
        unread_seqs: decisions in them, as ``[first_seq, count]`` in order.
    """

    end: int = len(MAGIC)
    unread: int = 0
    unread_at: int = 0
    unread_facts: int = 0
    unread_seqs: deque[list[int]] = field(default_factory=deque)


class Shelves:
    """The files of one copy that hold letters which are not delivered, in order."""

    def __init__(self) -> None:
        self._files: dict[int, File] = {}
        self.unread = 0
        """Letters that are nowhere else."""
        self.unread_decisions = 0
        """Decisions in them."""

    @property
    def oldest_s(self) -> float | None:
        """Since when the oldest file is there, monotonic seconds; None if there is none."""
        return next(iter(self._files.values())).since_s if self._files else None

    def written(self, number: int, end: int, *, now_s: float) -> File:
        """A letter was written to this file, up to this byte."""
        if number not in self._files:
            self._files[number] = File(number, now_s)
        file = self._files[number]
        file.outstanding += 1
        file.end = end
        return file

    def follows(self, place: ShelfPlace, before: ShelfPlace | None) -> bool:
        """Whether a letter is the last on disk before another, or before all that is unread."""
        files = list(self._files.values())
        first = before or next((ShelfPlace(file, file.unread_at) for file in files if file.unread), None)
        file = self._files[place.shelf.number]
        if first is not None and first.shelf is file:
            return place.end == first.at
        after = [one for one in files if one.number > file.number]
        goes_on = not after if first is None else bool(after) and after[0] is first.shelf and first.at == len(MAGIC)
        return place.end == file.end and goes_on

    def leave(self, letter: Letter, place: ShelfPlace, *, first: bool = False) -> None:
        """A letter is only there from now on: behind all others that are, or before them."""
        file = self._files[place.shelf.number]
        if first or not file.unread:
            file.unread_at = place.at
        file.unread += 1
        file.unread_facts += letter.facts
        self.unread += 1
        self.unread_decisions += letter.decisions
        if letter.decisions:
            _join(file.unread_seqs, letter.first_seq, letter.decisions, first=first)

    def next_unread(self) -> File | None:
        """The file whose unread letters come first."""
        return next((file for file in self._files.values() if file.unread), None)

    def read(self, file: File, letter: Letter, end: int) -> None:
        """The first unread letter of a file was read; the next one begins at this byte."""
        file.unread -= 1
        file.unread_at = end
        file.unread_facts -= letter.facts
        self.unread -= 1
        self.unread_decisions -= letter.decisions
        left = letter.decisions
        while left and file.unread_seqs:
            run = file.unread_seqs[0]
            taken = min(left, run[1])
            run[0], run[1], left = run[0] + taken, run[1] - taken, left - taken
            if not run[1]:
                file.unread_seqs.popleft()

    def give_up(self, file: File) -> tuple[list[tuple[int, int]], int]:
        """The unread letters of a file cannot be read: which decisions are in them, and how many facts."""
        lost = [(first_seq, count) for first_seq, count in file.unread_seqs], file.unread_facts
        self.unread -= file.unread
        self.unread_decisions -= sum(count for _, count in file.unread_seqs)
        file.outstanding -= file.unread
        file.unread = file.unread_facts = 0
        file.unread_seqs.clear()
        return lost

    def take_done(self) -> list[int]:
        """Take out the files of which every letter is delivered."""
        done = [number for number, file in self._files.items() if not file.outstanding]
        for number in done:
            del self._files[number]
        return done

    def __iter__(self) -> Iterator[File]:
        return iter(self._files.values())


def _join(runs: deque[list[int]], first_seq: int, count: int, *, first: bool) -> None:
    if first and runs and first_seq + count == runs[0][0]:
        runs[0] = [first_seq, runs[0][1] + count]
    elif first:
        runs.appendleft([first_seq, count])
    elif runs and runs[-1][0] + runs[-1][1] == first_seq:
        runs[-1][1] += count
    else:
        runs.append([first_seq, count])
