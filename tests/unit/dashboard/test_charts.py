"""What the script is given to draw."""

from __future__ import annotations

import json
from zoneinfo import ZoneInfo

import pytest

from dashboard.charts import chart_payload, json_text, tick_places
from dashboard.rows import CallerStep, Counts
from dashboard.views import caller_view
from tests.unit.dashboard.records import NOW_US, STANDARD, frame, record


@pytest.mark.parametrize("span", ["1h", "24h", "7d", "30d"])
def test_ticks_get_fewer_and_stay_on_bars(span: str) -> None:
    """On a phone there is room for three labels: a coarser choice must exist."""
    chosen = frame(span, "Asia/Kolkata")
    view = caller_view("acme", chosen, record())
    choices = tick_places(view.rows, chosen.span.unit, chosen.zone)
    lengths = [len(places) for places in choices]
    assert sorted(lengths, reverse=True) == lengths
    assert 1 <= lengths[-1] <= 5
    assert all(0 <= place < len(view.rows) for places in choices for place in places)


def test_payload_columns_are_as_long_as_the_labels() -> None:
    """A column that is shorter shifts every bar after it."""
    steps = [CallerStep(NOW_US // 1_000_000 - 60, STANDARD, 7, 7)]
    series = {NOW_US // 1_000_000 - 60: Counts(offered=10, admitted=8, degraded=1)}
    view = caller_view("acme", frame(), record(series=series, steps=steps))
    payload = json.loads(
        json_text(chart_payload(view.rows, view.plan, view.frame.span, ZoneInfo("UTC"), kind="support"))
    )
    names = ("label", "title", "admitted", "refused", "degraded", "limit", "k", "filling")
    assert {60} == {len(payload[name]) for name in names}
    assert (8, 2, 1, 7) == tuple(payload[name][-2] for name in ("admitted", "refused", "degraded", "k"))
    assert "plan: 6,000 per minute" == payload["limit_label"]


def test_no_plan_means_no_line() -> None:
    """A line at zero would say that nothing is allowed."""
    view = caller_view("acme", frame(), record())
    payload = chart_payload(view.rows, view.plan, view.frame.span, ZoneInfo("UTC"), kind="usage")
    assert payload["limit_label"] is None
    assert {None} == set(payload["limit"])


def test_a_day_that_is_not_24_hours_says_so() -> None:
    """A bar that is lower for want of an hour must not look like a quiet day."""
    view = caller_view("acme", frame("30d", "Europe/Berlin", 1_774_872_000_000_000), record())
    assert "29 Mar 2026 (23 hours)" in [row.title for row in view.rows]
