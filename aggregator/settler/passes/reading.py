"""Reads the decisions of some minutes, once for all that is computed of them.

Rows are taken as the table's parts hold them, and put in order here; only where one stands there twice, the engine is
asked to fold them. Decides nothing, and writes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from aggregator.core.fairness.rows import Rows, rows_of
from aggregator.core.record.erased import Erased
from aggregator.core.settled.settling import MINUTE_US
from aggregator.settler.naming import can_be_named
from aggregator.sql import composed, load_queries
from aggregator.store import ColumnStore
from enforcer.core.resolution import LIMIT_RATE

_S_PER_MINUTE = 60


@dataclass(frozen=True, slots=True)
class Part:
    """Which decisions: those of the minutes `low` up to (without) `high`, of a range of all callers, or of some.

    The range is of names, from `from_caller` up to (without) `to_caller`, or to the last where that is empty.
    `callers` None means all.
    """

    low: int
    high: int
    from_caller: str = ""
    to_caller: str = ""
    callers: frozenset[str] | None = None

    @property
    def named(self) -> list[str]:
        """The callers as they stand in a question; none where they are too many, so that everybody is asked for."""
        return [] if self.callers is None or not can_be_named(self.callers) else sorted(self.callers)

    @property
    def parameters(self) -> dict[str, Any]:
        """As the queries bind it."""
        return {
            "low_us": self.low * MINUTE_US,
            "high_us": self.high * MINUTE_US,
            "low_s": self.low * _S_PER_MINUTE,
            "high_s": self.high * _S_PER_MINUTE,
            "from_caller": self.from_caller,
            "to_caller": self.to_caller,
            "callers": self.named,
            "rate": LIMIT_RATE,
        }

    def concerns(self, caller: str) -> bool:
        """Whether it is about this caller, as far as names say."""
        return self.callers is None or caller in self.callers


class _Counts(NamedTuple):
    """Callers in order of their names, how many decisions each has, and whether any was charged to further limits."""

    callers: list[str]
    decisions: list[int]
    charged: bool


class DecisionsReader:
    """Asks one store, for one round: how many decisions there are is asked once.

    Args:
        store: the database.
        erased: whose decisions are left out though they may still be there, known before anything is read.
    """

    def __init__(self, store: ColumnStore, erased: Erased) -> None:
        self._store = store
        self._erased = erased
        self._counts: dict[Part, _Counts] = {}

    def count(self, part: Part) -> int:
        """About how many decisions there are, of everybody where the part is not of few callers."""
        return 0 if part.named else sum(self._counted(part).decisions)

    def divided(self, part: Part, most: int) -> Iterator[Part]:
        """The part in ranges of callers with about so many decisions at most; one caller is never divided."""
        if part.named:
            yield part
            return
        counts = self._counted(part)
        start, held = "", 0
        for caller, number in zip(counts.callers, counts.decisions, strict=True):
            if held and held + number > most:
                yield replace(part, from_caller=start, to_caller=caller)
                start, held = caller, 0
            held += number
        yield replace(part, from_caller=start)

    def decisions(self, part: Part, *, charged: bool | None = None) -> Rows:
        """The decisions, in the order of the table.

        Args:
            part: which.
            charged: whether any was charged to further limits; None asks.

        Raises:
            StoreUnavailable, StoreRefused: see `ColumnStore`.
        """
        is_charged = self._counted(part).charged if charged is None else charged
        name = "decisions_charged" if is_charged else "decisions"
        rows = self._rows(name, "as_stored", part)
        if rows.repeats:
            rows = replace(self._rows(name, "folded", part), repeats=0)
        rows = without_erased(rows, self._erased.since(part.low * MINUTE_US))
        return rows if part.callers is None or part.named else rows.of_callers(part.callers)

    def _rows(self, name: str, source: str, part: Part) -> Rows:
        return rows_of(self._store.arrow(composed("decisions.sql", name, source=source), part.parameters))

    def _counted(self, part: Part) -> _Counts:
        asked = Part(part.low, part.high, callers=part.callers if part.named else None)
        if asked not in self._counts:
            sql = load_queries("aggregator.sql", "decisions.sql")["decisions_count"].sql
            found = sorted(self._store.rows(sql, asked.parameters))
            self._counts[asked] = _Counts(
                [str(row[0]) for row in found], [int(row[1]) for row in found], any(row[2] for row in found)
            )
        return self._counts[asked]


def without_erased(rows: Rows, erased: Erased) -> Rows:
    """Without what was erased, and without what a bucket of the erased paid for others then."""
    if not erased.erasures or not len(rows):
        return rows
    charges = rows.charges
    paid = erased.gone(charges.subject.names, charges.subject.numbers, rows.at_us[charges.row])
    rows = rows.without_charges(paid) if paid.any() else rows
    gone = erased.gone(rows.caller.names, rows.caller.numbers, rows.at_us)
    return rows.only(~gone) if gone.any() else rows
