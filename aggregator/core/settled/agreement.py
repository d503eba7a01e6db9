"""Live totals against settled ones: which differences are findings, and when they are over.

Pure. A difference is a finding when the same minute still differs at a later check, although the record has by then
reached everything that the live totals had counted at the first: the live totals may be ahead of the record for a
moment, and the record of them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from aggregator.core.settled.settling import Log


@dataclass(frozen=True, slots=True)
class Difference:
    """One caller's minute (unix minutes) that is not counted alike."""

    minute: int
    caller: str
    live_offered: int
    live_admitted: int
    settled_offered: int
    settled_admitted: int

    @property
    def words(self) -> str:
        """For the log."""
        return (
            f"caller {self.caller!r}, minute {self.minute}: live says {self.live_offered} offered and "
            f"{self.live_admitted} admitted, settled {self.settled_offered} and {self.settled_admitted}"
        )

    def lacks(self, offered: int, admitted: int) -> bool:
        """Whether the live totals lack no more than so many decisions, and so many of them admitted."""
        return (
            0 <= self.settled_offered - self.live_offered <= offered
            and 0 <= self.settled_admitted - self.live_admitted <= admitted
        )


@dataclass(frozen=True, slots=True)
class Disagreement:
    """A difference that stayed, when it was found, at which version, and what explains it; empty if nothing does."""

    difference: Difference
    found_us: int
    version: int
    cause: str = ""


#: The live totals lack decisions of letters that were re-driven: their copy had gone on beyond them.
REDRIVEN = "redriven"


@dataclass(frozen=True, slots=True)
class Judged:
    """What one check came to: minutes that need no further check, and differences that have become findings."""

    checked: frozenset[int]
    found: tuple[Difference, ...]


class Suspicions:
    """Minutes that differed at a check, each with how far the live totals were then."""

    def __init__(self) -> None:
        self._seen: dict[int, Mapping[Log, int]] = {}

    def judge(
        self,
        compared: Iterable[int],
        differences: Collection[Difference],
        *,
        live: Mapping[Log, int],
        recorded: Mapping[Log, int],
    ) -> Judged:
        """Take one check's outcome.

        Args:
            compared: the minutes that were compared; all of them were clean.
            differences: what differs in them.
            live: how far the live totals covered each log before they were read.
            recorded: how far the journal covered it.
        """
        differing = {one.minute for one in differences}
        checked, confirmed = set[int](), set[int]()
        for minute in compared:
            if minute not in differing:
                checked.add(minute)
            elif minute in self._seen and _reached(recorded, self._seen[minute]):
                checked.add(minute)
                confirmed.add(minute)
            else:
                self._seen.setdefault(minute, dict(live))
        for minute in checked:
            self._seen.pop(minute, None)
        return Judged(frozenset(checked), tuple(one for one in differences if one.minute in confirmed))

    def keep(self, minutes: Collection[int]) -> None:
        """Forget all others: they have changed, and are judged anew when they are clean again."""
        self._seen = {minute: live for minute, live in self._seen.items() if minute in minutes}


def _reached(recorded: Mapping[Log, int], live: Mapping[Log, int]) -> bool:
    """Whether the record has all that the live totals had; logs that the journal never heard of do not count."""
    return all(recorded[log] >= position for log, position in live.items() if log in recorded)
