"""Which numbers came before, of the last so many: what may be done once is not done twice. Pure and bounded."""

from __future__ import annotations

#: Numbers that are remembered: about 1 MB.
MOST = 16_384


class Once:
    """Remembers the last `MOST` numbers; the oldest goes first."""

    __slots__ = ("_numbers",)

    def __init__(self) -> None:
        self._numbers: dict[int, None] = {}

    def is_first(self, number: int) -> bool:
        """Whether this number is not among those remembered; from now on it is."""
        if number in self._numbers:
            return False
        if len(self._numbers) >= MOST:
            del self._numbers[next(iter(self._numbers))]
        self._numbers[number] = None
        return True
