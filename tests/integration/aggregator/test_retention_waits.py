"""The retention of raw decisions waits for a settler that runs and is behind, not only for one that never ran."""

from __future__ import annotations

import time
from datetime import UTC, datetime

import pytest

from aggregator.retention.unsettled import unsettled
from tests.settling import SettlingScene

pytestmark = pytest.mark.services


@pytest.mark.parametrize("told", [True, False], ids=["known to the settler", "in the journal alone"])
def test_retention_waits_for_a_settler_that_is_behind(database_dsn: str, told: bool) -> None:
    """What it has not counted yet would go within seconds, and never be in a bill."""
    scene = SettlingScene(database_dsn)
    old = f"{datetime.fromtimestamp(time.time() - 40 * 86_400, UTC):%Y-%m-%dT%H:%M}"
    now = f"{datetime.fromtimestamp(time.time(), UTC):%Y-%m-%dT%H:%M}"
    scene.settle(old)
    scene.flush(*scene.decisions(1, now), stored_at=now)
    settler = scene.settle(now)
    scene.flush(*scene.decisions(4, old), stored_at=now)
    if told:
        scene.store.command(
            "INSERT INTO settled_progress SELECT name, version + 1, stored_at, [('log-1', 0, 2)], "
            "[toUInt32(toUnixTimestamp(now()) / 60) - 40 * 1440], days, unchecked FROM settled_progress FINAL"
        )

    waits = unsettled(scene.store, 13)
    assert waits is not None
    assert waits.ever_settled

    scene.settle(now, scene.settler() if told else settler)
    assert unsettled(scene.store, 13) is None
    scene.close()
