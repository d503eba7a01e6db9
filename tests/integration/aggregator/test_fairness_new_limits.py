"""Buckets that come to be known in great number: their past is read a group of callers at a time, and says the same."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from typing import Any, ClassVar

import pyarrow as pa
import pytest

from aggregator.migrate import migrate
from aggregator.settler import naming
from aggregator.settler.passes.due import Due
from aggregator.settler.passes.fairness import Fairness
from aggregator.settler.passes.minutes import MinutesPass
from aggregator.store_clickhouse import ClickHouseStore
from enforcer.types import Plan
from tests.fairblocks import MONDAY_US, SPENT, Fleet, Request

pytestmark = pytest.mark.services
MINUTE = 60_000_000
FIRST = MONDAY_US // MINUTE
#: More than one question names.
CALLERS = 130
ROWS = "SELECT * EXCEPT (version, stored_at) FROM fairness FINAL ORDER BY ALL"


class Watched(ClickHouseStore):
    """A store that notes of how many minutes, how many callers and how many rows each reading of decisions was."""

    read: ClassVar[list[tuple[int, int, int]]] = []

    def arrow(self, sql: str, parameters: Mapping[str, Any] | None = None) -> pa.Table:
        found = super().arrow(sql, parameters)
        if "FROM decisions" in sql and parameters is not None:
            minutes = (parameters["high_us"] - parameters["low_us"]) // MINUTE
            self.read.append((minutes, len(parameters["callers"]), found.num_rows))
        return found


def _traffic() -> tuple[list[Request], list[Request]]:
    """Callers with a limit of their own that slowly fills: three minutes in which it is spent, and one that refuses."""
    plan, spent, refused = Plan("ten", 1.0, 200), [], []
    for number in range(CALLERS):
        name = f"caller-{number:03}"
        spent += [
            Request(MONDAY_US + minute * MINUTE + n * 1_000 + number, caller=name, charged=((name, "search"),))
            for minute in range(3)
            for n in range(5 + number % 70)
        ]
        refused.append(Request(MONDAY_US + 3 * MINUTE + number, caller=name, charged=((name, "search"),)))
        refused += [
            Request(MONDAY_US + 3 * MINUTE + n * 1_000 + number, caller=name, code=SPENT, limit="search", plan=plan)
            for n in range(3)
        ]
    return spent, refused


def test_the_past_of_many_new_buckets_is_read_in_groups_and_their_verdicts_stay(
    database_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new limit of every plan makes all callers new in one minute: everybody's last hour does not fit into memory."""
    migrate(database_dsn)
    spent, refused = _traffic()
    with closing(Watched.connect(database_dsn)) as store:
        fleet = Fleet(store)
        fleet.record(spent)
        fleet.record(refused)
        found = {}
        for most in (1_000, 100):
            monkeypatch.setattr(naming, "MOST_NAMED", most)
            store.command("TRUNCATE TABLE fairness")
            Watched.read.clear()
            MinutesPass([], Fairness()).settle(store, Due([FIRST + 3], most, MONDAY_US))
            found[most] = list(store.rows(ROWS))
    back = [(callers, rows) for minutes, callers, rows in Watched.read if minutes > 1]
    assert [100, 30] == [callers for callers, _ in back]
    assert sum(rows for _, rows in back) == len(spent)
    assert len(found[100]) == 2 * CALLERS
    assert found[1_000] == found[100]
    assert len({str(row[-2]) for row in found[100] if row[1] == "search"}) > 10, "they are not all alike"
