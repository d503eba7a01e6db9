"""Messages between sealing and the broker's acknowledgement: kept, in order, until they are delivered.

Pure bookkeeping: no thread, no clock, no Kafka, no disk. What is on disk as well is only marked here.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from itertools import chain, islice
from typing import Final

from enforcer.identity import CopyIdentity
from stream.buffer import Loss
from stream.contract.envelope import Headers
from stream.place import ShelfPlace

#: Letters that wait behind the disk's are numbered from here on, until they are let through.
_BEHIND: Final = 1 << 62


@dataclass(frozen=True, slots=True, eq=False)
class Letter:
    """One message to send.

    Attributes:
        topic, key, value, headers: of the message.
        partition: where it must go; None lets the key choose.
        first_seq, decisions: which decisions it carries, if any.
        facts: how many grants and settlements it carries.
        loss: the loss that it names, if it is a loss record.
        heir_of: the copy that is dead and left it on disk; None for a letter of this copy.
    """

    topic: str
    key: bytes
    value: bytes
    headers: Headers
    partition: int | None = None
    first_seq: int = 0
    decisions: int = 0
    facts: int = 0
    loss: Loss | None = None
    heir_of: CopyIdentity | None = None


class Outbox:
    """Letters by number. Each is waiting, under way or gone; `reset` puts all that are under way back to waiting.

    Letters that must not pass others that are only on disk wait behind: see `divert`.
    """

    def __init__(self) -> None:
        self._letters: dict[int, Letter] = {}
        self._waiting: dict[int, Letter] = {}
        self._behind: dict[int, Letter] = {}
        self._bare: dict[int, Letter] = {}
        self._places: dict[int, ShelfPlace] = {}
        self._handed_over: set[int] = set()
        self._doubtful: set[int] = set()
        self._is_sorted = True
        self._next_number = 0
        self._next_behind = _BEHIND
        self._under_way_bytes = 0
        self.is_diverted = False
        """Whether what is put waits behind what is only on disk."""
        self.held_bytes = 0
        """Bytes of the letters that are sent from here, on disk as well or not."""
        self.bytes = 0
        """Bytes of all letters that are nowhere else."""
        self.decisions = 0
        """Decisions in all letters that are nowhere else."""
        self.facts = 0
        """Facts in all letters that are nowhere else."""
        self.spooled_decisions = 0
        """Decisions of this copy in letters that are here and on disk."""

    def __len__(self) -> int:
        return len(self._letters) + len(self._behind)

    @property
    def under_way(self) -> int:
        """Letters that are handed to the client and not acknowledged."""
        return len(self._letters) - len(self._waiting)

    @property
    def under_way_bytes(self) -> int:
        """Bytes of the letters that are handed to the client and not acknowledged."""
        return self._under_way_bytes

    def put(self, letter: Letter) -> int:
        """Take a letter, last in the order; returns its number, which changes when it is let through from behind."""
        self.bytes += len(letter.value)
        self.decisions += letter.decisions
        self.facts += letter.facts
        if self.is_diverted:
            number = self._next_behind
            self._next_behind += 1
            self._behind[number] = self._bare[number] = letter
            return number
        number = self._take(letter)
        self._bare[number] = letter
        return number

    def put_from_disk(self, letter: Letter, place: ShelfPlace) -> int:
        """Take a letter that is on disk, before all that wait behind."""
        number = self._take(letter)
        self._places[number] = place
        if letter.heir_of is None:
            self.spooled_decisions += letter.decisions
        return number

    def _take(self, letter: Letter) -> int:
        number = self._next_number
        self._next_number += 1
        self._letters[number] = self._waiting[number] = letter
        self.held_bytes += len(letter.value)
        return number

    def divert(self) -> None:
        """From now on letters that are put wait behind: others that came before them are only on disk."""
        self.is_diverted = True

    def behind(self) -> Iterator[Letter]:
        """Letters that wait behind, in order."""
        return iter(self._behind.values())

    def take_behind(self) -> list[Letter]:
        """Nothing is only on disk any more: take out all that wait behind, in order, to be put again."""
        letters = list(self._behind.values())
        for number in list(self._behind):
            self._forget(number, self._behind.pop(number))
        self.is_diverted = False
        return letters

    @property
    def ready(self) -> int:
        """Letters that do not wait behind."""
        return len(self._letters)

    @property
    def bare_numbers(self) -> tuple[int, int] | None:
        """The first and the last letter that is nowhere else, in order."""
        return (next(iter(self._bare)), next(reversed(self._bare))) if self._bare else None

    def bare(self) -> Iterator[tuple[int, Letter]]:
        """Letters that are nowhere else, in order."""
        return iter(self._bare.items())

    def spool(self, number: int, place: ShelfPlace) -> bool:
        """The letter is on disk as well, from now on; False if it waits behind, or is gone."""
        letter = self._letters.get(number)
        if letter is None:
            return False
        self._forget(number, letter)
        self._places[number] = place
        self.spooled_decisions += letter.decisions
        return True

    def leave_to_disk(self, number: int) -> Letter | None:
        """The letter that waits behind is on disk, and from now on only there; None if it is not behind any more."""
        letter = self._behind.pop(number, None)
        if letter is not None:
            self._forget(number, letter)
        return letter

    def spare(
        self, *, letters: int, size: int, follows: Callable[[ShelfPlace], bool]
    ) -> list[tuple[Letter, ShelfPlace]]:
        """Give up the last letters that are on disk too and that no client ever had, but for so many and so much.

        Args:
            letters: how many stay in any case.
            size: how many bytes may stay.
            follows: asked from the last one on, whether nothing stands on disk between it and what is only there.

        Returns:
            What is only on disk now, in order. Letters that are put must wait behind it: see `divert`.
        """
        spared: list[tuple[Letter, ShelfPlace]] = []
        for number in reversed(list(self._letters)):
            if len(self._letters) <= letters and self.held_bytes <= size:
                break
            letter, place = self._letters[number], self._places.get(number)
            if letter.heir_of is not None:
                continue
            if place is None or place.at < 0 or number in self._handed_over or not follows(place):
                break
            del self._letters[number], self._waiting[number], self._places[number]
            self.held_bytes -= len(letter.value)
            self.spooled_decisions -= letter.decisions
            spared.append((letter, place))
        spared.reverse()
        return spared

    def waiting(self, count: int, *, without: Collection[str] = ()) -> list[tuple[int, Letter]]:
        """The first `count` letters that are to be sent, in order, each with its number; none to these topics."""
        if not self._is_sorted:
            self._waiting = dict(sorted(self._waiting.items()))
            self._is_sorted = True
        found = ((number, letter) for number, letter in self._waiting.items() if letter.topic not in without)
        return list(islice(found, count))

    def letter(self, number: int) -> Letter | None:
        """The letter of that number, if it is still here."""
        return self._letters.get(number) or self._behind.get(number)

    def handed_over(self, number: int) -> None:
        """The client has the letter now."""
        self._under_way_bytes += len(self._waiting.pop(number).value)
        self._handed_over.add(number)

    def was_handed_over(self, number: int) -> bool:
        """Whether a client ever had the letter, so that it may be on the log although nobody has said so."""
        return number in self._handed_over

    def doubt(self) -> None:
        """Something went wrong: what a client has now may be on the log, even if it says later that it never left."""
        self._doubtful |= self._handed_over

    def unsent(self) -> list[tuple[int, Letter]]:
        """Letters that are certainly not on the log, and not on disk either."""
        return [(number, letter) for number, letter in self.bare() if number not in self._handed_over]

    def remove(self, number: int) -> Letter | None:
        """The letter is done with, delivered or given up; None if it was already."""
        letter = self._letters.pop(number, None)
        if letter is None:
            letter = self._behind.pop(number, None)
            if letter is not None:
                self._forget(number, letter)
            return letter
        self._handed_over.discard(number)
        self._doubtful.discard(number)
        if self._waiting.pop(number, None) is None:
            self._under_way_bytes -= len(letter.value)
        self.held_bytes -= len(letter.value)
        place = self._places.pop(number, None)
        if place is None:
            self._forget(number, letter)
        else:
            place.shelf.outstanding -= 1
            if letter.heir_of is None:
                self.spooled_decisions -= letter.decisions
        return letter

    def reset(self) -> None:
        """What is under way must be sent again, in its old order: its client is gone, or gave it back."""
        self._waiting = dict(self._letters)
        self._is_sorted = True
        self._under_way_bytes = 0

    def give_back(self, number: int, *, never_left: bool = False) -> None:
        """One letter under way must be sent again, at its old place in the order; or its client had not yet sent it."""
        letter = self._letters.get(number)
        if letter is None or number in self._waiting:
            return
        self._waiting[number] = letter
        self._is_sorted = False
        if never_left and number not in self._doubtful:
            self._handed_over.discard(number)
        self._under_way_bytes -= len(letter.value)

    def clear(self) -> None:
        """Forget all letters."""
        for letters in (self._letters, self._waiting, self._behind, self._bare, self._places):
            letters.clear()
        self._handed_over.clear()
        self._doubtful.clear()
        self._under_way_bytes = self.held_bytes = self.bytes = self.decisions = self.facts = 0

    def __iter__(self) -> Iterator[tuple[int, Letter]]:
        """All letters with their numbers, in order."""
        return chain(self._letters.items(), self._behind.items())

    def _forget(self, number: int, letter: Letter) -> None:
        """It is not bare any more, or gone."""
        del self._bare[number]
        self.bytes -= len(letter.value)
        self.decisions -= letter.decisions
        self.facts -= letter.facts
