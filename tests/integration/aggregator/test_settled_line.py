"""Broker, recorder, worker and settler as they run together: three counts of the same decisions, all equal."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path

from aggregator.migrate import migrate
from aggregator.store_clickhouse import ClickHouseStore
from tests.chaos.pipeline import Audit, Supervised, pipeline
from tests.logfill import Fill, send
from tests.processes import wait_until
from tests.services import KafkaService

_LIMIT_S = 90.0


def test_settled_totals_are_those_of_the_log_and_of_the_live_ones(
    embedded_broker: KafkaService, database_dsn: str, tmp_path: Path
) -> None:
    """The recorder's journal is all that the settler knows: a flush that it leaves out would never be settled."""
    hour = datetime.now(UTC).replace(minute=0, second=0, microsecond=0) - timedelta(hours=2)
    start_us = int(hour.timestamp()) * 1_000_000
    early = Fill(decisions=8_000, block=200, callers=50, templates=8, start_us=start_us)
    late = Fill(decisions=4_000, block=200, callers=50, templates=8, epoch=2, start_us=start_us)
    migrate(database_dsn)
    with pipeline(embedded_broker.bootstrap, database_dsn, tmp_path):
        environ = {"TALLYGATE_CLICKHOUSE": database_dsn, "TALLYGATE_SETTLE_ROUND_MS": "400"}
        settler = Supervised("aggregator.settler", environ, tmp_path)
        store = ClickHouseStore.connect(database_dsn)
        audit = Audit(database_dsn)

        def settled() -> int:
            current = (
                "SELECT argMax(offered, (version, stored_at)) AS n FROM settled_minutes GROUP BY caller, minute, scope"
            )
            return int(store.rows(f"SELECT sum(n) FROM ({current})")[0][0])

        try:
            send(embedded_broker.bootstrap, early)
            wait_until(lambda: settled() == early.total, _LIMIT_S, what="all minutes", poll_s=0.2)
            send(embedded_broker.bootstrap, late)
            wait_until(lambda: settled() == early.total + late.total, _LIMIT_S, what="the late blocks", poll_s=0.2)
            cells: Counter[tuple[str, str, int]] = Counter()
            for fill in (early, late):
                for (caller, scope, minute, _), number in fill.totals().by_cell.items():
                    cells[caller, scope, minute] += number
            rows = store.rows(
                "SELECT caller, scope, toUnixTimestamp(minute), argMax(offered, (version, stored_at)) "
                "FROM settled_minutes GROUP BY caller, scope, minute"
            )
            assert {(caller, scope, int(minute)): int(number) for caller, scope, minute, number in rows} == cells
            wait_until(lambda: audit.live() == early.total + late.total, _LIMIT_S, what="the live totals", poll_s=0.2)

            def unchecked() -> int:
                return int(store.rows("SELECT length(unchecked) + length(minutes) FROM settled_progress FINAL")[0][0])

            wait_until(lambda: unchecked() == 0, _LIMIT_S, what="the comparison with the live totals", poll_s=0.2)
            assert store.rows("SELECT count() FROM disagreements FINAL WHERE gone_at = toDateTime64(0, 6, 'UTC')") == [
                (0,)
            ]
            assert settler.end() == 0
        finally:
            if settler.process.poll() is None:
                settler.process.kill()
                settler.process.wait()
            audit.close()
            store.close()
