"""Which message of each partition is due. One that comes too early is left, and what is due is asked for again.

The embedded broker shows a message before the one ahead of it for a moment, when many are written at once: a reader
that went on would never see that one. Apache Kafka does not. Pure: the caller's clock, and the caller asks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

#: After so long of asking it counts as certain that the log does not have what is due.
PATIENCE_S = 5.0
_ASK_EVERY_S = 0.2

Partition = tuple[str, int]


class Turn(Enum):
    """What a message is to whoever reads in order."""

    DUE = "due"
    EARLY = "early"
    #: Offsets fell: it is another log, or one that was cut.
    BACK = "back"


@dataclass(slots=True)
class Hole:
    """What is due of a partition and did not come.

    Attributes:
        since_s: since when.
        asked_s: when it was last asked for; None if not yet.
        answered: whether the first message after that has come.
    """

    since_s: float
    asked_s: float | None = None
    answered: bool = False


class Order:
    """The due offset of each partition, from the first message on or from where reading was begun."""

    def __init__(self) -> None:
        self._due: dict[Partition, int] = {}
        self._holes: dict[Partition, Hole] = {}
        #: Partitions of which no message has come since `begin`.
        self._unheard: set[Partition] = set()
        #: Offsets that the log did not have, as (topic, partition, first, last); for the reader to take and to say.
        self.passed_over: list[tuple[str, int, int, int]] = []

    def begin(self, due: Mapping[Partition, int]) -> None:
        """Forget everything; `due` is where reading begins, of the partitions of which that is known.

        A first message before that is taken: the log was cut, and its client has begun at what is left.
        """
        self._due, self._holes, self._unheard = dict(due), {}, set(due)

    def turn(self, topic: str, partition: int, offset: int, now_s: float) -> Turn:
        """Judge the next message of a partition, and expect the one after it if it is due.

        The first message that the broker gave when it was asked for what is due, `PATIENCE_S` after that was missed
        first, is due: there is nothing between.
        """
        place = (topic, partition)
        due = self._due.get(place, offset)
        if offset < due and place not in self._unheard:
            return Turn.BACK
        self._unheard.discard(place)
        if offset > due and not self._passes(place, due, offset, now_s):
            return Turn.EARLY
        self._holes.pop(place, None)
        self._due[place] = offset + 1
        return Turn.DUE

    def to_ask(self, now_s: float) -> list[tuple[str, int, int]]:
        """(topic, partition, offset) of what has to be asked for now, because others came before it.

        Not while an answer is awaited: asking throws away the fetch that is under way.
        """
        return [
            (*place, self._due[place])
            for place, hole in self._holes.items()
            if hole.asked_s is None or now_s - hole.asked_s >= (_ASK_EVERY_S if hole.answered else PATIENCE_S)
        ]

    def asked(self, topic: str, partition: int, now_s: float) -> None:
        """The next message of this partition is the first from the one that is due on."""
        hole = self._holes[topic, partition]
        hole.asked_s, hole.answered = now_s, False

    def _passes(self, place: Partition, due: int, offset: int, now_s: float) -> bool:
        hole = self._holes.setdefault(place, Hole(now_s))
        first = hole.asked_s is not None and not hole.answered
        hole.answered = True
        # When it was asked counts, not when the answer is looked at: this process may have stood still in between.
        if not first or (hole.asked_s or 0.0) - hole.since_s < PATIENCE_S:
            return False
        self.passed_over.append((*place, due, offset - 1))
        return True
