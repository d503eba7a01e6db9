"""A minute that is too large to be read at once is settled in parts, on the real engine."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import pyarrow as pa

from aggregator.settler.passes.due import Due
from aggregator.settler.passes.minutes import MinutesPass
from aggregator.settler.passes.totals import Totals
from aggregator.store_clickhouse import ClickHouseStore
from tests.settling import SettlingScene, utc_us


class Watched(ClickHouseStore):
    """A store that notes how many rows it gave at once."""

    read: ClassVar[list[int]] = []

    def arrow(self, sql: str, parameters: Mapping[str, Any] | None = None) -> pa.Table:
        found = super().arrow(sql, parameters)
        self.read.append(found.num_rows)
        return found


def test_a_minute_that_is_too_much_to_be_read_at_once_is_cut_by_caller(database_dsn: str) -> None:
    """A minute of twelve million decisions must be settled in a memory that does not grow with it."""
    scene = SettlingScene(database_dsn)
    scene.flush(
        *(row for n in range(40) for row in scene.decisions(2, "2026-11-30T10:00", caller=f"caller-{n}")),
        stored_at="2026-11-30T10:00:01",
    )
    low = utc_us("2026-11-30T10:00")
    watched = Watched.connect(scene.dsn)
    MinutesPass([Totals()], most_decisions=10).settle(watched, Due([low // 60_000_000], 1, low))
    watched.close()
    assert len(scene.totals()) == 40
    assert set(scene.totals().values()) == {(2, 2, 2)}
    assert scene.rows("SELECT offered FROM settled_fleet") == [(80,)]
    assert max(Watched.read) < 40
    scene.close()
