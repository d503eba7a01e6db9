"""Messages between sealing and the broker's acknowledgement: kept, in order, until they are delivered.

Pure bookkeeping: no thread, no clock, no Kafka.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from itertools import islice

from stream.buffer import Loss
from stream.contract.envelope import Headers


@dataclass(frozen=True, slots=True, eq=False)
class Letter:
    """One message to send.

    Attributes:
        topic, key, value, headers: of the message.
        partition: where it must go; None lets the key choose.
        first_seq, decisions: which decisions it carries, if any.
        facts: how many grants and settlements it carries.
        loss: the loss that it names, if it is a loss record.
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


class Outbox:
    """Letters by number. Each is waiting, under way or gone; `reset` puts all that are under way back to waiting."""

    def __init__(self) -> None:
        self._letters: dict[int, Letter] = {}
        self._waiting: dict[int, Letter] = {}
        self._handed_over: set[int] = set()
        self._doubtful: set[int] = set()
        self._is_sorted = True
        self._next_number = 0
        self._under_way_bytes = 0
        self.bytes = 0
        """Bytes of all letters here."""
        self.decisions = 0
        """Decisions in all letters here."""
        self.facts = 0
        """Facts in all letters here."""

    def __len__(self) -> int:
        return len(self._letters)

    @property
    def under_way(self) -> int:
        """Letters that are handed to the client and not acknowledged."""
        return len(self._letters) - len(self._waiting)

    @property
    def under_way_bytes(self) -> int:
        """Bytes of the letters that are handed to the client and not acknowledged."""
        return self._under_way_bytes

    def put(self, letter: Letter) -> int:
        """Take a letter, last in the order; returns its number."""
        number = self._next_number
        self._letters[number] = letter
        self._waiting[number] = letter
        self._next_number += 1
        self.bytes += len(letter.value)
        self.decisions += letter.decisions
        self.facts += letter.facts
        return number

    def waiting(self, count: int, *, without: Collection[str] = ()) -> list[tuple[int, Letter]]:
        """The first `count` letters that are to be sent, in order, each with its number; none to these topics."""
        if not self._is_sorted:
            self._waiting = dict(sorted(self._waiting.items()))
            self._is_sorted = True
        found = ((number, letter) for number, letter in self._waiting.items() if letter.topic not in without)
        return list(islice(found, count))

    def letter(self, number: int) -> Letter | None:
        """The letter of that number, if it is still here."""
        return self._letters.get(number)

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
        """Letters that are certainly not on the log."""
        return [(number, letter) for number, letter in self if number not in self._handed_over]

    def remove(self, number: int) -> Letter | None:
        """The letter is done with, delivered or given up; None if it was already."""
        letter = self._letters.pop(number, None)
        if letter is None:
            return None
        self._handed_over.discard(number)
        self._doubtful.discard(number)
        if self._waiting.pop(number, None) is None:
            self._under_way_bytes -= len(letter.value)
        self.bytes -= len(letter.value)
        self.decisions -= letter.decisions
        self.facts -= letter.facts
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
        self._letters.clear()
        self._waiting.clear()
        self._handed_over.clear()
        self._doubtful.clear()
        self._under_way_bytes = self.bytes = self.decisions = self.facts = 0

    def __iter__(self) -> Iterator[tuple[int, Letter]]:
        """All letters with their numbers, in order."""
        return iter(self._letters.items())
