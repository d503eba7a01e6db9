"""Numbers that are missing, and which part of them somebody said was lost. Pure; numbers are half open: [first, end).

Knows nothing of blocks, copies or time.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, order=True)
class Numbers:
    """The numbers from `first` up to, and without, `end`."""

    first: int
    end: int

    @property
    def count(self) -> int:
        """How many."""
        return self.end - self.first

    @property
    def words(self) -> str:
        """As people read them, both ends named: ``100 to 111``, or ``100`` alone."""
        return f"{self.first}" if self.count == 1 else f"{self.first} to {self.end - 1}"


def parts_of(hole: Numbers, said: Iterable[Numbers]) -> tuple[list[Numbers], list[Numbers]]:
    """What is said of a hole, and what nobody says: (declared, silent), each in order and without overlap.

    Args:
        hole: numbers that are missing.
        said: numbers that were said to be lost, in any order; they may overlap each other and reach beyond the hole.
    """
    declared: list[Numbers] = []
    silent: list[Numbers] = []
    at = hole.first
    for one in sorted(said):
        first, end = max(one.first, at), min(one.end, hole.end)
        if first >= end:
            continue
        if first > at:
            silent.append(Numbers(at, first))
        if declared and declared[-1].end == first:
            declared[-1] = Numbers(declared[-1].first, end)
        else:
            declared.append(Numbers(first, end))
        at = end
    if at < hole.end:
        silent.append(Numbers(at, hole.end))
    return declared, silent
