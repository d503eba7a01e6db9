"""Days of quarters of an hour, folded into the buckets of a page: what each quarter by itself would come to."""

from __future__ import annotations

import random
import struct
from dataclasses import fields
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from dashboard.answers import Totals
from dashboard.days import PER_DAY, Reach, fold_days
from dashboard.rows import Busiest, CallerStep, Counts, PlanTerms
from dashboard.spans import SPANS, cut

_COUNTS = [field.name for field in fields(Counts)]
_SCOPES = ("GET /", "POST /")
_PLANS = (PlanTerms("standard", 0.5, 30), PlanTerms("large", 50.0, 300), None)
_TOLD = ("reached", "k_counted", "busiest_minute", "busiest_minute_at", "busiest_second", "busiest_second_at")

Usage = dict[tuple[int, str], Counts]
Told = dict[int, tuple[PlanTerms | None, dict[str, int], list[str]]]


def made_up(chance: random.Random, first: int, end: int) -> tuple[Usage, Told]:
    """Quarters with and without usage, plans that change, copies that come and go."""
    usage: Usage = {}
    told: Told = {}
    for quarter in range(first, end):
        for scope in _SCOPES:
            if chance.random() < 0.4:
                usage[quarter, scope] = Counts(*(chance.choice((0, chance.randint(1, 99))) for _ in _COUNTS))
        if chance.random() < 0.5:
            numbers = {name: chance.choice((0, chance.randint(1, 9))) for name in _TOLD}
            numbers["second_at_most"] = chance.choice((0, 0, 0, 12))
            copies = chance.sample(["gw-1", "gw-2", "gw-3"], chance.randint(0, 2))
            told[quarter] = chance.choice((_PLANS[quarter // 50 % 2], None)), numbers, copies
    return usage, told


def row(day: int, kind: str, scope: str, blocks: dict[int, dict[str, int]]) -> tuple[Any, ...]:
    """As the settler writes it: names with nothing but 0 are left out."""
    at = sorted(blocks)
    names = [name for name in next(iter(blocks.values())) if any(block[name] for block in blocks.values())]
    numbers = [blocks[quarter][name] for name in names for quarter in at]
    return kind, day, scope, [quarter - day * PER_DAY for quarter in at], names, numbers


def day_rows(usage: Usage, told: Told, reach: Reach) -> list[tuple[Any, ...]]:
    """The rows of `caller_days`: of each part of a day for itself."""
    rows, partial = list[tuple[Any, ...]](), reach.partial()
    first, last = reach.days
    for part in range(first * 4, last * 4 + 4):
        day = part // 4
        mine = {key: counts for key, counts in usage.items() if key[0] // 24 == part}
        whole: dict[int, Counts] = {}
        for (quarter, _), counts in mine.items():
            whole[quarter] = whole.get(quarter, Counts()) + counts
        by_scope = {scope: {key[0]: counts for key, counts in mine.items() if key[1] == scope} for scope in _SCOPES}
        if mine:
            rows.append(row(day, "total", "", {quarter: _named(counts) for quarter, counts in whole.items()}))
            sums = {scope: sum(held.values(), Counts()) for scope, held in by_scope.items() if held}
            numbers = [getattr(counts, name) for name in _COUNTS for counts in sums.values()]
            rows.append(("endpoints", day, "", [], list(sums), numbers))
        for scope, held in by_scope.items():
            if held and day in partial:
                rows.append(row(day, "usage", scope, {quarter: _named(counts) for quarter, counts in held.items()}))
        rows += _rows_of_caller(day, {quarter: facts for quarter, facts in told.items() if quarter // 24 == part})
    return rows


def _named(counts: Counts) -> dict[str, int]:
    return {name: getattr(counts, name) for name in _COUNTS}


def _rows_of_caller(day: int, told: Told) -> list[tuple[Any, ...]]:
    if not told:
        return []
    rows = [row(day, "caller", "", {quarter: numbers for quarter, (_, numbers, _) in told.items()})]
    for plan in _PLANS[:2]:
        assert plan is not None
        bits = struct.unpack("<Q", struct.pack("<d", plan.rate_per_s))[0]
        held = {quarter: {"rate_per_s": bits, "burst": plan.burst} for quarter in told if told[quarter][0] == plan}
        if held:
            rows.append(row(day, "plan", plan.name, held))
    reached: dict[str, int] = {}
    for quarter, (_, _, copies) in told.items():
        for copy in copies:
            reached[copy] = reached.get(copy, 0) | 1 << quarter % PER_DAY
    numbers = [*(bits & (1 << 64) - 1 for bits in reached.values()), *(bits >> 64 for bits in reached.values())]
    return [*rows, ("copies", day, "", [], list(reached), numbers)]


def one_by_one(usage: Usage, told: Told, reach: Reach) -> Totals:
    """The same, each quarter for itself."""
    found = Totals()
    for (quarter, scope), counts in sorted(usage.items()):
        if reach.has(quarter):
            start_s = max(start_s for start_s in reach.starts_s if start_s <= quarter * 900)
            found.series[start_s] = found.series.get(start_s, Counts()) + counts
            found.endpoints[scope] = found.endpoints.get(scope, Counts()) + counts
            found.quarters[quarter] = found.quarters.get(quarter, 0) + counts.offered
    kept = {quarter: facts for quarter, facts in sorted(told.items()) if reach.has(quarter)}
    for quarter, (plan, numbers, copies) in kept.items():
        found.steps.append(CallerStep(quarter * 900, plan, numbers["reached"], numbers["k_counted"]))
        found.copies.update(copies)
        if numbers["second_at_most"]:
            found.unsure.append((quarter, numbers["second_at_most"]))
    for unit in ("second", "minute"):
        told_of = [numbers for _, numbers, _ in kept.values() if numbers[f"busiest_{unit}"]]
        most = min(told_of, key=lambda one: (-one[f"busiest_{unit}"], one[f"busiest_{unit}_at"]), default=None)
        if most is not None:
            busiest = Busiest(most[f"busiest_{unit}_at"] * 1_000_000, most[f"busiest_{unit}"], unit)
            setattr(found, unit, busiest)
    return found


def stepped(steps: list[CallerStep], starts_s: list[int]) -> list[tuple[int, PlanTerms | None, int, int]]:
    """Steps of one plan after the other in one bucket as one, with the most of each."""
    found: list[tuple[int, PlanTerms | None, int, int]] = []
    bucket = None
    for step in steps:
        place = max(start_s for start_s in starts_s if start_s <= step.step_s)
        if found and place == bucket and found[-1][1] == step.plan:
            start_s, plan, copies, k_counted = found[-1]
            found[-1] = start_s, plan, max(copies, step.copies), max(k_counted, step.k_counted)
        else:
            found.append((step.step_s, step.plan, step.copies, step.k_counted))
        bucket = place
    return found


@pytest.mark.parametrize("zone", ["Europe/Berlin", "America/St_Johns", "Asia/Kathmandu", "Australia/Lord_Howe"])
@pytest.mark.parametrize(("span", "now_s"), [("24h", 1_793_000_700), ("7d", 1_793_000_700), ("30d", 1_794_000_000)])
def test_days_come_to_what_their_quarters_come_to(zone: str, span: str, now_s: int) -> None:
    """Days begin at any quarter, last 23 to 25 hours where clocks change, and have quarters that are not rolled up."""
    chance = random.Random(f"{zone} {span}")
    starts_s = [bucket.start_s for bucket in cut(SPANS[span], now_s=now_s, zone=ZoneInfo(zone))]
    first, end = starts_s[0] // 900, now_s // 900 + 1
    fresh = frozenset({end - 1, end - 2, *chance.sample(range(first, end), 3)})
    reach = Reach(first, end, fresh, starts_s)
    usage, told = made_up(chance, first - 60, end + 40)
    found = fold_days(day_rows(usage, told, reach), reach)
    asked = one_by_one(usage, told, reach)
    for name in ("series", "endpoints", "copies", "second", "minute", "unsure"):
        assert getattr(asked, name) == getattr(found, name), name
    assert asked.quarters == {quarter: offered for quarter, offered in found.quarters.items() if reach.has(quarter)}
    assert stepped(asked.steps, starts_s) == stepped(found.steps, starts_s)


def test_days_that_are_taken_whole_are_not_read_by_scope() -> None:
    """Scopes by quarter are most of what there is; in a zone of whole days only today has to be read by them."""
    midnight = 20_000 * PER_DAY
    assert [] == Reach(midnight, midnight + 3 * PER_DAY, frozenset(), []).partial()
    assert [20_002] == Reach(midnight, midnight + 2 * PER_DAY + 9, frozenset({midnight + 2 * PER_DAY}), []).partial()
    assert [20_000, 20_001, 20_003] == Reach(
        midnight + 4, midnight + 3 * PER_DAY + 4, frozenset({midnight + PER_DAY, midnight + 9 * PER_DAY}), []
    ).partial()
