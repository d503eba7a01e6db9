"""Erasing one caller on a real engine: nothing of it is left, nothing of anyone else's is touched."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest

from aggregator.audit import command
from aggregator.core.record.batches import Batch, PlacedBlock, decision_batches
from aggregator.core.record.blocks import block_batches
from aggregator.core.record.facts import (
    PlacedControl,
    PlacedFacts,
    conflict_batches,
    control_batches,
    cost_batches,
    grant_batches,
    settlement_batches,
)
from aggregator.core.record.letters import DeadLetter, dead_letter_batches
from aggregator.core.record.pending import Pending
from aggregator.erasure import places, removing
from aggregator.erasure.known import erased, stated
from aggregator.migrate import migrate
from aggregator.recorder.dead_letters import DeadLetterTopic
from aggregator.recorder.erasures import Erasures
from aggregator.recorder.writer import Writer
from aggregator.store import StoreUnavailable
from aggregator.store_clickhouse import ClickHouseStore
from enforcer.identity import CopyIdentity
from enforcer.messages import SettleCause, Settlement
from enforcer.sink import CostChanged, GrantIssued, GrantSettled
from enforcer.types import Grant
from stream.contract.facts import FactBlock, encode_facts
from stream.contract.topics import DECISIONS, GRANTS
from tests.engine_files import files_with
from tests.recordblocks import MIDNIGHT_US, Made, at, make_block
from tests.recordrows import erased_seqs

NAME = "acct-to-be-erased-0815"
OTHERS = ("acct-1", "acct-2")


@pytest.fixture
def store(database_dsn: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[ClickHouseStore]:
    """A record in which three callers stand in every table that can name one, also those of others' making."""
    migrate(database_dsn)
    monkeypatch.setenv("TALLYGATE_CLICKHOUSE", database_dsn)
    with closing(ClickHouseStore.connect(database_dsn)) as handle:
        handle.command(
            "CREATE TABLE made_by_others (caller LowCardinality(String), hour DateTime('UTC'), n UInt64) "
            "ENGINE = ReplacingMergeTree(n) ORDER BY (caller, hour)"
        )
        for batch in _record():
            handle.insert(batch.table, batch.stamped(MIDNIGHT_US))
        for place in places.places(handle):
            _fill(handle, place)
        yield handle


def _placed() -> list[PlacedBlock]:
    """The blocks of two copies over a midnight."""
    made = [Made((NAME, *OTHERS)[n % 3], MIDNIGHT_US - 1_000_000 + n * 10_000, limit="rate") for n in range(300)]
    return [
        at(make_block(made[first : first + 150], copy_id=copy_id, first_seq=first), first, partition=partition)
        for partition, copy_id in enumerate(("gw-1", "gw-2"))
        for first in (0, 150)
    ]


def _record() -> list[Batch]:
    """Two copies' blocks over a midnight, and everything that is recorded beside them."""
    placed = _placed()
    identity = CopyIdentity("gw-1", 7)
    grant = Grant(MIDNIGHT_US, 5, 4, MIDNIGHT_US, MIDNIGHT_US + 9)
    total = Settlement(MIDNIGHT_US, 2, True, SettleCause.IDLE)
    callers = (NAME, *OTHERS)
    facts = FactBlock(
        "gw-1",
        7,
        [GrantIssued(name, "rate", 3, grant, 0.5) for name in callers],
        [GrantSettled(name, "rate", "gw-1/7", total, MIDNIGHT_US) for name in callers],
        [CostChanged(name, "/x", 1, 1, 0, MIDNIGHT_US) for name in callers],
    )
    events = [
        PlacedControl("would_refuse", "gw-1", 7, MIDNIGHT_US, json.dumps({"caller": name}), 0, n)
        for n, name in enumerate((NAME, *OTHERS))
    ]
    readable = encode_facts(identity, facts.grants[:1], [])
    letters = [
        DeadLetter(GRANTS.name, 0, 1, MIDNIGHT_US, "too old", b"", readable),
        DeadLetter(GRANTS.name, 0, 2, MIDNIGHT_US, "too old", b"", encode_facts(identity, facts.grants[1:], [])),
        DeadLetter(DECISIONS.name, 0, 3, MIDNIGHT_US, "garbage", b"", b"\xff" + NAME.encode() + b"-and-more"),
    ]
    placed_facts = [PlacedFacts(facts, 0, 1)]
    return [
        *decision_batches(placed), *block_batches(placed), *conflict_batches(placed[:1]), *grant_batches(placed_facts),
        *settlement_batches(placed_facts), *cost_batches(placed_facts), *control_batches(events),
        *dead_letter_batches(letters),
    ]  # fmt: skip


def _fill(store: ClickHouseStore, place: places.Place) -> None:
    """Rows of all three callers in a table that has none yet, whatever its other columns are."""
    if place.table == "control" or store.rows(f"SELECT 1 FROM {place.table} LIMIT 1"):
        return
    times = store.rows(
        "SELECT name FROM system.columns WHERE database = currentDatabase() AND table = {table:String} "
        "AND type LIKE 'Date%'",
        {"table": place.table},
    )
    # Of today, or the table's TTL would have the row.
    now = {name: pa.array([datetime.now(UTC)] * 3, pa.timestamp("s", "UTC")) for (name,) in times}
    for name in place.names:
        hot = {"kind": pa.array(["hot"] * 3), "place": pa.array([1, 2, 3])} if name == "name" else {}
        store.insert(place.table, pa.table({name: pa.array([NAME, *OTHERS]), **hot, **now}))


def _all_rows(store: ClickHouseStore, *, without: str) -> dict[str, list[tuple[Any, ...]]]:
    """Every row of every table that does not name a caller, in a fixed order."""
    found = {}
    for (table,) in store.rows("SELECT name FROM system.tables WHERE database = currentDatabase() ORDER BY name"):
        if table not in {"erasures", "erased_blocks", "erasing", "migrations"}:
            rows = store.rows(f"SELECT * FROM {table} ORDER BY ALL")
            found[table] = [row for row in rows if without not in str(row) or table == "dead_letters"]
    return found


def _erase(*words: str) -> int:
    return command.main(["erase", "--caller", NAME, *words])


WHO = ("--by", "privacy desk, ticket 12", "--reason", "request of the account's holder", "--yes")


def test_erasure_that_still_finds_rows_is_not_done(
    store: ClickHouseStore, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whoever was asked to erase would report it done, with the caller still on record."""
    with monkeypatch.context() as patch:
        patch.setattr(removing, "_delete", lambda *_arguments, **_named: None)
        assert 1 == _erase(*WHO)
    told = capsys.readouterr()
    assert "not finished" in told.err
    assert told.out.startswith("does not agree: erased 0 times")
    assert store.rows("SELECT count() FROM erasing") == [(0,)], "the name stays nowhere"
    assert 0 == _erase(*WHO)
    assert capsys.readouterr().out.startswith("agrees: erased 1 times, 0 rows on record")


def test_erasure_leaves_nothing_of_the_caller_and_everything_of_the_others(
    store: ClickHouseStore, capsys: pytest.CaptureFixture[str]
) -> None:
    """Not a row, not a byte in a column, not in the statements; and no other row may differ."""
    before = _all_rows(store, without=NAME)
    tables = {place.table for place in places.places(store)}
    assert {
        "decisions",
        "conflicts",
        "grants",
        "settlements",
        "cost_changes",
        "live",
        "control",
        "made_by_others",
    } <= tables
    on_disk = {name.split("/")[0] for name in files_with(store, NAME.encode())}
    assert tables <= on_disk, "the search finds what is there"

    assert 0 == _erase(), "without --yes nothing is erased"
    assert before == _all_rows(store, without=NAME)
    assert {"decisions": 200, "dead_letters": 1}.items() <= places.counted(store, NAME).items()
    assert 0 == _erase(*WHO)

    assert {} == places.counted(store, NAME)
    after = _all_rows(store, without=NAME)
    letters = [row[:3] for row in after.pop("dead_letters")]
    assert [(DECISIONS.name, 0, 3), (GRANTS.name, 0, 2)] == letters, "one was decoded, and was the caller's"
    before.pop("dead_letters")
    assert before == after
    assert [] == files_with(store, NAME.encode())
    assert [] == list(
        store.rows("SELECT command FROM system.mutations WHERE position(command, {n:String}) > 0", {"n": NAME})
    )
    assert [] == list(store.rows("SELECT * FROM erasing"))
    assert (
        "1 dead letters that cannot be decoded hold the bytes of this name; they were left" in capsys.readouterr().out
    )


def test_erasure_is_on_record_without_the_name_and_block_by_block(
    store: ClickHouseStore, capsys: pytest.CaptureFixture[str]
) -> None:
    """Verifying must find the erasure in place of a break: rows left and rows erased are what each block had."""
    assert 0 == _erase(*WHO)
    capsys.readouterr()
    (one,) = stated(store)
    assert ("done", "privacy desk, ticket 12", "request of the account's holder") == (
        one.state, one.requested_by, one.reason,
    )  # fmt: skip
    assert {
        "decisions": 200,
        "grants": 1,
        "settlements": 1,
        "cost_changes": 1,
        "conflicts": 50,
    }.items() <= one.removed.items()
    assert list(range(0, 300, 3)) == erased_seqs(store, "gw-1", 7)
    assert [] == erased_seqs(store, "gw-1", 8)
    rows = store.rows(
        "SELECT any(b.decisions), sum(e.decisions) FROM blocks b JOIN erased_blocks e "
        "USING (copy_id, epoch, log_partition, log_offset) "
        "GROUP BY copy_id, epoch, log_partition, log_offset"
    )
    assert [(150, 50)] * 4 == [(int(all_of_it), int(gone)) for all_of_it, gone in rows]
    assert ([0, 1, 1], [False, True, True]) == (
        [len(erased(store).sift([at(make_block([Made(name, MIDNIGHT_US)]), 9)])[0]) for name in (NAME, *OTHERS)],
        [erased(store).of(name) is None for name in (NAME, *OTHERS)],
    )
    assert 0 == _erase("--json")
    told = json.loads(capsys.readouterr().out)
    assert (1, {}) == (told["erased"], told["rows"])
    assert 0 == command.main(["erase", "--caller", OTHERS[0], "--json"])
    assert 0 == json.loads(capsys.readouterr().out)["erased"]


@pytest.mark.parametrize("ended_at", ["_list", "_wait"])
def test_erasure_that_was_ended_half_way_is_finished_by_the_next_run(
    store: ClickHouseStore, ended_at: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Wherever it was killed: the same record, once, with all that was there."""
    ended = getattr(removing, ended_at)

    def killed(*_words: Any) -> None:
        raise StoreUnavailable("killed")

    monkeypatch.setattr(removing, ended_at, killed)
    assert 3 == _erase(*WHO)
    monkeypatch.setattr(removing, ended_at, ended)
    assert 1 == _erase(), "an erasure that is not finished is not all well"
    assert "erasure not finished, run it again" in capsys.readouterr().out
    assert 0 == _erase("--by", "somebody else", "--reason", "again", "--yes")
    (one,) = stated(store)
    assert ("done", "privacy desk, ticket 12", 200) == (one.state, one.requested_by, one.removed["decisions"])
    assert list(range(0, 300, 3)) == erased_seqs(store, "gw-2", 7)
    assert {} == places.counted(store, NAME)
    assert [] == list(store.rows("SELECT * FROM erasing"))


class _NoTopic(DeadLetterTopic):
    """No dead letters are sent in these tests."""


def test_recorder_does_not_bring_back_what_was_erased(store: ClickHouseStore, database_dsn: str) -> None:
    """The log keeps a week: whoever reads it again must not undo the erasure, nor lose what the caller did since."""
    assert 0 == _erase(*WHO)
    (one,) = stated(store)
    listed = store.rows("SELECT * FROM erased_blocks FINAL ORDER BY ALL")
    before = store.rows("SELECT * FROM decisions FINAL ORDER BY ALL")
    since_us = one.erasure.erased_before_us
    log = logging.getLogger("test")
    writer = Writer(
        lambda: ClickHouseStore.connect(database_dsn), _NoTopic("127.0.0.1:1", log), log, unix_us=lambda: since_us,
        erasures=Erasures(lambda: 0.0),
    )  # fmt: skip
    again = Pending()
    late = [Made(NAME, since_us + n, limit="rate") for n in (0, -1)]
    again.blocks = [*_placed(), at(make_block(late, epoch=8), 900)]
    again.first_offsets["t", 0], again.next_offsets["t", 0] = 0, 901
    writer.start(again)
    assert writer.wait(60)
    assert writer.take_written() is again

    assert {"decisions": 1, "terms": 1} == places.counted(store, NAME), "of what it did since"
    assert before == store.rows("SELECT * FROM decisions FINAL WHERE epoch = 7 ORDER BY ALL")
    assert listed == store.rows("SELECT * FROM erased_blocks FINAL WHERE epoch = 7 ORDER BY ALL")
    assert [1] == erased_seqs(store, "gw-1", 8), "what came late is on record as erased too"
