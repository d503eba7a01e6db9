"""``tallygate audit gaps`` on a real database: what is missing is named, with who spoke of it."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from contextlib import closing

import pytest

from aggregator.audit import gaps
from aggregator.migrate import migrate
from aggregator.store_clickhouse import ClickHouseStore
from aggregator.words import Answer, Span
from tests.recordblocks import MIDNIGHT_US, Made, make_block
from tests.recordrows import record_blocks, record_control

SECOND_US = 1_000_000


@pytest.fixture
def store(database_dsn: str) -> Iterator[ClickHouseStore]:
    """An empty record."""
    migrate(database_dsn)
    with closing(ClickHouseStore.connect(database_dsn)) as opened:
        yield opened


def seal(
    store: ClickHouseStore, spans: Sequence[tuple[int, int]], *, copy_id: str = "gw-1", epoch: int = 7, from_s: int = 0
) -> None:
    """Blocks of these numbers (first, end), one a second, of decisions at the seconds they were sealed in."""
    blocks = []
    for place, (first, end) in enumerate(spans):
        sealed_at_us = MIDNIGHT_US + (from_s + place) * SECOND_US
        made = [Made(at_us=sealed_at_us) for _ in range(first, end)]
        blocks.append(make_block(made, copy_id=copy_id, epoch=epoch, first_seq=first, sealed_at_us=sealed_at_us))
    record_blocks(store, blocks)


def lines(answer: Answer) -> list[str]:
    """What is said after the verdict."""
    return [finding.line for finding in answer.findings]


def test_gaps_are_named_with_what_their_copy_says_of_them(store: ClickHouseStore) -> None:
    """R16: a hole that a loss record covers is declared; the rest of it is what nobody knew of."""
    seal(store, [(0, 3), (0, 3), (3, 3), (5, 8), (20, 22)])
    record_control(store, "decisions_lost", first_seq=8, count=10, cause="no room")
    record_control(store, "copy_stopped", next_seq=22)
    answer = gaps.find(store, Span())
    assert not answer.agrees
    assert [
        "copy gw-1, epoch 7: 2 missing without a loss record: 3 to 4, before the block of 2026-01-02T00:00:03.000000Z",
        "copy gw-1, epoch 7: 2 missing without a loss record: 18 to 19, before the block of "
        "2026-01-02T00:00:04.000000Z",
        "copy gw-1, epoch 7: 10 lost by its own record: 8 to 17, before the block of 2026-01-02T00:00:04.000000Z",
    ] == lines(answer)
    assert (4, 10, 1) == (answer.facts["missing"], answer.facts["lost"], answer.facts["lives"])
    assert answer.json() == gaps.find(store, Span()).json(), "asked again, it says the same bytes"


def test_record_without_a_hole_agrees_however_its_blocks_are_cut(store: ClickHouseStore) -> None:
    """R5: blocks that overlap, repeat, or come late leave nothing out."""
    seal(store, [(5, 9), (0, 4), (2, 6), (0, 9), (9, 9), (9, 12)])
    record_control(store, "copy_stopped", next_seq=12)
    answer = gaps.find(store, Span())
    assert answer.agrees
    assert "no gap, 0 lost by the copies' own records; 1 life of a copy, all that is recorded" == answer.summary
    assert [] == lines(answer)


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("copy_stopped", "the copy said when it stopped that it went to 9"),
        ("anchor", "the copy said once a minute that it went to 9"),
        ("copy_found", "its successor found that it went to 9"),
    ],
)
def test_cut_tail_is_found_by_whoever_spoke_of_its_end(store: ClickHouseStore, kind: str, words: str) -> None:
    """Cutting off the end leaves no hole between blocks: only what was said of the end shows it."""
    seal(store, [(0, 6)])
    record_control(store, kind, next_seq=10)
    record_control(store, "decisions_lost", first_seq=8, count=1, cause="no room")
    answer = gaps.find(store, Span())
    assert not answer.agrees
    assert [
        f"copy gw-1, epoch 7: 2 missing without a loss record: 6 to 7, at its end: {words}",
        f"copy gw-1, epoch 7: 1 missing without a loss record: 9, at its end: {words}",
        f"copy gw-1, epoch 7: 1 lost by its own record: 8, at its end: {words}",
    ] == lines(answer)


def test_life_whose_every_block_is_gone_is_found(store: ClickHouseStore) -> None:
    """Nothing of it is left but its last word."""
    record_control(store, "copy_started", copy_id="gw-9", epoch=3)
    record_control(store, "copy_stopped", copy_id="gw-9", epoch=3, next_seq=1_000)
    seal(store, [(0, 1)])
    assert [
        "copy gw-9, epoch 3: 1,000 missing without a loss record: 0 to 999, at its end: the copy said when it stopped "
        "that it went to 999"
    ] == lines(gaps.find(store, Span()))


def test_life_that_fell_silent_is_named_but_is_no_gap(store: ClickHouseStore) -> None:
    """What a killed copy had not shipped nobody knows: the record says so, and does not claim that it is complete."""
    seal(store, [(0, 6)])
    seal(store, [(0, 2)], epoch=8, from_s=700)
    record_control(store, "facts_lost", epoch=8, total=4, at_us=MIDNIGHT_US + 700 * SECOND_US)
    answer = gaps.find(store, Span())
    assert answer.agrees
    assert answer.summary.endswith("; what 1 life that ended without a last word had in memory is unknown")
    assert [
        "copy gw-1, epoch 7: ended without saying so, last heard at 2026-01-02T00:00:00.000000Z, recorded up to 6; "
        "what it had not shipped nobody knows",
        "copy gw-1, epoch 8: 4 grants or settlements lost by its own record",
    ] == lines(answer)
    record_control(store, "copy_found", next_seq=6, by=8)
    assert 1 == len(lines(gaps.find(store, Span()))), "its successor found what it left: the end is known"


def test_successor_that_found_nothing_leaves_the_end_unknown(store: ClickHouseStore) -> None:
    """No spool, no knowledge."""
    seal(store, [(0, 6)])
    record_control(store, "copy_found", next_seq=None, by=8)
    seal(store, [(0, 2)], epoch=8, from_s=700)
    assert 1 == gaps.find(store, Span()).facts["ended_unsaid"]


def test_span_holds_the_holes_before_its_blocks_and_no_others(store: ClickHouseStore) -> None:
    """Each hole belongs to one span, so that the counts of adjacent spans add up."""
    seal(store, [(0, 3), (5, 8), (8, 9), (12, 13)])
    cut_us = MIDNIGHT_US + 2 * SECOND_US
    first, second = (gaps.find(store, span) for span in (Span(to_us=cut_us), Span(from_us=cut_us)))
    assert (2, 3) == (first.facts["missing"], second.facts["missing"])
    later = gaps.find(store, Span(from_us=MIDNIGHT_US + 90 * SECOND_US))
    assert (None, 0) == (later.agrees, later.facts["lives"])


def test_more_lives_and_holes_than_a_page_are_all_counted(
    store: ClickHouseStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Memory is bounded by pages, the answer is not."""
    monkeypatch.setattr(gaps, "_LIVES", 2)
    monkeypatch.setattr(gaps, "_HOLES", 2)
    monkeypatch.setattr(gaps, "MOST_NAMED", 4)
    for number in range(5):
        seal(store, [(1, 2), (3, 4), (5, 6)], copy_id=f"gw-{number}")
    answer = gaps.find(store, Span())
    assert (15, 5) == (answer.facts["missing"], answer.facts["lives"])
    assert (4, 11) == (len(answer.findings), answer.facts["not_named"])
    assert "11 further places not named" in answer.summary


def test_action_reads_its_words_and_returns_its_code(
    store: ClickHouseStore, capsys: pytest.CaptureFixture[str]
) -> None:
    """Scripts go by the exit code."""
    parser = argparse.ArgumentParser()
    gaps.add_arguments(parser)
    seal(store, [(1, 2)])
    assert 1 == gaps.run(parser.parse_args([]), store)
    assert 3 == gaps.run(parser.parse_args(["--to", "2026-01-01", "--json"]), store)
    verdict, _, machine = capsys.readouterr().out.splitlines()
    assert verdict.startswith("does not agree: 1 decision missing without a loss record, ")
    assert '"agrees":null' in machine, "where no copy has recorded anything there is nothing to agree"
