"""Rows of `caller_days`, six hours of quarters of an hour each, folded into the buckets of a page. Asks nothing.

Never counts a quarter outside the span, nor one that is read minute by minute: of a day that has such, each quarter is
looked at for itself, of any other the whole.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import groupby
from operator import add
from typing import Any, TypeAlias

from dashboard.answers import QUARTER_S, Totals, plan_of
from dashboard.rows import Busiest, CallerStep, Counts, PlanTerms

PER_DAY = 96
_COUNTS = tuple(field.name for field in fields(Counts))
#: Bits of the first of the two numbers that say in which quarters a copy was reached.
_LOW_BITS = 64

Plans: TypeAlias = dict[int, PlanTerms]


@dataclass(frozen=True, slots=True)
class Reach:
    """Which quarters of an hour are taken from days.

    Attributes:
        first, end: the first of the span, and the one after its last; unix seconds / 900.
        fresh: those that are read minute by minute.
        starts_s: where the buckets of the page begin, ascending.
    """

    first: int
    end: int
    fresh: frozenset[int]
    starts_s: Sequence[int]

    @property
    def days(self) -> tuple[int, int]:
        """The first and the last day, unix days."""
        return self.first // PER_DAY, (self.end - 1) // PER_DAY

    def partial(self) -> list[int]:
        """The days that are not taken whole, ascending."""
        first, last = self.days
        found = {quarter // PER_DAY for quarter in self.fresh}
        if self.first % PER_DAY:
            found.add(first)
        if self.end % PER_DAY:
            found.add(last)
        return sorted(day for day in found if first <= day <= last)

    def has(self, quarter: int) -> bool:
        """Whether a quarter is taken from its day."""
        return self.first <= quarter < self.end and quarter not in self.fresh


@dataclass(frozen=True, slots=True)
class Row:
    """What one row says: a number for each quarter of `at` (unix seconds / 900, ascending), by name."""

    at: Sequence[int]
    numbers: Mapping[str, Sequence[int]]

    def only(self, has: Callable[[int], bool]) -> Row:
        """Of some of its quarters."""
        places = [place for place, quarter in enumerate(self.at) if has(quarter)]
        if len(places) == len(self.at):
            return self
        kept = {name: [block[place] for place in places] for name, block in self.numbers.items()}
        return Row([self.at[place] for place in places], kept)

    def of(self, name: str) -> Sequence[int]:
        """The numbers of one name; what is left out is 0."""
        return self.numbers.get(name) or [0] * len(self.at)

    def counts(self, low: int, high: int) -> Counts:
        """The sum over places of `at`."""
        return Counts(**{name: sum(block[low:high]) for name, block in self.numbers.items()})

    def pieces(self, starts_s: Sequence[int]) -> Iterable[tuple[int, int, int]]:
        """The places of `at` bucket by bucket: where the bucket begins, the first place, the one after the last."""
        if not self.at:
            return
        first = max(0, bisect_left(starts_s, self.at[0] * QUARTER_S + 1) - 1)
        low = 0
        for number in range(first, len(starts_s)):
            ends = number + 1 == len(starts_s)
            high = len(self.at) if ends else bisect_left(self.at, -(-starts_s[number + 1] // QUARTER_S), low)
            if high > low:
                yield starts_s[number], low, high
            low = high
            if low == len(self.at):
                return


def fold_days(rows: Sequence[tuple[Any, ...]], reach: Reach) -> Totals:
    """The rows of `caller_days`, all of one caller."""
    found, partial = Totals(), set(reach.partial())
    scoped: dict[tuple[str, ...], list[int]] = {}
    told: list[Row] = []
    plans: Plans = {}
    for kind, day, scope, at, names, numbers in rows:
        clean = day not in partial
        if kind == "endpoints":
            if clean:
                before = scoped.get(tuple(names))
                scoped[tuple(names)] = list(numbers) if before is None else list(map(add, before, numbers))
        elif kind == "copies":
            found.copies.update(names if clean else _reached(names, numbers, _bits(reach, day)))
        else:
            row = _row_of(day * PER_DAY, at, names, numbers)
            row = row if clean else row.only(reach.has)
            if kind == "total":
                _add_series(found, row, reach.starts_s)
            elif kind == "caller":
                told.append(row)
            elif kind == "plan":
                _add_plan(plans, row, scope)
            elif not clean and row.at:
                found.endpoints[scope] = found.endpoints.get(scope, Counts()) + row.counts(0, len(row.at))
    for scopes, sums in scoped.items():
        _add_endpoints(found, scopes, sums)
    for row in sorted((row for row in told if row.at), key=lambda row: row.at[0]):
        _add_caller(found, row, plans, reach.starts_s)
    return found


def _row_of(first: int, at: Sequence[int], names: Sequence[str], numbers: Sequence[int]) -> Row:
    held = len(at)
    blocks = {name: numbers[place * held : (place + 1) * held] for place, name in enumerate(names)}
    return Row([first + quarter for quarter in at], blocks)


def _add_series(found: Totals, row: Row, starts_s: Sequence[int]) -> None:
    for start_s, low, high in row.pieces(starts_s):
        found.series[start_s] = found.series.get(start_s, Counts()) + row.counts(low, high)
    found.quarters.update(zip(row.at, row.of("offered"), strict=True))


def _add_endpoints(found: Totals, scopes: Sequence[str], numbers: Sequence[int]) -> None:
    held = len(scopes)
    for place, scope in enumerate(scopes):
        counts = Counts(*(int(numbers[column * held + place]) for column in range(len(_COUNTS))))
        found.endpoints[scope] = found.endpoints.get(scope, Counts()) + counts


def _add_plan(plans: Plans, row: Row, name: str) -> None:
    known: dict[tuple[int, int], PlanTerms | None] = {}
    for quarter, terms in zip(row.at, zip(row.of("rate_per_s"), row.of("burst"), strict=True), strict=True):
        if terms not in known:
            known[terms] = plan_of(name, struct.unpack("<d", struct.pack("<Q", terms[0]))[0], terms[1])
        plan = known[terms]
        if plan is not None:
            plans[quarter] = plan


def _add_caller(found: Totals, row: Row, plans: Plans, starts_s: Sequence[int]) -> None:
    """Steps, one for each bucket and plan; busiest second and minute; quarters whose second is not certain."""
    in_force = [plans.get(quarter) for quarter in row.at]
    reached, counted = row.of("reached"), row.of("k_counted")
    for _, low, high in row.pieces(starts_s):
        for plan, group in groupby(range(low, high), in_force.__getitem__):
            places = list(group)
            first, end = places[0], places[-1] + 1
            found.steps.append(
                CallerStep(row.at[first] * QUARTER_S, plan, max(reached[first:end]), max(counted[first:end]))
            )
    found.second = busier(found.second, _most(row, "second"))
    found.minute = busier(found.minute, _most(row, "minute"))
    if "second_at_most" in row.numbers:
        unsure = zip(row.at, row.numbers["second_at_most"], strict=True)
        found.unsure += [(quarter, at_most) for quarter, at_most in unsure if at_most]


def _most(row: Row, unit: str) -> Busiest | None:
    requests = row.of(f"busiest_{unit}")
    most = max(requests, default=0)
    if not most:
        return None
    at_s = min(at for at, held in zip(row.of(f"busiest_{unit}_at"), requests, strict=True) if held == most)
    return Busiest(at_s * 1_000_000, most, unit)


def busier(first: Busiest | None, second: Busiest | None) -> Busiest | None:
    """The one with more requests; the earlier of two that have as many."""
    found = [one for one in (first, second) if one is not None]
    return max(found, key=lambda one: (one.requests, -one.at_us), default=None)


def _bits(reach: Reach, day: int) -> int:
    return sum(1 << nth for nth in range(PER_DAY) if reach.has(day * PER_DAY + nth))


def _reached(copies: Sequence[str], numbers: Sequence[int], bits: int) -> list[str]:
    """Those that were reached in some of these quarters."""
    held = len(copies)
    found = ((copy, numbers[place] | numbers[held + place] << _LOW_BITS) for place, copy in enumerate(copies))
    return [copy for copy, reached in found if reached & bits]
