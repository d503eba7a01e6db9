"""The picture as rows: one a bucket, with its limit and its state; the same rows are the table behind the picture.

Pure. The browser only draws: labels, limits and what is still filling are decided here.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any
from zoneinfo import ZoneInfo

from dashboard import formats
from dashboard.completeness import Completeness
from dashboard.rows import CallerRecord, CallerStep, Counts, PlanTerms
from dashboard.spans import Bucket, Span, Unit, fold


@dataclass(frozen=True, slots=True)
class ChartRow:
    """One bucket.

    Attributes:
        start_s, seconds: where it begins (unix seconds) and how long it is.
        label, title: short for the axis, long for the table and the reading under the pointer.
        offered, admitted, refused, degraded: requests.
        limit: what the plan sustains in a bucket of this length; None while the plan is unknown.
        k: most copies reached in any one step of the bucket; 0 without traffic.
        filling: the bucket's figures can still rise: it is not over, or a copy's record is not complete.
    """

    start_s: int
    seconds: int
    label: str
    title: str
    offered: int
    admitted: int
    refused: int
    degraded: int
    limit: float | None
    k: int
    filling: bool


def chart_rows(
    buckets: Sequence[Bucket],
    record: CallerRecord,
    plan: PlanTerms | None,
    zone: ZoneInfo,
    unit: Unit,
    *,
    now_us: int,
    complete: Completeness,
) -> list[ChartRow]:
    """Fold the record's steps into the buckets.

    The limit of a bucket is that of the last plan known by its end; before the first known one, of that one.
    """
    cuts = list(buckets)
    counts = [Counts()] * len(cuts)
    for place, step_s in zip(fold(cuts, record.series), record.series, strict=True):
        if place is not None:
            counts[place] = counts[place] + record.series[step_s]
    facts = _steps_by_bucket(cuts, record.steps)
    known = next((step.plan for step in record.steps if step.plan is not None), plan)
    whole_until_s = min(now_us, complete.whole_until_us or 0) / 1_000_000
    rows: list[ChartRow] = []
    for place, (bucket, total) in enumerate(zip(cuts, counts, strict=True)):
        steps = facts.get(place, [])
        known = next((step.plan for step in reversed(steps) if step.plan is not None), known)
        label, title = _labels(bucket, unit, zone)
        rows.append(
            ChartRow(
                start_s=bucket.start_s,
                seconds=bucket.seconds,
                label=label,
                title=title,
                offered=total.offered,
                admitted=total.admitted,
                refused=total.refused,
                degraded=total.degraded,
                limit=None if known is None else round(known.rate_per_s * bucket.seconds, 3),
                k=max((step.copies for step in steps), default=0),
                filling=bucket.end_s > whole_until_s,
            )
        )
    return rows


def chart_payload(
    rows: Sequence[ChartRow], plan: PlanTerms | None, span: Span, zone: ZoneInfo, *, kind: str
) -> dict[str, Any]:
    """What the script draws, as columns; `ticks` are the places of axis labels, the densest choice first."""
    columns = {name: [getattr(row, name) for row in rows] for name in _DRAWN}
    ticks = tick_places(rows, span.unit, zone)
    return {"kind": kind, "limit_label": limit_label(plan, rows, span.unit_words), "ticks": ticks, **columns}


def json_text(payload: dict[str, Any]) -> str:
    """The picture for the page's attribute, without a blank that is not needed."""
    return json.dumps(payload, ensure_ascii=False, separators=(",", ":"))


def tick_places(rows: Sequence[ChartRow], unit: Unit, zone: ZoneInfo) -> list[list[int]]:
    """Where labels may stand on the time axis: round local times, in ever coarser choices for narrower screens."""
    if unit == "day":
        last = len(rows) - 1
        return [[place for place in range(len(rows)) if (last - place) % every == 0] for every in (1, 2, 3, 5, 7, 14)]
    places: list[list[int]] = []
    for every_min in _TICK_MINUTES[unit]:
        found = []
        for place, row in enumerate(rows):
            start = formats.local(row.start_s * 1_000_000, zone)
            minute_of_day = start.hour * 60 + start.minute
            # Days are counted too, so that "every two days" does not label all of them.
            since = minute_of_day if every_min <= 1_440 else start.toordinal() * 1_440 + minute_of_day
            if since % every_min == 0:
                found.append(place)
        places.append(found)
    return places


_TICK_MINUTES: dict[Unit, tuple[int, ...]] = {
    "minute": (5, 10, 15, 30),
    "quarter": (60, 120, 180, 360, 720),
    "hour": (720, 1_440, 2_880),
}


_DRAWN = ("label", "title", "admitted", "refused", "degraded", "limit", "k", "filling")


def limit_label(plan: PlanTerms | None, rows: Sequence[ChartRow], unit_words: str) -> str | None:
    """What is written on the plan's line: ``plan: 6,000 per minute``."""
    if plan is None or not rows or rows[-1].limit is None:
        return None
    return f"plan: {formats.limit(rows[-1].limit)} per {unit_words}"


def _steps_by_bucket(buckets: list[Bucket], steps: Sequence[CallerStep]) -> dict[int, list[CallerStep]]:
    places = fold(buckets, [step.step_s for step in steps])
    placed = [(place, step) for place, step in zip(places, steps, strict=True) if place is not None]
    return {place: [step for _, step in group] for place, group in groupby(placed, key=lambda pair: pair[0])}


def _labels(bucket: Bucket, unit: Unit, zone: ZoneInfo) -> tuple[str, str]:
    start = formats.local(bucket.start_s * 1_000_000, zone)
    end = formats.local(bucket.end_s * 1_000_000, zone)
    if unit == "day":
        hours = bucket.seconds / 3_600
        length = "" if hours == 24 else f" ({hours:g} hours)"
        return formats.day(start), f"{formats.day(start)} {start.year}{length}"
    label = f"{start:%H:%M}"
    title = f"{formats.day(start)}, {start:%H:%M}–{end:%H:%M}"
    return (formats.day(start) if unit == "hour" and start.hour == 0 else label), title
