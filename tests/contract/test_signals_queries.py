"""The catalogue of signals on a real database: what pages and alarms ask, and what they are told."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from aggregator.core.live.rows import cut
from aggregator.core.live.shard import Shard
from aggregator.core.live.usage_blocks import CallerTargets, blocks_of_cut, blocks_of_rows
from aggregator.core.signals.rows import Noteworthy, cut_signals, signals_table
from aggregator.core.signals.state import SignalShard, apply
from aggregator.migrate import migrate
from aggregator.signals.table import SignalsStore
from aggregator.sql import load_queries
from aggregator.store_clickhouse import ClickHouseStore
from aggregator.worker.table import LiveStore
from enforcer.clock import SystemClock
from stream.contract.partition import caller_partition
from tests.live_blocks import MINUTE_US, Decision, block
from tests.live_signals import usage_rows
from tests.live_table import MemoryTable
from tests.unit.aggregator.core.test_live_rows import _add

NOW = SystemClock.unix_us() // MINUTE_US - 1
PARTITIONS = 2
REFUSED = 0x01


@pytest.fixture
def store(database_dsn: str) -> Iterator[ClickHouseStore]:
    migrate(database_dsn)
    made = ClickHouseStore.connect(database_dsn)
    _fill(made)
    yield made
    made.close()


def _decisions(caller: str, minute: int, *, admitted: int, refused: int = 0, retry_ms: int = 0) -> list[Decision]:
    return [
        *(Decision(caller=caller, minute=minute, k=3) for _ in range(admitted)),
        *(Decision(caller=caller, minute=minute, k=3, code=REFUSED, retry_after_ms=retry_ms) for _ in range(refused)),
    ]


def _fill(store: ClickHouseStore) -> None:
    """Two source partitions: a steady caller, one that is refused since a minute, one that hammers, anonymous ones."""
    calm = [
        decision
        for minute in range(NOW - 3, NOW + 1)
        for decision in (
            *_decisions("calm", minute, admitted=9, refused=1),
            *_decisions("anonymous/0001", minute, admitted=2),
        )
    ]
    news = [
        *_decisions("moved", NOW - 1, admitted=10),
        *_decisions("moved", NOW, admitted=2, refused=8),
        *_decisions("storm", NOW, admitted=0, refused=20, retry_ms=30_000),
        *(d for n in range(12) for d in _decisions(f"small-{n:02d}", NOW, admitted=n)),
    ]
    end_us = (NOW + 1) * MINUTE_US
    shards = [Shard(0, "log", 0, 0), Shard(1, "log", 0, 0)]
    _add(
        shards[0],
        block(calm, copy_id="gw-1", sealed_at_us=end_us + 1),
        block(news, copy_id="gw-2", sealed_at_us=end_us - 5),
    )
    _add(shards[1], block(_decisions("moved", NOW, admitted=1), copy_id="gw-3", sealed_at_us=end_us - 90_000_000))
    shards[1].copies["gw-3", 1].shift_us = -7_000_000
    cuts = [cut(shard, told_from=NOW - 10) for shard in shards]
    LiveStore(store).write(cuts)
    second = [SignalShard(target) for target in range(PARTITIONS)]
    for one in cuts:
        for target, usage in blocks_of_cut(one, "t", CallerTargets(PARTITIONS)):
            apply(second[target], usage, now_minute=NOW)
    store.insert(
        "signals", signals_table(rows for one in second for rows in cut_signals(one, Noteworthy(5, "anonymous")))
    )


def _ask(store: ClickHouseStore, name: str, **parameters: Any) -> list[tuple[Any, ...]]:
    return list(store.rows(load_queries("aggregator.sql", "signals.sql")[name].sql, parameters))


def test_hot_keys_are_the_ten_with_most_requests_of_the_fleet(store: ClickHouseStore) -> None:
    """Each partition has a top ten of its own; the fleet's is among them."""
    found = _ask(store, "signals_hot_keys", minute_s=NOW * 60)

    assert [row[:3] for row in found[:4]] == [("storm", 20, 20), ("moved", 11, 8), ("small-11", 11, 0), ("calm", 10, 1)]
    assert len(found) == 10
    assert {name: k for name, _, _, _, k in found}["moved"] == 2


def test_movers_are_those_whose_refusal_rate_is_not_what_it_was(store: ClickHouseStore) -> None:
    """A caller that is always refused a tenth is no news; one that was never refused and now is, is."""
    found = _ask(store, "signals_movers", minute_s=NOW * 60, least=5, most=3)

    assert [(row[0], row[1], row[2], round(row[5], 3)) for row in found] == [
        ("storm", 20, 20, 1.0),
        ("moved", 11, 8, 0.727),
        ("calm", 10, 1, 0.0),
    ]
    assert found[2][6:] == (30, 3)


def test_a_caller_is_told_minute_by_minute(store: ClickHouseStore) -> None:
    """Both counts of k stand side by side: as reached, and as the owner counted it."""
    found = _ask(store, "signals_caller", caller="moved", since_s=(NOW - 5) * 60)

    assert [(row[0] // 60, row[1], row[2], row[12], row[13]) for row in found] == [
        (NOW, 11, 3, 2, 3),
        (NOW - 1, 10, 10, 1, 3),
    ]


def test_retry_storms_are_callers_that_do_not_wait(store: ClickHouseStore) -> None:
    """Nineteen of twenty came before the half minute that they were told had passed."""
    found = _ask(store, "signals_retry_storms", minute_s=NOW * 60, least=10, share=0.5, most=5)

    assert [row[:5] for row in found] == [("storm", 20, 19, 0.95, 20)]


def test_the_fleet_has_its_anonymous_share(store: ClickHouseStore) -> None:
    """Near 0 or 100 % of refusals among the anonymous is a rule that went wrong."""
    newest, *_ = _ask(store, "signals_fleet", since_s=(NOW - 3) * 60)

    assert (newest[0] // 60, newest[1], newest[10], newest[11]) == (NOW, 10 + 2 + 11 + 20 + 66, 15, 3)
    assert newest[12:] == (2, 0)


def test_copies_and_partitions_say_how_far_they_are(store: ClickHouseStore) -> None:
    """Blind is not quiet: a window in which a copy is missing is incomplete, and says so."""
    since_us = (NOW - 10) * MINUTE_US
    end_us = (NOW + 1) * MINUTE_US
    copies = _ask(store, "signals_copies", since_us=since_us)
    assert [(row[0], row[2], row[3] - end_us, row[4], row[5]) for row in copies] == [
        ("gw-3", 1, -90_000_000, -7_000_000, 0),
        ("gw-2", 0, -5, 0, 0),
        ("gw-1", 0, 1, 0, 0),
    ]
    assert _ask(store, "signals_lag", since_us=since_us) == [
        (0, end_us - 5, end_us + 1, 2),
        (1, end_us - 90_000_000, end_us - 90_000_000, 1),
    ]
    windows = _ask(store, "signals_windows", since_s=(NOW - 2) * 60)
    assert [(minute // 60, missing) for minute, missing in windows] == [(NOW, 2), (NOW - 1, 1), (NOW - 2, 0)]


def test_the_state_is_loaded_as_the_model_has_it(store: ClickHouseStore) -> None:
    """What a process begins with, and what is told again, are the same question to the same table."""
    live = MemoryTable()
    live.insert(_live_rows(store))
    second = SignalsStore(store, partitions=PARTITIONS)
    for minute in range(NOW - 3, NOW + 1):
        expected = sorted(usage_rows(live, minute))
        loaded = [row for target in range(PARTITIONS) for row in second.load(target, minute)]
        assert [_plain(row) for row in sorted(loaded)] == [_plain(row) for row in expected]
        assert {caller_partition(row[2], PARTITIONS) for row in second.load(1, minute)} <= {1}
        for source in (0, 1):
            told = LiveStore(store).untold(source, 0, minute)
            assert [_plain(row) for row in sorted(told)] == [_plain(row) for row in expected if row[0] == source]
            assert list(blocks_of_rows(told, "t", PARTITIONS)) or not told
    assert LiveStore(store).untold(0, 2, NOW) == []


def _plain(row: tuple[Any, ...]) -> tuple[Any, ...]:
    return (*row[:4], list(row[4]), row[5], sorted(row[6]))


def _live_rows(store: ClickHouseStore) -> list[dict[str, Any]]:
    names = [
        name
        for (name,) in store.rows(
            "SELECT name FROM system.columns WHERE database = currentDatabase() AND table = 'live'"
        )
    ]
    return [dict(zip(names, row, strict=True)) for row in store.rows(f"SELECT {', '.join(names)} FROM live FINAL")]
