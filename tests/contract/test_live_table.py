"""What `LiveJob` relies on in a `live` table, on the one in memory and on a real database."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from aggregator.core.live.load import open_shard, put_copies, put_minutes
from aggregator.core.live.rows import Cut, cut
from aggregator.core.live.shard import Shard
from aggregator.core.live.totals import fold, missing
from aggregator.migrate import migrate
from aggregator.store_clickhouse import ClickHouseStore
from aggregator.worker.table import LiveStore, LiveTable
from enforcer.clock import SystemClock
from stream.contract.block import DecisionBlock
from tests.live_blocks import LARGE, Decision, block
from tests.live_table import MemoryTable

#: Of today, since the table forgets what is older than 400 days.
NOW_MINUTE = SystemClock().unix_us() // 60_000_000


@pytest.fixture(params=["memory", "clickhouse"])
def table(request: pytest.FixtureRequest) -> Iterator[LiveTable]:
    """Each implementation, empty."""
    if request.param == "memory":
        yield MemoryTable()
        return
    dsn = request.getfixturevalue("database_dsn")
    migrate(dsn)
    made = LiveStore(ClickHouseStore.connect(dsn))
    yield made
    made.close()


def _add(shard: Shard, table: LiveTable, *blocks: DecisionBlock) -> Cut:
    for one in blocks:
        minutes, copies = missing(shard, one)
        if minutes:
            usage, fleet, callers = table.minutes(shard.partition, minutes)
            put_minutes(shard, minutes, usage=usage, fleet=fleet, callers=callers)
        put_copies(shard, copies, table.copies(shard.partition, copies))
        fold(shard, one, shard.next_offset)
    return cut(shard)


def _mixed(copy_id: str, *, first_seq: int = 0, callers: int = 80) -> DecisionBlock:
    return block(
        [
            Decision(
                caller=f"cäller {place % callers}'\\\t",
                scope=f"GET /v1/{place % 3}",
                minute=NOW_MINUTE - place % 2,
                code=(0x00, 0x01, 0x23, 0x35, 0x10)[place % 5],
                cost=2**32 - 1 - place,
                plan=LARGE,
                policy_version=2**32 - 1,
                k=place,
            )
            for place in range(160)
        ],
        copy_id=copy_id,
        epoch=2**64 - 1,
        first_seq=first_seq,
        sealed_at_us=NOW_MINUTE * 60_000_000 + 123_456,
    )


def _everything(table: LiveTable, partition: int) -> list[Any]:
    """All that a worker can read of a partition, in an order of its own."""
    usage, fleet, callers = table.minutes(partition, [NOW_MINUTE, NOW_MINUTE - 1])
    return [
        sorted(table.progress(partition)),
        sorted((*row[:-1], list(row[-1])) for row in usage),
        sorted((*row[:-1], list(row[-1])) for row in fleet),
        sorted((*row[:-1], sorted(row[-1])) for row in callers),
        sorted(table.recent_copies(partition)),
    ]


def test_table_gives_back_what_was_written(table: LiveTable) -> None:
    """A total that comes back changed is added to, and the error stays for ever."""
    reference = MemoryTable()
    one = _add(Shard(3, "log", 7, 0), table, _mixed("gw-1"), _mixed("gw-2"))

    written = table.write([one])
    reference.write([one])

    assert written == one.rows
    assert _everything(table, 3) == _everything(reference, 3)


def test_table_lets_the_higher_version_win_in_any_order(table: LiveTable) -> None:
    """An old owner's INSERT that arrives late must lose, cell by cell."""
    shard, reference = Shard(0, "log", 0, 0), MemoryTable()
    early = _add(shard, reference, _mixed("gw-1"))
    late = _add(shard, reference, _mixed("gw-1", first_seq=160, callers=40))
    for written in (early, late):
        reference.write([written])

    for written in (late, early, late, early):
        table.write([written])

    assert _everything(table, 0) == _everything(reference, 0)


def test_table_keeps_partitions_apart(table: LiveTable) -> None:
    """Each partition's totals are its own worker's; a page adds them up."""
    table.write([_add(Shard(0, "log", 0, 0), table, _mixed("gw-1")), _add(Shard(1, "log", 0, 4), table)])

    assert _everything(table, 1) == [[("log", 4, 0)], [], [], [], []]
    assert table.progress(2) == []


def test_table_says_which_minutes_it_holds(table: LiveTable) -> None:
    """A minute that is taken for empty and is not would be counted from nothing."""
    table.write([_add(Shard(0, "log", 0, 0), table, _mixed("gw-1")), _add(Shard(1, "log", 0, 4), table)])

    held = {row[1] for row in table.minutes(0, range(NOW_MINUTE - 100, NOW_MINUTE + 100))[0]}
    assert {NOW_MINUTE, NOW_MINUTE - 1} >= held > set()
    assert held == set(table.stored_minutes(0, NOW_MINUTE - 100, NOW_MINUTE + 100))
    assert held == set(table.stored_minutes(0, min(held), max(held)))
    assert [] == list(table.stored_minutes(0, max(held) + 1, 2**32 // 60 - 1))
    assert [] == list(table.stored_minutes(1, NOW_MINUTE - 100, NOW_MINUTE + 100))


def test_table_finds_a_copy_by_its_whole_identity(table: LiveTable) -> None:
    """Two epochs of one copy are two numberings."""
    table.write([_add(Shard(0, "log", 0, 0), table, _mixed("gw-1"))])

    assert [row[3] for row in table.copies(0, [("gw-1", 2**64 - 1)])] == [160]
    assert list(table.copies(0, [("gw-1", 1), ("gw", 2**64 - 1)])) == []


def test_table_carries_a_shard_from_one_worker_to_the_next(table: LiveTable) -> None:
    """The takeover as a whole: what the second worker writes is what one worker alone would have written."""
    blocks = [_mixed("gw-1"), _mixed("gw-2"), _mixed("gw-1", first_seq=100), _mixed("gw-3", callers=7)]
    reference = MemoryTable()
    reference.write([_add(Shard(0, "log", 0, 0), reference, *blocks)])

    table.write([_add(open_shard(0, "log", table.progress(0)), table, *blocks[:2])])
    heir = open_shard(0, "log", table.progress(0))
    table.write([_add(heir, table, *blocks[heir.next_offset :])])

    mine, theirs = _everything(table, 0), _everything(reference, 0)
    assert [_without_versions(rows) for rows in mine] == [_without_versions(rows) for rows in theirs]


def _without_versions(rows: list[Any]) -> list[Any]:
    return sorted(row[1:] for row in rows)


def test_write_loss_is_the_same_row_when_it_is_written_twice(database_dsn: str) -> None:
    """A crash right after it must not make one loss look like two."""
    migrate(database_dsn)
    store = ClickHouseStore.connect(database_dsn)
    table = LiveStore(store)

    for _ in range(2):
        table.write_loss(1, 40, 90, NOW_MINUTE * 60_000_000)

    rows = store.rows("SELECT kind, log_partition, log_offset, body FROM control FINAL")
    assert rows == [
        ("live_offsets_lost", 1, 40, '{"topic": "tallygate.decisions", "first_offset": 40, "next_offset": 90}')
    ]
    store.close()


def test_table_id_is_another_one_in_another_database(database_dsn: str) -> None:
    """The consumer group is named after it: a new database must not inherit what another has acknowledged."""
    ids = []
    for _ in range(2):
        migrate(database_dsn)
        store = ClickHouseStore.connect(database_dsn)
        ids.append(LiveStore(store).table_id())
        store.command("DROP TABLE live SYNC")
        store.command("DROP TABLE migrations SYNC")
        store.close()

    assert len(set(ids)) == 2
    assert all(len(table_id) == 36 for table_id in ids)
