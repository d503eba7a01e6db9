"""The ledger as minutes close: what grants were spent of, the hours that this changes, and which decisions are missing.

An hour's ledger is summed as it fills, when it ends, and once more ten minutes and an hour later (settlements and
credits come after the decisions); every ten minutes those older hours whose grants were spent of, settled or credited
in these; and whenever late decisions are settled, the hours of the grants that they took of. Never reads a whole hour's
decisions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pyarrow as pa

from aggregator.core.fairness.rows import Rows
from aggregator.core.settled.counting import charged_of, spent_of, summed
from aggregator.core.settled.settling import MINUTE_US
from aggregator.retention.begins import Begins, begins
from aggregator.retention.kept import kept
from aggregator.settler.passes.due import Due
from aggregator.settler.passes.reading import Part
from aggregator.settler.passes.totals import insert
from aggregator.sql import composed, load_queries
from aggregator.store import ColumnStore

_MINUTES, _HOUR_US = 60, 3_600_000_000
#: Minutes of an hour whose end is a time to sum it; after the first of them the hour before is summed again.
_EVERY = 10
#: How far back, in seconds, missing decisions are looked for that no loss record names, and how many minutes at most:
#: with every tenth minute, and once after a start.
_NEAR_S, _NEAR_MOST = 2 * 86_400, 60
_FAR_S, _FAR_MOST = 32 * 86_400, 500
#: Where the record begins is asked for so often; it moves with retention, by months.
_BEGINS_US = 3_600_000_000


class Ledger:
    """A `Taker`: keeps `grant_minutes`, `ledger_hours` and `missing_minutes`."""

    def __init__(self) -> None:
        gaps = load_queries("aggregator.sql", "audit_gaps.sql")
        self._missing, self._unexplained = gaps["settle_missing"].sql, gaps["missing_unexplained"].sql
        self._looked_back = False
        self._begins, self._begins_us = Begins(), -_BEGINS_US

    def begin(self, store: ColumnStore, due: Due) -> LedgerTaking:
        """See `Taker.begin`."""
        return LedgerTaking(store, due, self._count_missing)

    def _count_missing(self, store: ColumnStore, due: Due) -> None:
        if not 0 <= due.at_us - self._begins_us < _BEGINS_US:
            self._begins, self._begins_us = begins(store), due.at_us
        store.command(self._missing, {**due.parameters, **self._begins.parameters})
        if not self._looked_back or any(minute % _EVERY == _EVERY - 1 for minute in due.minutes):
            self._look_back(store, due)

    def _look_back(self, store: ColumnStore, due: Due) -> None:
        """Count again where decisions are missing without a loss record: it may have come since, or they may have."""
        back_s, most = (_NEAR_S, _NEAR_MOST) if self._looked_back else (_FAR_S, _FAR_MOST)
        now_s = due.at_us // 1_000_000
        span = {"from_s": max(0, now_s - back_s), "to_s": now_s, "most": most}
        for (minute,) in store.rows(self._unexplained, span):
            if int(minute) not in due.minutes:
                late = Due([int(minute)], due.version, due.at_us)
                store.command(self._missing, {**late.parameters, **self._begins.parameters})
        self._looked_back = True


#: Whose grants are summed.
_EVERYBODY = {"caller": "", "from_caller": "", "to_caller": ""}


class LedgerTaking:
    """A `Taking` of `Ledger`.

    What was taken of a caller's own grants lies among the caller's decisions. Where any were charged to further limits,
    whose grants others take of too, sums wait for all.
    """

    def __init__(self, store: ColumnStore, due: Due, count_missing: Callable[[ColumnStore, Due], None]) -> None:
        self._store = store
        self._due = due
        self._queries = load_queries("aggregator.sql", "audit_grants.sql")
        self._hour = composed("audit_grants.sql", "settle_ledger", named="named_by_minutes")
        self._count_missing = count_missing
        self._waiting: list[pa.Table] = []

    def take(self, part: Part, rows: Rows) -> None:  # noqa: ARG002  (others ask for more of the part)
        """See `Taking.take`."""
        spent = spent_of(rows)
        if not rows.charged:
            self._write(spent)
            return
        unknown = [str(name) for (name,) in self._store.rows(self._queries["settle_unknown_subjects"].sql)]
        self._waiting += [spent, charged_of(rows, unknown)]

    def end(self) -> None:
        """See `Taking.end`."""
        if self._waiting:
            self._write(summed(self._waiting))
        due = self._due
        for hour in sorted({*hours_due(due.minutes, due.at_us), *self._named(self._store, due)}):
            span = {"from_us": hour * _HOUR_US, "to_us": (hour + 1) * _HOUR_US, **_EVERYBODY}
            self._store.command(self._hour, {**span, "version": due.version, "stored_at_us": due.at_us})
        self._count_missing(self._store, due)

    def _write(self, spent: pa.Table) -> None:
        insert(self._store, "grant_minutes", spent, self._due, stored=False)

    def _named(self, store: ColumnStore, due: Due) -> set[int]:
        """The hours of the grants that the minutes to look at name, but those that are no longer whole."""
        looked = minutes_looked(due.minutes, due.at_us)
        if not looked:
            return set()
        hours = {
            int(hour)
            for (hour,) in store.rows(self._queries["settle_hours"].sql, Due(looked, due.version, due.at_us).parameters)
        }
        record = kept(store)
        return {
            hour
            for hour in hours
            if record.whole(hour * _HOUR_US, (hour + 1) * _HOUR_US, refused_only=True) and hour * _HOUR_US <= due.at_us
        }


def minutes_looked(minutes: Sequence[int], at_us: int) -> list[int]:
    """The unix minutes whose grants tell which older hours have changed, when these were settled at a time, ascending.

    A minute that is late by itself; of those in time the last ten, every ten minutes.
    """
    looked: set[int] = set()
    for minute in minutes:
        if at_us - (minute + 1) * MINUTE_US > _EVERY * MINUTE_US:
            looked.add(minute)
        elif minute % _EVERY == _EVERY - 1:
            looked.update(range(minute + 1 - _EVERY, minute + 1))
    return sorted(looked)


def hours_due(minutes: Sequence[int], at_us: int) -> list[int]:
    """The unix hours to sum when these unix minutes were settled at a time, ascending."""
    hours: set[int] = set()
    for minute in minutes:
        hour, place = divmod(minute, _MINUTES)
        if (hour + 1) * _HOUR_US <= at_us or place % _EVERY == _EVERY - 1:
            hours.add(hour)
        if place in (_EVERY - 1, _MINUTES - 1):
            hours.add(hour - 1)
    return sorted(hours)
