"""What an erased caller did after its erasure was begun: on its pages, and no alarm."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from zoneinfo import ZoneInfo

import pytest

from aggregator.config import parse_dsn
from aggregator.core.record.erased import Erasure, who_hash
from aggregator.erasure import erasing
from aggregator.erasure.known import Stated
from dashboard.reader import read_caller
from dashboard.spans import SPANS, cut
from dashboard.store import Limits, Record
from dashboard.views import Frame
from tests.settling import SettlingScene, utc_us

SALT = b"0123456789abcdef"
UTC = ZoneInfo("UTC")


@pytest.fixture
def scene(database_dsn: str) -> Iterator[SettlingScene]:
    """A record, and a settler with a clock of its own."""
    made = SettlingScene(database_dsn)
    yield made
    made.close()


def test_pages_show_what_an_erased_caller_did_later_and_nobody_is_alarmed(
    scene: SettlingScene, caplog: pytest.LogCaptureFixture
) -> None:
    """Its live totals are deleted by name, those from after the erasure as well, and nobody writes them again."""
    begun_us = utc_us("2026-11-30T10:00:30")
    erasure = Erasure(7, begun_us, SALT, who_hash(SALT, "acme"))
    erasing._state(scene.store, Stated(erasure, "begun", "desk", "request", begun_us, {}), "begun", {})
    scene.flush(*scene.decisions(5, "2026-11-30T10:00:10"), stored_at="2026-11-30T10:00:11")
    scene.flush(*scene.decisions(4, "2026-11-30T10:00:40"), stored_at="2026-11-30T10:00:41")
    scene.flush(*scene.decisions(6, "2026-11-30T10:01:10"), stored_at="2026-11-30T10:01:11")
    scene.store.command(
        "INSERT INTO live (kind, caller, minute, scope, log_partition, version, offered, admitted, cost_admitted) "
        "VALUES ('usage', 'acme', '2026-11-30 10:00:00', 'GET /', 0, 3, 9, 9, 9), "
        "('usage', 'acme', '2026-11-30 10:01:00', 'GET /', 0, 3, 6, 6, 6), "
        "('progress', '', '1970-01-01 00:00:00', 'log-1', 0, 3, 0, 0, 0)"
    )
    erasing.erase(scene.store, "acme", requested_by="desk", reason="request", progress=lambda _: None)
    with caplog.at_level(logging.WARNING):
        settler = scene.settle("2026-11-30T10:03")
        for at in ("10:03:10", "10:03:20", "10:03:30"):
            scene.settle(f"2026-11-30T{at}", settler)

    now_us = utc_us("2026-11-30T10:04")
    hour = SPANS["1h"]
    frame = Frame(hour, UTC, now_us, tuple(cut(hour, now_s=now_us // 10**6, zone=UTC)))
    shown = read_caller(Record(parse_dsn(scene.dsn), Limits(seconds=20, page_s=30)), "acme", frame, refusals=25)
    assert [4, 6] == [counts.offered for _, counts in sorted(shown.series.items()) if counts.offered]
    assert "acme" not in caplog.text
