"""What passes are: each recounts one thing of closed minutes from the exact record.

A pass is idempotent: done twice, by two settlers, or cut off in the middle and done again, it leaves the same rows. It
writes totals under an identity with the version that it is given, and never an increment.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from aggregator.core.record.erased import Erased
from aggregator.core.settled.settling import MINUTE_US
from aggregator.store import ColumnStore, StoreTooMuch

_S_PER_MINUTE = 60
_MOST_SLICES = 4_096


@dataclass(frozen=True, slots=True)
class Due:
    """Minutes to settle in one go.

    Attributes:
        minutes: unix minutes of one UTC day, ascending, at least one.
        version: the position in the log that the recount stands on, taken before anything is read.
        at_us: now, in unix microseconds: what stands on rows as `stored_at`.
        erased: what is not to be counted, asked for before anything is read.
    """

    minutes: Sequence[int]
    version: int
    at_us: int
    erased: Erased = field(default_factory=Erased)

    @property
    def parameters(self) -> dict[str, Any]:
        """As the queries bind it: the minutes, the span around them in two units, version and time."""
        low, high = self.minutes[0], self.minutes[-1] + 1
        return {
            "minutes": list(self.minutes),
            "low_us": low * MINUTE_US,
            "high_us": high * MINUTE_US,
            "low_s": low * _S_PER_MINUTE,
            "high_s": high * _S_PER_MINUTE,
            "version": self.version,
            "stored_at_us": self.at_us,
        }


class Pass(Protocol):
    """One thing that is computed of closed minutes."""

    def settle(self, store: ColumnStore, due: Due) -> None:
        """Compute it for all minutes of `due`, and return once it is stored.

        Raises:
            StoreUnavailable: nothing can be said of what was written; the same will be asked again.
            StoreRefused: trying again will not help; the settler ends.
        """
        ...


class Sliced:
    """A recount in as many INSERTs, by hash of what it groups by first, as keep each below the bound of one part."""

    def __init__(self, sql: str) -> None:
        self._sql = sql
        self._slices = 1

    def run(self, store: ColumnStore, parameters: Mapping[str, Any]) -> None:
        """Run it. What a try had written before it proved too much is found unchanged by the next, and stays."""
        while True:
            try:
                for number in range(self._slices):
                    store.command(self._sql, {**parameters, "slices": self._slices, "slice": number})
            except StoreTooMuch:
                if self._slices >= _MOST_SLICES:
                    raise
                self._slices *= 2
            else:
                return
