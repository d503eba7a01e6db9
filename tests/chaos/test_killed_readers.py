"""Recorder and worker killed with SIGKILL in the middle of millions of decisions: not one lost, not one doubled."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.chaos.pipeline import Audit, PacedFill, Supervised, pipeline
from tests.logfill import Fill
from tests.processes import wait_until
from tests.services import KafkaService

DECISIONS = 2_400_000
_STREAM_S = 24.0
#: Each reader is killed when it has seen these shares of the stream.
_KILL_AT = (0.2, 0.5)


def _wait_for(count: Callable[[], int], point: int, *, what: str) -> None:
    wait_until(lambda: count() >= point, 90, what=what, poll_s=0.1)


def _kill_twice(audit: Audit, recorder: Supervised, worker: Supervised) -> None:
    """Kill each reader at both points, and see that the stream was indeed in its middle."""
    for share in _KILL_AT:
        point = int(DECISIONS * share)
        _wait_for(audit.raw, point, what="the recorder to get there")
        recorder.kill_and_restart()
        assert audit.raw() < DECISIONS, "the recorder was killed after the stream had ended: it showed nothing"
        _wait_for(audit.live, point, what="the worker to get there")
        worker.kill_and_restart()
        assert audit.live() < DECISIONS, "the worker was killed after the stream had ended: it showed nothing"


@pytest.mark.chaos
@pytest.mark.timeout(400)
def test_readers_killed_twice_lose_nothing_and_double_nothing(
    apache_broker: KafkaService, database_dsn: str, tmp_path: Path
) -> None:
    """An invoice can be disputed by one decision: the totals are exact, or they are worth nothing."""
    fill = Fill(decisions=DECISIONS)
    expected = fill.totals()
    with pipeline(apache_broker.bootstrap, database_dsn, tmp_path) as (recorder, worker):
        audit = Audit(database_dsn)
        wait_until(lambda: "recording" in recorder.log_path.read_text(), 60, what="the recorder to start")
        stream = PacedFill(apache_broker.bootstrap, fill, seconds=_STREAM_S)
        _kill_twice(audit, recorder, worker)
        stream.join()
        audit.wait_for(fill.total, timeout_s=120)
        assert (recorder.end(), worker.end()) == (0, 0)

        assert audit.raw() == expected.decisions
        assert audit.live() == expected.decisions
        assert audit.raw_cells() == Counter(expected.by_cell)
        usage = {caller: (total.offered, total.admitted, total.cost) for caller, total in expected.by_caller.items()}
        assert audit.live_usage() == usage
        fleet: Counter[tuple[str, int, int]] = Counter()
        for (_, scope, minute, code), count in expected.by_cell.items():
            fleet[scope, minute, code] += count
        assert audit.live_fleet() == fleet
        audit.close()
