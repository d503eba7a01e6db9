"""``python -m aggregator.settler`` as a process: it settles, is killed, comes back, and stops when it is told to."""

from __future__ import annotations

import os
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

from tallygate.engines.process import Child, Command, spawn
from tests.processes import kill, wait_until
from tests.settling import SettlingScene

_LIMIT_S = 60.0
_ROOT = Path(__file__).parents[3]


def _start(dsn: str, log: Path, **settings: str) -> Child:
    own = {f"TALLYGATE_{name.upper()}": value for name, value in settings.items()}
    environ = {name: value for name, value in os.environ.items() if not name.startswith("TALLYGATE_")}
    command = [sys.executable, "-m", "aggregator.settler"]
    return spawn(Command("settler", command, log, {**environ, "TALLYGATE_CLICKHOUSE": dsn, **own}, _ROOT))


def test_the_process_settles_what_came_while_it_was_killed_and_stops_in_order(
    database_dsn: str, tmp_path: Path
) -> None:
    """A crash must cost nothing but time, and a stop must say that it was one."""
    scene = SettlingScene(database_dsn)

    def settled() -> int:
        return int(scene.rows("SELECT sum(offered) FROM settled_minutes")[0][0])

    yesterday = f"{datetime.now(UTC) - timedelta(days=1):%Y-%m-%dT%H}"
    scene.flush(*scene.decisions(3, f"{yesterday}:00"), stored_at=f"{yesterday}:00")
    first = _start(database_dsn, tmp_path / "first.log", settle_round_ms="100")
    wait_until(lambda: settled() == 3, _LIMIT_S, what="the first minute")
    assert os.getpriority(os.PRIO_PROCESS, first.pid) >= 10, "the live path comes first"
    kill(first.pid)
    first.stop()
    scene.flush(*scene.decisions(4, f"{yesterday}:01"), stored_at=f"{yesterday}:01")
    second = _start(database_dsn, tmp_path / "second.log", settle_round_ms="100")
    wait_until(lambda: settled() == 7, _LIMIT_S, what="the second minute")
    second.stop(timeout_s=15)
    assert second.exit_code() == 0
    assert "INFO settler: stopped; settled" in second.log_path.read_text()
    scene.close()


def test_wrong_settings_and_a_database_that_never_answers_end_the_process(tmp_path: Path) -> None:
    """A supervisor restarts what ends with 1; a setting is for a person."""
    wrong = _start("nowhere", tmp_path / "wrong.log")
    away = _start("http://127.0.0.1:1/tallygate", tmp_path / "away.log", start_timeout_s="0")
    wait_until(lambda: wrong.exit_code() is not None and away.exit_code() is not None, _LIMIT_S, what="two ends")
    assert (wrong.exit_code(), away.exit_code()) == (2, 1)
    assert "TALLYGATE_CLICKHOUSE" in wrong.log_path.read_text()
    first, *_, last = away.log_path.read_text().splitlines()
    assert first.endswith("INFO settler: buckets are replayed by the compiled module")
    assert "gave up after 0 s" in last
