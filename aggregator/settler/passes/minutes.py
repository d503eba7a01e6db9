"""The pass over minutes: their decisions are read once, in parts that fit into memory, and given to all who count them.

Minutes are taken in order of time. What a taker says has moved is followed into later minutes, for these callers alone.
Writes nothing itself.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Protocol, TypeAlias

from aggregator.core.fairness.rows import Rows
from aggregator.settler.passes.due import Due
from aggregator.settler.passes.reading import DecisionsReader, Part
from aggregator.store import ColumnStore

#: Decisions that are read at once. Each takes some 170 bytes while it is counted, and as much again in the engine.
MOST_DECISIONS = 2_000_000
#: Minutes that are taken at once for callers whose past has changed: up to the end of the hour.
_STRETCH = 60

#: Minutes to be taken, each for some callers or (None) for all.
_Todo: TypeAlias = dict[int, frozenset[str] | None]


class Taking(Protocol):
    """One thing that is being computed of the decisions of some minutes."""

    def take(self, part: Part, rows: Rows) -> None:
        """Count the decisions of a part, each of which comes once.

        Raises:
            StoreUnavailable, StoreRefused: see `Pass.settle`.
        """
        ...

    def end(self) -> None:
        """All have been taken: write what is left; raises the same."""
        ...


class Taker(Protocol):
    """What computes it."""

    def begin(self, store: ColumnStore, due: Due) -> Taking:
        """Start to compute it of some minutes, from nothing."""
        ...


class Following(Taking, Protocol):
    """A taking for which a minute stands on the one before."""

    def moved(self, part: Part) -> dict[int, frozenset[str]]:
        """After a part was taken: which minutes after it are to be taken again, for which callers; raises the same."""
        ...


class Follower(Protocol):
    """What computes it."""

    def begin(self, store: ColumnStore, due: Due) -> Following:
        """Start to compute it of some minutes, from nothing."""
        ...


class MinutesPass:
    """A `Pass` of the settler.

    Args:
        takers: what is computed of the decisions, in this order.
        follower: the same, and what it says has moved is followed.
        most_decisions: how many decisions are read at once; callers are divided for it.
    """

    def __init__(
        self, takers: Sequence[Taker], follower: Follower | None = None, *, most_decisions: int = MOST_DECISIONS
    ) -> None:
        self._takers = takers
        self._follower = follower
        self._most = most_decisions

    def settle(self, store: ColumnStore, due: Due) -> None:
        """See `Pass.settle`."""
        reader = DecisionsReader(store, due.erased)
        takings = [taker.begin(store, due) for taker in self._takers]
        following = None if self._follower is None else self._follower.begin(store, due)
        every = takings if following is None else [*takings, following]
        todo: _Todo = dict.fromkeys(due.minutes)
        while todo:
            part = self._bounded(reader, todo)
            for one in reader.divided(part, self._most):
                rows = reader.decisions(one)
                for taking in every:
                    if len(rows) and (part.callers is None or taking is following):
                        taking.take(one, rows)
            for minute, callers in ({} if following is None else following.moved(part)).items():
                _add(todo, minute, callers)
        for taking in every:
            taking.end()

    def _bounded(self, reader: DecisionsReader, todo: _Todo) -> Part:
        """The next part, of so many minutes that it can be read at once; what is cut off stays to be done."""
        part = _next_part(todo)
        while part.high - part.low > 1 and reader.count(part) > self._most:
            middle = (part.low + part.high) // 2
            for minute in range(middle, part.high) if part.callers is None else (middle,):
                _add(todo, minute, part.callers)
            part = Part(part.low, middle, callers=part.callers)
        return part


def _add(todo: _Todo, minute: int, callers: Collection[str] | None) -> None:
    already = todo.get(minute, frozenset())
    todo[minute] = None if already is None or callers is None else already | frozenset(callers)


def _next_part(todo: _Todo) -> Part:
    """Take the earliest minutes out of what is to be done: a run that is due for all, or a stretch for some callers."""
    low = min(todo)
    callers = todo.pop(low)
    high = low + 1
    if callers is not None:
        return Part(low, (low // _STRETCH + 1) * _STRETCH, callers=callers)
    while high in todo and todo[high] is None:
        del todo[high]
        high += 1
    return Part(low, high)
