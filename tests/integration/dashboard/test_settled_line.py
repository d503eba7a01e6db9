"""What the foot of the pages says of a real record: how far totals are final, and what it lacks."""

from __future__ import annotations

from collections.abc import Iterator
from zoneinfo import ZoneInfo

import pytest

from aggregator.config import parse_dsn
from dashboard.reader import read_marks
from dashboard.rows import Losses, Settled
from dashboard.spans import SPANS, cut
from dashboard.store import Limits, Record
from dashboard.views import Frame
from tests.recordrows import record_control
from tests.settling import SettlingScene, utc_us

pytestmark = pytest.mark.services


@pytest.fixture
def scene(database_dsn: str) -> Iterator[SettlingScene]:
    made = SettlingScene(database_dsn)
    yield made
    made.close()


def _frame(at: str) -> Frame:
    span, zone, now_us = SPANS["1h"], ZoneInfo("UTC"), utc_us(at)
    return Frame(span, zone, now_us, tuple(cut(span, now_s=now_us / 1e6, zone=zone)))


@pytest.fixture
def record(scene: SettlingScene) -> Iterator[Record]:
    made = Record(parse_dsn(scene.dsn), Limits(seconds=15, page_s=20))
    yield made
    made.close()


def test_what_one_copy_lost_does_not_explain_what_another_lacks(scene: SettlingScene, record: Record) -> None:
    """A sum over the fleet would be zero here, and nobody would look for the hundred that are gone."""
    for table in ("control", "missing_minutes"):
        scene.store.command(f"SYSTEM STOP TTL MERGES {table}")
    at = {"at_us": utc_us("2026-11-30T10:00")}
    record_control(scene.store, "decisions_lost", copy_id="gw-1", first_seq=0, count=100, cause="no room", **at)
    scene.store.command(
        "INSERT INTO missing_minutes (minute, copy_id, epoch, version, missing, silent) "
        "SELECT '2026-11-30 10:00:00', 'gw-2', 7, 1, 100, 100"
    )

    assert read_marks(record, _frame("2026-11-30T10:10"))[1] == Losses(lost=100, silent=100)


def test_first_minute_that_is_not_settled_is_found_by_progress_and_journal(
    scene: SettlingScene, record: Record
) -> None:
    """A settler that stands writes no progress: what came after it is in the journal alone."""
    frame = _frame("2026-11-30T10:10")
    scene.flush(*scene.decisions(5, "2026-11-30T10:00"), stored_at="2026-11-30T10:01")
    assert read_marks(record, frame)[2] == Settled(utc_us("2026-11-30T10:00"), ever=False)

    scene.settle("2026-11-30T10:05")
    assert read_marks(record, frame)[2] == Settled(None)

    scene.flush(*scene.decisions(5, "2026-11-30T10:06"), stored_at="2026-11-30T10:06")
    scene.flush(*scene.decisions(5, "2026-11-30T10:04"), stored_at="2026-11-30T10:07")
    assert read_marks(record, frame)[2] == Settled(utc_us("2026-11-30T10:04"))

    scene.settle("2026-11-30T10:07")
    assert read_marks(record, frame)[2] == Settled(utc_us("2026-11-30T10:06"))
