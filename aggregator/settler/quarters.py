"""Rolls quarters of an hour up from what is settled: what pages of a day and more are made from.

Never says that a quarter is rolled up before all of its rows are stored, nor of tables that a replay has exchanged
meanwhile, and takes that back before a minute of it that has changed counts as settled. Idempotent: what is written are
totals with the version that they stand on.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from aggregator.core.settled.settling import Backlog, covers
from aggregator.settler.passes.due import Sliced
from aggregator.settler.table import SettlingTables
from aggregator.sql import composed, load_queries
from aggregator.store import ColumnStore
from enforcer.core.resolution import LIMIT_RATE

_FILE = "rollup.sql"
_MINUTES, _QUARTER_S, _QUARTER_US = 15, 900, 900_000_000
_PER_DAY = 96
#: Quarters that `quarter_days` keeps together.
_PER_PART = 24
#: How far back quarters are looked for that are not rolled up: what the longest page shows, once an hour, else one day.
_FAR, _NEAR = 32 * _PER_DAY, _PER_DAY
_FAR_EVERY_US, _NEAR_EVERY_US = 3_600_000_000, 10_000_000
#: Days of which quarters are rolled up for the first time in one round: after an update there are many.
_MOST_NEW = 2
#: Quarters that one statement names.
_AT_ONCE = 500


@dataclass(frozen=True, slots=True)
class Roll:
    """Quarters of one UTC day to roll up, ascending, and since which version callers changed in them (0: take all)."""

    quarters: Sequence[int]
    since: int


class QuarterTotals:
    """Keeps `quarters`, `quarter_days` and `rolled_quarters`."""

    def __init__(self) -> None:
        self._sql = {name: composed(_FILE, name) for name in load_queries("aggregator.sql", _FILE)}
        self._sums = [Sliced(self._sql[name]) for name in ("roll_usage", "roll_callers")]
        self._days = Sliced(self._sql["roll_days"])
        self._far_us = -_FAR_EVERY_US
        self._near_us = -_NEAR_EVERY_US
        #: The tables that this round began with: names, and what tells one from another of its name.
        self._made: list[tuple[str, str]] = []

    def settle(self, tables: SettlingTables, backlog: Backlog, minutes: Collection[int], now_us: int) -> None:
        """Roll up what can be, after `minutes` were settled and before anybody is told that they are.

        Raises:
            StoreUnavailable, StoreRefused: see `Store`; a repetition finds the same.
        """
        if not backlog.version or (not minutes and 0 <= now_us - self._near_us < _NEAR_EVERY_US):
            # Before anything is on record, empty quarters are no finding: all of a log may be about to be read.
            return
        self._near_us = now_us
        # Before anything is asked that the marks will stand on.
        ((made,),) = tables.store.rows(self._sql["roll_made"])
        self._made = [(str(name), str(uuid)) for name, uuid in made]
        touched = quarters_of(minutes)
        if not covers(tables.live_progress(), backlog.positions):
            # Plans and copies are those of the live totals, which have still to come.
            held = self._open(tables.store, touched, now_us, near=0)
            self._mark(tables.store, sorted(one for one in held if held[one]), backlog.version, now_us, whole=False)
            return
        far = not 0 <= now_us - self._far_us < _FAR_EVERY_US
        known = self._open(tables.store, touched, now_us, near=_FAR if far else _NEAR)
        waiting = set(quarters_of(backlog.dirty))
        ready = {one: since for one, since in known.items() if one not in waiting and _over(one, now_us)}
        again, new = self._rolls(tables.store, ready, backlog.version, now_us)
        for roll in [*again, *new[:_MOST_NEW]]:
            self._roll(tables.store, roll, backlog.version, now_us)
        if far and len(new) <= _MOST_NEW:
            self._far_us = now_us

    def reopen(self, store: ColumnStore, minutes: Collection[int], version: int, now_us: int) -> None:
        """Some minutes are settled again, or will not be any more: their quarters count as not rolled up."""
        since = now_us // _QUARTER_US - _FAR
        self._mark(store, [one for one in quarters_of(minutes) if one >= since], version, now_us, whole=False)

    def _open(self, store: ColumnStore, touched: Sequence[int], now_us: int, *, near: int) -> dict[int, int]:
        """Quarters of the last `near` that are not rolled up, and those that were touched.

        Each with the version at which it was rolled up, or 0.
        """
        end = now_us // _QUARTER_US
        low, high = max(0, min([end - near, *touched])), max([end, *(one + 1 for one in touched)])
        span = {"low_s": low * _QUARTER_S, "high_s": high * _QUARTER_S, "open_from": max(0, end - near)}
        rows = store.rows(self._sql["roll_open"], {**span, "quarters": list(touched)})
        return {int(number): int(version) for number, version in rows}

    def _rolls(
        self, store: ColumnStore, ready: Mapping[int, int], version: int, now_us: int
    ) -> tuple[list[Roll], list[Roll]]:
        """What to do again, and for the first time, by day, the newest first.

        Of what nothing is settled is said at once that it is rolled up, but not where the live totals have something.
        """
        if not ready:
            return [], []
        span = {"low_s": min(ready) * _QUARTER_S, "high_s": (max(ready) + 1) * _QUARTER_S}
        found = [tuple(int(one) for one in row) for row in store.rows(self._sql["roll_filled"], span)]
        filled = {number for number, settled, _, too_late, behind in found if settled and not too_late and not behind}
        others = {number for number, _, is_live, too_late, _ in found if is_live or too_late}
        self._mark(store, sorted(ready.keys() - filled - others), version, now_us, whole=True)
        rolls: tuple[list[Roll], list[Roll]] = [], []
        numbers = sorted(ready.keys() & filled, reverse=True)
        for (_, is_new), group in groupby(numbers, lambda number: (number // _PER_DAY, not ready[number])):
            quarters = sorted(group)
            rolls[is_new].append(Roll(quarters, min(ready[number] for number in quarters)))
        return rolls

    def _roll(self, store: ColumnStore, roll: Roll, version: int, now_us: int) -> None:
        low, high = roll.quarters[0], roll.quarters[-1] + 1
        span = {"low_s": low * _QUARTER_S, "high_s": high * _QUARTER_S, "quarters": list(roll.quarters)}
        about = {**span, "since": roll.since, "version": version, "stored_at_us": now_us}
        self._sums[0].run(store, about)
        self._sums[1].run(store, {**about, "rate": LIMIT_RATE})
        known = {"since": roll.since, "version": version, "stored_at_us": now_us}
        for part in sorted({quarter // _PER_PART for quarter in roll.quarters}):
            self._days.run(store, {**part_of(part), **known})
        self._mark(store, roll.quarters, version, now_us, whole=True)

    def _mark(self, store: ColumnStore, quarters: Sequence[int], version: int, now_us: int, *, whole: bool) -> None:
        for start in range(0, len(quarters), _AT_ONCE):
            marks = {"quarters": list(quarters[start : start + _AT_ONCE]), "whole": whole, "made": self._made}
            store.command(self._sql["roll_marks"], {**marks, "version": version, "stored_at_us": now_us})


def part_of(number: int) -> dict[str, int]:
    """Six hours of a day, unix seconds / 21,600, as `roll_days` binds them."""
    low_s, part_s = number * _PER_PART * _QUARTER_S, _PER_PART * _QUARTER_S
    parts = _PER_DAY // _PER_PART
    return {"low_s": low_s, "high_s": low_s + part_s, "part": number % parts, "day_s": number // parts * parts * part_s}


def quarters_of(minutes: Collection[int]) -> list[int]:
    """The unix quarters of some unix minutes, ascending."""
    return sorted({minute // _MINUTES for minute in minutes})


def _over(quarter: int, now_us: int) -> bool:
    return (quarter + 1) * _QUARTER_US <= now_us
