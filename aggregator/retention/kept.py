"""Since when the raw record is whole: what verifying, reconciling and recomputing must know of spans that are older.

Reads what was in force when, never the rows themselves; says only "gone", never "was it ever there".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime

from aggregator.retention.tiers import Keep
from aggregator.sql import load_queries
from aggregator.store import Store

_QUERIES = load_queries("aggregator.sql", "retention.sql")
_DAY_US = 86_400_000_000
_EPOCH = date(1970, 1, 1)


@dataclass(frozen=True, slots=True)
class Kept:
    """From when on raw decisions are whole, in unix microseconds (the beginning of a day, UTC); 0: from the first on.

    Attributes:
        admitted_from_us: no admitted decision from then on was dropped for its age.
        refused_from_us: the same of refused ones; never later.
        dropped: spans that were dropped by hand, ``(from_us, to_us)``, in order of time.
        blocks_from_us: no block that was sealed from then on, nor any event, was dropped for its age.
        limited: whether any retention was ever in force; while none was, no raw decision goes for its age.
    """

    admitted_from_us: int = 0
    refused_from_us: int = 0
    dropped: tuple[tuple[int, int], ...] = ()
    limited: bool = False
    blocks_from_us: int = 0

    @property
    def whole_from_us(self) -> int:
        """From when on nothing at all was dropped, for its age or by hand."""
        return max(self.admitted_from_us, *(end_us for _, end_us in self.dropped), 0)

    def whole(self, from_us: int, to_us: int, *, refused_only: bool = False) -> bool:
        """Whether every raw decision of a span (without its end) is there, as far as retention goes."""
        return not self.gone(from_us, to_us, refused_only=refused_only)

    def gone(self, from_us: int, to_us: int, *, refused_only: bool = False) -> list[str]:
        """What of a span is gone, as sentences for people; empty if nothing."""
        said = []
        if from_us < self.refused_from_us:
            said.append(f"raw decisions before {_day(self.refused_from_us)} are gone: they were kept no longer")
        if not refused_only and from_us < self.admitted_from_us and to_us > self.refused_from_us:
            said.append(
                f"admitted raw decisions before {_day(self.admitted_from_us)} are gone: they were kept no longer"
            )
        said += [
            f"raw decisions from {_day(start)} to {_day(end)} are gone: dropped by hand"
            for start, end in self.dropped
            if from_us < end and to_us > start
        ]
        return said


def kept(store: Store) -> Kept:
    """Since when the raw record of this database is whole, now.

    Raises:
        StoreUnavailable, StoreRefused: it could not be asked.
    """
    now_us = int(store.rows(_QUERIES["now"].sql)[0][0])
    history = [
        (int(at_us), Keep(*(int(number) for number in numbers)))
        for at_us, *numbers in store.rows(_QUERIES["retention_history"].sql)
    ]
    months = [(int(year), int(month)) for year, month in store.rows(_QUERIES["retention_dropped"].sql)]
    return from_history(history, months, now_us=now_us)


def from_history(history: Sequence[tuple[int, Keep]], dropped: Sequence[tuple[int, int]], *, now_us: int) -> Kept:
    """The same from what was in force: (since when, in unix microseconds; what), oldest first; and (year, month)."""
    ends = [at_us for at_us, _ in history[1:]] + [now_us]
    spans = [(end_us // _DAY_US, keep) for (_, keep), end_us in zip(history, ends, strict=True)] if history else []
    return Kept(
        max((day - keep.admitted_days for day, keep in spans), default=0) * _DAY_US,
        max((day - keep.refused_days for day, keep in spans), default=0) * _DAY_US,
        tuple(sorted(month_span(year, month) for year, month in dropped)),
        bool(history),
        max((day - keep.minutes_days for day, keep in spans), default=0) * _DAY_US,
    )


def month_span(year: int, month: int) -> tuple[int, int]:
    """A calendar month (UTC): its beginning and the next one's, in unix microseconds."""
    first, following = date(year, month, 1), date(year + month // 12, month % 12 + 1, 1)
    return (first - _EPOCH).days * _DAY_US, (following - _EPOCH).days * _DAY_US


def _day(unix_us: int) -> str:
    return datetime.fromtimestamp(unix_us // 1_000_000, UTC).strftime("%Y-%m-%d")
