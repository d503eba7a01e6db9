"""Says once of each kind of fault what it is and how many it concerned, however often it comes again."""

from __future__ import annotations

import logging
import re
from typing import Final

log = logging.getLogger("tallygate.stream")

#: Kinds that are told apart; whoever makes up more of them gets no further lines.
_MAX_KINDS: Final = 100
_MAX_TEXT: Final = 300
#: Where a fault's text begins to speak of the one value.
_VALUE: Final = re.compile(r" is |'|\d")


class FaultLog:
    """The faults of one copy. Not thread-safe."""

    def __init__(self) -> None:
        self._told: set[tuple[str, str]] = set()
        self._noted: dict[tuple[str, str], tuple[str, int]] = {}

    def note(self, what: str, fault: Exception | str, count: int = 1) -> None:
        """Take a fault for the next `flush`.

        Args:
            what: what it concerned, in the plural.
            fault: why; its text up to the first value in it names the kind.
            count: how many it concerned.
        """
        text = fault if isinstance(fault, str) else str(fault) or type(fault).__name__
        kind = (what, f"{type(fault).__name__} {_VALUE.split(text, 1)[0][:_MAX_TEXT]}")
        if kind in self._noted:
            text, before = self._noted[kind]
            count += before
        self._noted[kind] = (text, count)

    def flush(self) -> None:
        """Log what was noted since the last call and had not been told before."""
        for kind, (text, count) in self._noted.items():
            if self.is_new(kind):
                log.error(
                    "%d %s cannot be recorded: %s (further ones are counted, not logged)", count, kind[0], _plain(text)
                )
        self._noted.clear()

    def is_new(self, kind: tuple[str, str]) -> bool:
        """Whether this kind was never told; from now on it was."""
        if kind in self._told or len(self._told) >= _MAX_KINDS:
            return False
        self._told.add(kind)
        return True


def _plain(text: str) -> str:
    """The text in one line of bounded length: a fault may quote anything."""
    return text.encode("unicode_escape", "backslashreplace").decode()[:_MAX_TEXT]
