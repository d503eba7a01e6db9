"""Live totals against settled ones, on the real engine: what is a finding, how long, and what pages show meanwhile."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from aggregator.config import parse_dsn
from dashboard.reader import read_caller
from dashboard.spans import SPANS, Bucket
from dashboard.store import Limits, Record
from dashboard.views import Frame
from tests.settling import SettlingScene, utc_us


@pytest.fixture
def scene(database_dsn: str) -> Iterator[SettlingScene]:
    made = SettlingScene(database_dsn)
    yield made
    made.close()


def _live(scene: SettlingScene, offered: int, *, next_offset: int, minute: str = "2026-11-30 10:00:00") -> None:
    """What the worker would have written: a caller's minute, and how far it covers the log."""
    version = next_offset
    scene.store.command(
        "INSERT INTO live (kind, caller, minute, scope, log_partition, version, offered, admitted, cost_admitted) "
        f"VALUES ('usage', 'acme', '{minute}', 'GET /', 0, {version}, {offered}, {offered}, {offered}), "
        f"('progress', '', '1970-01-01 00:00:00', 'log-1', 0, {version}, 0, 0, 0)"
    )


def _findings(scene: SettlingScene) -> list[tuple[Any, ...]]:
    return scene.rows(
        "SELECT toString(kind), toString(minute), caller, live_offered, settled_offered, "
        "gone_at != toDateTime64(0, 6, 'UTC') FROM disagreements FINAL ORDER BY found_at"
    )


def test_live_totals_that_stay_apart_from_settled_ones_are_a_finding_until_they_agree(
    scene: SettlingScene, caplog: pytest.LogCaptureFixture
) -> None:
    """One of the two is wrong: that is an alarm. That the live totals are still behind is none."""
    scene.flush(*scene.decisions(5, "2026-11-30T10:00"), stored_at="2026-11-30T10:00:01")
    settler = scene.settle("2026-11-30T10:01:30")
    for at in ("10:01:40", "10:01:50"):
        scene.settle(f"2026-11-30T{at}", settler)
    _live(scene, 3, next_offset=1)
    scene.settle("2026-11-30T10:02:00", settler)
    assert _findings(scene) == []
    scene.settle("2026-11-30T10:02:05", settler)
    assert _findings(scene) == []
    scene.settle("2026-11-30T10:02:10", settler)
    assert _findings(scene) == [("live", "2026-11-30 10:00:00", "acme", 3, 5, False)]
    assert "live says 3 offered and 3 admitted, settled 5 and 5" in caplog.text
    scene.settle("2026-11-30T10:02:20", scene.settler())
    assert len(_findings(scene)) == 1
    _live(scene, 5, next_offset=2)
    scene.settle("2026-11-30T10:02:30", scene.settler())
    assert _findings(scene) == [("live", "2026-11-30 10:00:00", "acme", 3, 5, True)]


def test_live_totals_that_are_ahead_of_the_record_are_no_finding(scene: SettlingScene) -> None:
    """While the recorder is away the worker goes on: what it has counted alone is judged once it is recorded."""
    scene.flush(*scene.decisions(5, "2026-11-30T10:00"), stored_at="2026-11-30T10:00:01")
    settler = scene.settle("2026-11-30T10:01:30")
    _live(scene, 9, next_offset=2)
    for at in ("10:01:40", "10:01:50", "10:02:00"):
        scene.settle(f"2026-11-30T{at}", settler)
    scene.flush(*scene.decisions(4, "2026-11-30T10:00:30"), stored_at="2026-11-30T10:02:05")
    for at in ("10:02:10", "10:02:20", "10:02:30"):
        scene.settle(f"2026-11-30T{at}", settler)
    assert _findings(scene) == []
    assert scene.rows("SELECT minutes, unchecked FROM settled_progress FINAL") == [([], [])]


def test_live_totals_that_lack_what_was_redriven_are_no_alarm(
    scene: SettlingScene, caplog: pytest.LogCaptureFixture
) -> None:
    """Every redrive would wake somebody, who would learn not to look; pages read the settled totals all the same."""
    caplog.set_level("INFO")
    scene.flush(*scene.decisions(5, "2026-11-30T10:00"), stored_at="2026-11-30T10:00:01")
    again = scene.flush(*scene.decisions(2, "2026-11-30T10:00:30"), stored_at="2026-11-30T10:05:01")
    scene.store.command(
        "INSERT INTO redriven (topic, log_partition, log_offset, redriven_at, by, to_partition, to_offset) "
        f"VALUES ('tallygate.decisions', 0, 70, now64(6), 'ada', 0, {again})"
    )
    _live(scene, 5, next_offset=2)
    settler = scene.settle("2026-11-30T10:06:30")
    for at in ("10:06:40", "10:06:50"):
        scene.settle(f"2026-11-30T{at}", settler)
    assert _findings(scene) == [("live", "2026-11-30 10:00:00", "acme", 5, 7, False)]
    assert scene.rows("SELECT cause FROM disagreements FINAL") == [("redriven",)]
    assert "lack decisions that were re-driven" in caplog.text
    assert "disagree" not in caplog.text
    _live(scene, 2, next_offset=3, minute="2026-11-30 10:01:00")
    scene.flush(*scene.decisions(5, "2026-11-30T10:01"), stored_at="2026-11-30T10:07:01")
    for at in ("10:07:10", "10:07:20", "10:07:30", "10:07:40"):
        scene.settle(f"2026-11-30T{at}", settler)
    assert "minute 29933881: live says 2 offered and 2 admitted, settled 5 and 5" in caplog.text, "another cause"


def test_pages_read_the_settled_totals_where_the_live_ones_disagree(scene: SettlingScene) -> None:
    """The live totals leave out what arrives behind a gap, for ever: the customer's page must not."""
    scene.flush(*scene.decisions(5, "2026-11-30T10:00"), stored_at="2026-11-30T10:00:01")
    settler = scene.settle("2026-11-30T10:01:30")
    _live(scene, 3, next_offset=1)
    _live(scene, 7, next_offset=1, minute="2026-11-30 10:01:00")
    frame = Frame(
        SPANS["1h"], ZoneInfo("UTC"), utc_us("2026-11-30T10:59"), (Bucket(utc_us("2026-11-30T10:00") // 10**6, 0),)
    )
    record = Record(parse_dsn(scene.dsn), Limits())

    def shown() -> list[tuple[int, int]]:
        read = read_caller(record, "acme", frame, refusals=1)
        return [(at_s, counts.offered) for at_s, counts in read.series.items()]

    first = frame.buckets[0].start_s
    assert shown() == [(first, 3), (first + 60, 7)]
    for at in ("10:01:40", "10:01:50"):
        scene.settle(f"2026-11-30T{at}", settler)
    assert shown() == [(first, 5), (first + 60, 7)]
