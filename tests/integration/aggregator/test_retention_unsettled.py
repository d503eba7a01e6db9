"""What no settler has made totals of yet, asked of a journal that is kept for good: on a real engine."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from typing import Any, ClassVar

import pytest

from aggregator.config import parse_dsn
from aggregator.migrate import migrate
from aggregator.retention.unsettled import unsettled
from aggregator.settler.table import SettlingTables
from aggregator.store_clickhouse import ClickHouseStore

#: Flushes of each of four partitions, a second apart: days of a journal, that a year makes hundreds of.
FLUSHES, PARTITIONS, GRANULE = 60_000, 4, 8_192
_JOURNAL = """
INSERT INTO recorded (log_id, topic, log_partition, first_offset, next_offset, stored_at, decisions, minutes)
SELECT {log_id:String}, 'tallygate.decisions', number % 4, intDiv(number, 4), intDiv(number, 4) + 1, now64(6), 1,
    [toUInt32(intDiv(toUnixTimestamp(now()), 60) - {ago:UInt32}), toUInt32(intDiv(toUnixTimestamp(now()), 60))]
FROM numbers({first:UInt64} * 4, {flushes:UInt64} * 4)
"""


class Watched(ClickHouseStore):
    """A store that notes how many rows the engine reads, by its plan, for each question about the journal."""

    read: ClassVar[list[int]] = []

    def rows(self, sql: str, parameters: Mapping[str, Any] | None = None) -> Sequence[tuple[Any, ...]]:
        if "FROM recorded" in sql:
            planned = super().rows(f"EXPLAIN ESTIMATE {sql}", parameters)
            self.read.append(sum(int(rows) for _, table, _, rows, _ in planned if table == "recorded"))
        return super().rows(sql, parameters)


@pytest.fixture
def store(database_dsn: str) -> Iterator[Watched]:
    """A journal of which a settler has heeded all."""
    migrate(database_dsn)
    opened = Watched.open(parse_dsn(database_dsn))
    assert isinstance(opened, Watched)
    with closing(opened) as handle:
        handle.command(_JOURNAL, {"log_id": "log-1", "first": 0, "flushes": FLUSHES, "ago": 90_000})
        handle.command("OPTIMIZE TABLE recorded FINAL")
        heeded = ", ".join(f"('log-1', {partition}, {FLUSHES})" for partition in range(PARTITIONS))
        handle.command(
            f"INSERT INTO settled_progress (name, version, positions, minutes) VALUES ('settler', 1, [{heeded}], [])"
        )
        handle.read.clear()
        yield handle


def test_a_journal_that_is_heeded_is_not_read_again_to_know_that_nothing_is_left(store: Watched) -> None:
    """Asked every minute while a retention waits; a year of the journal has a hundred million rows."""
    assert unsettled(store, 13) is None
    assert sum(store.read) <= (PARTITIONS + 1) * 2 * GRANULE
    store.read.clear()
    known = SettlingTables(store).logs()
    assert [("log-1", partition) for partition in range(PARTITIONS)] == known
    assert [] == SettlingTables(store).logs(known)
    assert store.read[1] <= (PARTITIONS + 1) * GRANULE < store.read[0], "nor to know that there is no other log"


def test_what_came_since_is_found_in_every_log_also_in_one_that_no_settler_has_seen(store: Watched) -> None:
    """Dropped before it is settled, it would be in no bill, for good."""
    store.command(_JOURNAL, {"log_id": "log-1", "first": FLUSHES, "flushes": 1, "ago": 20 * 1_440})
    found = unsettled(store, 13)
    assert found is not None
    assert found.ever_settled
    store.command(_JOURNAL, {"log_id": "log-2", "first": 0, "flushes": 2, "ago": 30 * 1_440})
    older = unsettled(store, 13)
    assert older is not None
    assert found.oldest_us - older.oldest_us in (10 * 86_400_000_000, 10 * 86_400_000_000 - 60_000_000)
    assert unsettled(store, 31) is None, "settled in time, whenever that is"
    assert sum(store.read) <= 3 * (PARTITIONS + 1) * 2 * GRANULE + 100
    store.command("INSERT INTO settled_progress (name, version, positions, minutes) VALUES ('settler', 2, [], [7])")
    first = unsettled(store, 13)
    assert first is not None
    assert first.oldest_us == 7 * 60_000_000, "known to be dirty, and older than all"
