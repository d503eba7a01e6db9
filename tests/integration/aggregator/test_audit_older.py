"""Lives that are older than the record, on a real database: what they numbered before is not missing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from aggregator.audit import gaps
from aggregator.audit.counts.copies_count import count_blocks
from aggregator.audit.export import completeness
from aggregator.migrate import migrate
from aggregator.settler.passes.due import Due
from aggregator.settler.passes.ledger import Ledger
from aggregator.settler.passes.minutes import MinutesPass
from aggregator.store_clickhouse import ClickHouseStore
from aggregator.words import Span
from enforcer.identity import new_identity
from tests.recordblocks import MIDNIGHT_US, Made, make_block
from tests.recordrows import record_blocks, record_control

DAY_US, SECOND_US, FIRST = 86_400_000_000, 1_000_000, MIDNIGHT_US // 60_000_000


def epoch_of(started_us: int) -> int:
    """The epoch of a life that began then."""
    return new_identity("gw", unix_ms=started_us // 1_000, pid=7).epoch


OLD, YOUNG = epoch_of(MIDNIGHT_US - DAY_US), epoch_of(MIDNIGHT_US + 20 * SECOND_US)


@pytest.fixture
def store(database_dsn: str) -> Iterator[ClickHouseStore]:
    """A record that begins at midnight, with a life that began the day before and one that begins in it."""
    migrate(database_dsn)
    with closing(ClickHouseStore.connect(database_dsn)) as opened:
        seal(opened, OLD, (1_000, 0), (1_003, 10), (1_009, 20), copy_id="gw-1")
        seal(opened, YOUNG, (5, 30), (8, 40), copy_id="gw-2")
        yield opened


def seal(store: ClickHouseStore, epoch: int, *blocks: tuple[int, int], copy_id: str) -> None:
    """Blocks of three decisions that begin with a number, each sealed so many seconds after midnight."""
    made = [
        make_block([Made(at_us=at_us)] * 3, copy_id=copy_id, epoch=epoch, first_seq=seq, sealed_at_us=at_us)
        for seq, at_us in ((seq, MIDNIGHT_US + at_s * SECOND_US) for seq, at_s in blocks)
    ]
    record_blocks(store, made, first_offset=blocks[0][0])


def journal(store: ClickHouseStore, first_offset: int) -> None:
    """The first flush on record."""
    store.command(
        "INSERT INTO recorded (topic, log_partition, log_id, first_offset, next_offset) "
        f"VALUES ('tallygate.decisions', 0, '', {first_offset}, 5000)"
    )


def counts(store: ClickHouseStore, span: Span | None = None) -> tuple[int, int, int, int]:
    """By `audit gaps`: missing and from before; by `audit reconcile`: missing; by the pages: missing."""
    span = span or Span()
    told = gaps.find(store, span).facts
    MinutesPass([Ledger()]).settle(store, Due([FIRST], 1, MIDNIGHT_US + 90 * SECOND_US))
    ((kept,),) = store.rows("SELECT sum(missing) FROM missing_minutes FINAL")
    assert kept == store.rows("SELECT sum(silent) FROM missing_minutes FINAL")[0][0]
    assert isinstance(told["missing"], int)
    assert isinstance(told["before_record"], int)
    return told["missing"], told["before_record"], count_blocks(store, span, None).missing, int(kept)


def test_life_that_is_older_than_a_database_has_no_gap_before_its_first_block(store: ClickHouseStore) -> None:
    """A database that is made anew beside a running fleet would say that a day is missing, of every copy."""
    journal(store, first_offset=700)
    record_control(store, "copy_stopped", copy_id="gw-9", epoch=OLD, at_us=MIDNIGHT_US - 9, next_seq=40)
    record_control(store, "copy_stopped", copy_id="gw-8", epoch=OLD, at_us=MIDNIGHT_US + 9, next_seq=2)
    assert counts(store) == (3 + 5 + 2, 1_000 + 40, 3 + 5, 3 + 5)
    answer = gaps.find(store, Span())
    assert "; 1,040 decisions from before this record begins" in answer.summary
    assert {
        f"copy gw-1, epoch {OLD}: 1,000 from before this record begins: 0 to 999, before the block of "
        "2026-01-02T00:00:00.000000Z",
        f"copy gw-9, epoch {OLD}: 40 from before this record begins: 0 to 39, at its end: the copy said when it "
        "stopped that it went to 39",
    } <= {finding.line for finding in answer.findings}
    later = Span(from_us=MIDNIGHT_US + 5 * SECOND_US)
    assert gaps.find(store, later).facts["before_record"] == 0, "it belongs to the span of the block behind it"
    assert count_blocks(store, later, None).missing == 3 + 5
    missing = completeness(store, Span())["missing"]
    assert isinstance(missing, list)
    assert any("1040 decisions of all callers are from before this record begins" in line for line in missing)


def test_what_is_gone_for_its_age_is_no_gap(store: ClickHouseStore) -> None:
    """A copy that runs for longer than blocks are kept would have a gap that grows every month."""
    journal(store, first_offset=0)
    assert counts(store)[:3] == (1_000 + 3 + 5, 0, 1_000 + 3 + 5)
    store.command("TRUNCATE TABLE missing_minutes")
    days = "dateDiff('day', toDate('2026-01-02'), today()) - 1"
    store.command(f"INSERT INTO retention SELECT now64(6) - 10, {days}, {days}, {days}, 10")
    assert counts(store) == (3 + 5, 1_000, 3 + 5, 3 + 5)


def test_head_that_was_cut_off_is_a_gap_where_the_log_was_read_from_its_beginning(store: ClickHouseStore) -> None:
    """Whoever removes the first blocks of a life must not be excused by its age."""
    journal(store, first_offset=0)
    assert counts(store) == (1_000 + 3 + 5, 0, 1_000 + 3 + 5, 1_000 + 3 + 5)
