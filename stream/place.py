"""Where on disk a letter stands, and who must hear that it is delivered. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


@dataclass(slots=True, eq=False)
class Shelf:
    """One file on disk, as those see it who wait for its letters to be delivered.

    Attributes:
        number: of the file.
        since_s: when the first of them was written, monotonic seconds.
        outstanding: letters in it that are not delivered.
    """

    number: int
    since_s: float
    outstanding: int = 0


class ShelfPlace(NamedTuple):
    """Where a letter stands on disk: from which byte to which; nowhere, from -1, if it cannot be read again alone."""

    shelf: Shelf
    at: int = -1
    end: int = -1
