"""``tallygate audit verify`` on a real database: what a copy sealed and the recorder stored is proved, or is named."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import closing

import msgspec
import pytest

from aggregator.audit.proof import reading as verify_reading
from aggregator.audit.proof import rows as verify_rows
from aggregator.audit.proof.verify import add_arguments, run, verify
from aggregator.erasure.erasing import erase
from aggregator.migrate import migrate
from aggregator.store_clickhouse import ClickHouseStore
from aggregator.words import Span
from stream.contract.topics import DECISIONS
from tests.recordblocks import MIDNIGHT_US
from tests.verifying import RATE, SIZE, Copy, add, change, counts, lines, record


@pytest.fixture
def store(database_dsn: str) -> Iterator[ClickHouseStore]:
    """An empty record."""
    migrate(database_dsn)
    with closing(ClickHouseStore.connect(database_dsn)) as opened:
        yield opened


def test_record_that_nobody_touched_is_proved_whole(
    store: ClickHouseStore, database_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every hash is made again from rows alone: of refusals, quotas, further charges, and a copy 400 days ahead.

    The last epoch that a block can name is one as any other.
    """
    monkeypatch.setattr(verify_rows, "MOST_DECISIONS", 5 * SIZE)
    monkeypatch.setattr(verify_reading, "BLOCKS", 4)
    monkeypatch.setattr(verify_reading, "LIVES", 1)
    plain, ahead = Copy("gw-1"), Copy("gw-2", 2**64 - 1, owner_offset_us=-400 * 86_400_000_000)
    plain.live(9)
    ahead.live(4)
    plain.letters += plain.letters[2:5]
    record(store, database_dsn, plain, ahead)
    answer = verify(store, Span())
    assert answer.agrees, answer.text()
    assert {"lives": 2, "blocks": 13, "proved": 13 * SIZE} == counts(answer)
    assert "13 blocks of 2 lives looked at, 156 decisions proved by hash; all that is recorded" == answer.summary
    some = verify(store, Span(MIDNIGHT_US + 2_500_000, MIDNIGHT_US + 5_500_000), copy_id="gw-1")
    assert some.agrees, some.text()
    assert 1 == some.facts["lives"]
    assert 4 * SIZE <= int(str(some.facts["proved"])) < 9 * SIZE
    assert answer.json() == verify(store, Span()).json()


def test_one_altered_field_of_one_row_is_found(store: ClickHouseStore, database_dsn: str) -> None:
    """A bill is disputed over one number: whoever could change it unseen would owe no proof."""
    copy = Copy("gw-1")
    copy.live(9)
    record(store, database_dsn, copy)
    # Columns of the sort key cannot be updated: another row takes the place of the first.
    add(store, "at + toIntervalMicrosecond(1) AS at", "seq = 2")
    add(store, "'acct-9' AS caller", "seq = 14")
    change(
        store,
        "ALTER TABLE decisions DELETE WHERE seq = 14 AND caller != 'acct-9', UPDATE cost_tokens = 77 WHERE seq = 26,"
        " UPDATE remaining_tokens = -3 WHERE seq = 38, UPDATE reason = 'closed' WHERE seq = 53,"
        " UPDATE charges = [('a', 'b', 1)] WHERE seq = 62, UPDATE scope = 'GET /other' WHERE seq = 74,"
        " UPDATE burst = 5 WHERE seq = 86, UPDATE allowed = false WHERE seq = 98",
    )
    answer = verify(store, Span(), log=copy.block_at)
    assert {"lives": 1, "blocks": 9, "altered": 9, "faults": 9} == counts(answer)
    said = [
        "; decision 2: at_us is",
        "; decision 14: caller is 'acct-9', was 'acct-2'",
        "; decision 26: cost_tokens is 77, was 3",
        "; decision 38: remaining_tokens is -3, was 2",
        "; decision 53: reason is 4, was 1",
        "; decision 62: charges is (('a', 'b', 1),), was ()",
        "; decision 74: scope is 'GET /other', was 'GET /2'",
        "; decision 86: burst is 5, was 108000",
        " (a decision is allowed and has a reason, or neither)",
    ]
    for number, (line, words) in enumerate(zip(lines(answer), said, strict=True)):
        block = f"the block of decisions {number * 12} to {number * 12 + 11} (partition 0, offset {number})"
        assert line.startswith(f"copy gw-1, epoch 7: altered: the rows of {block} do not give its hash{words}")
    assert 9 == verify(store, Span()).facts["altered"], "also without the log"


def test_what_a_block_said_of_itself_cannot_be_altered_either(store: ClickHouseStore, database_dsn: str) -> None:
    """The copies' own totals are held against the record: they must be the copies' own."""
    copy = Copy("gw-1")
    copy.live(3)
    record(store, database_dsn, copy)
    change(store, "ALTER TABLE blocks UPDATE cost_total = cost_total + 1 WHERE first_seq = 12")
    (line,) = lines(verify(store, Span(), log=copy.block_at))
    assert "decisions 12 to 23" in line
    assert "cost_total of the block is" in line


def test_rows_that_are_gone_and_rows_that_came_are_found(store: ClickHouseStore, database_dsn: str) -> None:
    """Also those that nobody would read: under numbers that no block has, or of a copy that never was."""
    copy = Copy("gw-1")
    copy.live(4)
    record(store, database_dsn, copy)
    change(store, "ALTER TABLE decisions DELETE WHERE seq IN (13, 14)")
    for changed in ("1000 AS seq", "'gw-x' AS copy_id", "'acct-other' AS caller"):
        add(store, changed, "seq = 40 AND copy_id = 'gw-1'")
    answer = verify(store, Span(), log=copy.block_at)
    assert [
        "copy gw-1, epoch 7: 2 decisions without a row: 13 to 14, of the block of decisions 12 to 23"
        " (partition 0, offset 1), of acct-1, acct-2",
        "copy gw-1, epoch 7: 1 decision too many among the rows of the block of decisions 36 to 47"
        " (partition 0, offset 3)",
        "copy gw-1, epoch 7: 1 decision that no block covers, between 1000 and 1000: added to the record",
        "copy gw-x, epoch 7: 1 decision that no block covers, between 40 and 40: added to the record",
    ] == lines(answer)


def test_decisions_whose_block_is_being_written_are_not_accused(store: ClickHouseStore, database_dsn: str) -> None:
    """Verifying beside a recorder at work must not find what the next moment mends."""
    copy = Copy("gw-1")
    copy.live(2)
    record(store, database_dsn, copy)
    add(store, "now64(6) AS at, 30 AS seq", "seq = 3")
    assert verify(store, Span()).agrees
    add(store, "now64(6) - toIntervalHour(1) AS at, 31 AS seq", "seq = 3")
    assert "1 decision that no block covers, between 31 and 31" in lines(verify(store, Span()))[0]


def test_block_that_is_gone_with_its_rows_is_found(store: ClickHouseStore, database_dsn: str) -> None:
    """Its neighbours no longer fit each other."""
    copy = Copy("gw-1")
    copy.live(5)
    record(store, database_dsn, copy)
    change(store, "ALTER TABLE decisions DELETE WHERE seq >= 24 AND seq < 36")
    change(store, "ALTER TABLE blocks DELETE WHERE first_seq = 24")
    answer = verify(store, Span())
    assert [
        "copy gw-1, epoch 7: 12 decisions missing: 24 to 35, between the block of decisions 12 to 23 (partition 0,"
        " offset 1) and the block of decisions 36 to 47 (partition 0, offset 3)"
    ] == lines(answer)
    assert {"lives": 1, "blocks": 4, "proved": 48, "missing": 12, "faults": 1} == counts(answer)
    change(store, "ALTER TABLE blocks DELETE WHERE first_seq = 0")
    change(store, "ALTER TABLE decisions DELETE WHERE seq < 12")
    first = lines(verify(store, Span()))[0]
    assert "1 decision missing: 11, before the block of decisions 12 to 23" in first


@pytest.mark.parametrize("offset_days", [None, 0, -400, 400])
def test_tail_that_was_cut_off_is_missed_by_the_anchor(
    store: ClickHouseStore, database_dsn: str, offset_days: int | None
) -> None:
    """R22: the last five blocks of an epoch deleted leave no hole; the anchor on another topic is past them.

    R18: whatever the copy's clock, which may be 400 days ahead.
    """
    copy = Copy("gw-1", owner_offset_us=None if offset_days is None else offset_days * 86_400_000_000)
    copy.live(8)
    record(store, database_dsn, copy)
    change(store, f"ALTER TABLE decisions DELETE WHERE seq >= {3 * SIZE}")
    change(store, f"ALTER TABLE blocks DELETE WHERE first_seq >= {3 * SIZE}")
    day = Span(MIDNIGHT_US - 3_600_000_000, MIDNIGHT_US + 3_600_000_000)
    for answer in (verify(store, Span()), verify(store, day)):
        (line,) = lines(answer)
        end = "36 to 95 missing, of a block that was anchored at 2026-01-02T00:00:08.000000Z"
        assert f"copy gw-1, epoch 7: the tail was cut off: {end}" == line
        assert not answer.agrees
        assert 60 == answer.facts["missing"]
    change(store, "ALTER TABLE decisions DELETE WHERE 1")
    change(store, "ALTER TABLE blocks DELETE WHERE 1")
    for span in (Span(), day):
        (line,) = lines(verify(store, span))
        assert "the tail was cut off: 0 to 95 missing" in line


def test_anchor_that_has_just_come_may_be_ahead_of_its_blocks(store: ClickHouseStore, database_dsn: str) -> None:
    """Verifying beside a recorder at work: what was stored just now is not judged, however old the copy says it is."""
    copy = Copy("gw-1")
    copy.live(2)
    copy.letters = [letter for letter in copy.letters if letter[0] != DECISIONS.name]
    record(store, database_dsn, copy)
    assert not verify(store, Span()).agrees
    add_late = "INSERT INTO recorded SELECT * REPLACE (now64(6) AS stored_at) FROM recorded WHERE topic LIKE '%control'"
    store.command(add_late)
    answer = verify(store, Span())
    assert answer.agrees
    assert ["copy gw-1, epoch 7: 1 anchor of the last minutes may have come before their blocks"] == lines(answer)


def test_what_a_copy_says_it_lost_is_no_fault(store: ClickHouseStore, database_dsn: str) -> None:
    """R9: the chain goes on over what never came, and the record says how much that was."""
    copy = Copy("gw-1", max_held=30, away_until=4)
    copy.live(8)
    record(store, database_dsn, copy)
    answer = verify(store, Span())
    assert answer.agrees, answer.text()
    assert {"lives": 1, "blocks": 6, "proved": 66, "lost": 30} == counts(answer)
    assert [
        "copy gw-1, epoch 7: 30 decisions lost by its own record: 30 to 59, between the block of decisions 24 to 29"
        " (partition 0, offset 2) and the block of decisions 60 to 71 (partition 0, offset 3)"
    ] == lines(answer)
    change(store, "ALTER TABLE control DELETE WHERE kind = 'decisions_lost'")
    assert "30 decisions missing: 30 to 59" in lines(verify(store, Span()))[0], "a loss record cannot be taken away"


def test_erased_rows_are_reported_as_such(store: ClickHouseStore, database_dsn: str) -> None:
    """A record must be able to forget one caller without losing the proof of the others."""
    copy = Copy("gw-1")
    copy.live(4)
    record(store, database_dsn, copy)
    erase(store, "acct-1", requested_by="privacy desk", reason="on request", progress=lambda _line: None)
    answer = verify(store, Span())
    assert answer.agrees, answer.text()
    assert {"lives": 1, "blocks": 4, "erased": 12} == counts(answer)
    assert "12 erased on request" in answer.summary
    assert [
        f"copy gw-1, epoch 7: 3 decisions of the block of decisions {first} to {first + 11} (partition 0, offset"
        f" {number}) erased on request: the others cannot be proved"
        for number, first in enumerate(range(0, 48, 12))
    ] == lines(answer)
    change(store, "ALTER TABLE decisions DELETE WHERE seq = 14")
    assert "1 decision without a row: 14" in lines(verify(store, Span()))[0]


def test_rows_that_are_kept_no_longer_are_no_fault(store: ClickHouseStore, database_dsn: str) -> None:
    """Admitted decisions go first, refused ones later: what is left of a block cannot be proved, and is not accused."""
    copy = Copy("gw-1")
    copy.live(4)
    record(store, database_dsn, copy)
    change(store, "ALTER TABLE decisions DELETE WHERE allowed AND seq < 24")
    assert not verify(store, Span()).agrees
    store.command("INSERT INTO retention VALUES ('2026-03-01', 14, 10000, 10000, 10)")
    answer = verify(store, Span())
    assert answer.agrees, answer.text()
    assert (24, 20) == (answer.facts["proved"], answer.facts["expired"])
    change(store, "ALTER TABLE decisions DELETE WHERE seq = 5")
    assert not verify(store, Span()).agrees, "a refused one is kept longer"


def test_block_that_contradicts_an_earlier_one_is_told_apart_from_an_altered_row(
    store: ClickHouseStore, database_dsn: str
) -> None:
    """R3: the record keeps what was said first: the copy is at fault, not whoever keeps the record."""
    copy, other = Copy("gw-1"), Copy("gw-1")
    copy.live(2)
    other.live(1, terms=RATE)
    copy.letters += [letter for letter in other.letters if letter[0] == DECISIONS.name]
    record(store, database_dsn, copy)
    said = lines(verify(store, Span()))
    assert any("altered" in line and "of it contradict what an earlier block had said" in line for line in said), said


def test_terms_that_were_altered_are_found(store: ClickHouseStore, database_dsn: str) -> None:
    """What a limit was held to stands in a table of its own, for all decisions that name it."""
    copy = Copy("gw-1")
    copy.live(3, terms=RATE)
    record(store, database_dsn, copy)
    assert verify(store, Span()).agrees
    store.command("INSERT INTO terms SELECT * REPLACE (500 AS burst) FROM terms WHERE caller = 'acct-0'")
    assert verify(store, Span()).agrees, "what was added does not hide what is true"
    change(store, "ALTER TABLE decisions UPDATE burst = 500, rate_per_s = 1 WHERE seq = 4")
    assert 1 == verify(store, Span()).facts["altered"]
    change(store, "ALTER TABLE decisions UPDATE burst = 0, rate_per_s = 0 WHERE seq = 4")
    assert verify(store, Span()).agrees
    change(store, "ALTER TABLE terms DELETE WHERE 1")
    answer = verify(store, Span())
    assert 3 == answer.facts["altered"]
    assert "the terms that a decision names are in no row of table terms" in lines(answer)[0]


def test_blocks_of_an_older_layout_are_chained_only(store: ClickHouseStore, database_dsn: str) -> None:
    """Their hashes cannot be made again: the answer says so instead of claiming a proof."""
    copy = Copy("gw-1")
    copy.live(3)
    record(store, database_dsn, copy)
    change(store, "ALTER TABLE blocks UPDATE layout_version = 2 WHERE first_seq < 24")
    answer = verify(store, Span())
    assert answer.agrees
    assert (24, 12) == (answer.facts["chained_only"], answer.facts["proved"])
    assert "24 in blocks of an older layout, which are chained only" in answer.summary


def test_action_reads_its_words_and_returns_its_code(
    store: ClickHouseStore, database_dsn: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Scripts go by the exit code."""
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    copy = Copy("gw-1")
    copy.live(3)
    record(store, database_dsn, copy)
    assert 0 == run(parser.parse_args(["--json"]), store)
    assert 36 == msgspec.json.decode(capsys.readouterr().out)["proved"]
    change(store, "ALTER TABLE decisions UPDATE k = 5 WHERE seq = 0")
    assert 1 == run(parser.parse_args(["--copy", "gw-1"]), store)
    assert capsys.readouterr().out.startswith("does not agree: 1 fault, 3 blocks of 1 life looked at, ")
    assert 3 == run(parser.parse_args(["--copy", "gw-2"]), store), "there is none of that name"
