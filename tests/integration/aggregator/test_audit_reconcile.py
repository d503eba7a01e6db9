"""``tallygate audit reconcile`` on a real database: the three counts of a fleet agree, and every fault is named."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import closing

import pytest

from aggregator.audit.counts import reconcile
from aggregator.audit.counts.grants import ledger_hours
from aggregator.audit.counts.reconcile import compare
from aggregator.erasure.erasing import erase
from aggregator.migrate import migrate
from aggregator.store_clickhouse import ClickHouseStore
from aggregator.words import Answer, Span
from tests.property.aggregator.ledger_world import LedgerWorld
from tests.recordblocks import MIDNIGHT_US
from tests.recordrows import record_control
from tests.unit.enforcer.harness import make_policy

#: The second block of the first copy's life.
BLOCK = "copy_id = 'copy-0' AND first_seq = 10"


@pytest.fixture
def world() -> LedgerWorld:
    """Two copies that admit and refuse, and one of them killed while it holds tokens."""
    world = LedgerWorld(make_policy(rate_per_s=20.0, burst=40), copies=2, start_us=MIDNIGHT_US)
    for caller in ("acme", "other"):
        for place in (0, 1):
            for _ in range(15):
                world.alive[place].limiter.check(caller)
    world.wait(2)
    world.alive[1].limiter.check("acme", cost=3)
    world.kill(1)
    world.end()
    return world


@pytest.fixture
def store(database_dsn: str, world: LedgerWorld) -> Iterator[ClickHouseStore]:
    """Its record."""
    migrate(database_dsn)
    with closing(ClickHouseStore.connect(database_dsn)) as opened:
        world.record(opened)
        yield opened


def remove(store: ClickHouseStore, table: str, which: str) -> None:
    """Do to a table what nobody should."""
    store.command(f"DELETE FROM {table} WHERE {which}")


def faults(answer: Answer, *, kind: str = "") -> list[str]:
    """What is said of blocks and grants that do not agree."""
    kinds = (kind,) if kind else ("block", "grant")
    return [finding.line for finding in answer.findings if finding.facts["kind"] in kinds]


def the_one(answer: Answer, kind: str) -> str:
    """The only fault of its kind."""
    assert not answer.agrees
    (line,) = faults(answer, kind=kind)
    return line


def test_counts_of_a_fleet_agree_and_say_so_in_the_same_bytes(store: ClickHouseStore, world: LedgerWorld) -> None:
    """R20: rows, copies and grants say the same, and whoever repeats the question gets the same answer."""
    answer = compare(store, Span())
    assert answer.agrees, answer.text()
    made = sum(len(life.sink.verdicts) for life in world.lives)
    assert (made, made, made) == tuple(answer.facts["blocks"][name] for name in ("rows", "said", "totals"))  # type: ignore[index]  # facts are plain values
    assert answer.json() == compare(store, Span()).json()
    (unsettled,) = faults(answer, kind="unsettled")
    assert "its owner gave it back, knowing of 0: its copy was killed" in unsettled


def test_removed_decision_is_named_by_its_block_and_by_its_grant(store: ClickHouseStore) -> None:
    """Two witnesses: what its copy counted, and what its grant was spent of."""
    remove(store, "decisions", "copy_id = 'copy-0' AND seq = 12")
    answer = compare(store, Span())
    assert "block 10 to 19 of copy copy-0, " in the_one(answer, "block")
    assert "holds 10 decisions, on record are 9: rows were removed" in the_one(answer, "block")
    assert "decisions that name it were removed" in the_one(answer, "grant")
    other = compare(store, Span(), "other")
    assert (1, 0) == (len(faults(other, kind="block")), len(faults(other, kind="grant"))), "a block is compared whole"


def test_a_copy_that_never_said_that_it_ends_may_have_taken_its_last_decisions_with_it(
    store: ClickHouseStore, world: LedgerWorld
) -> None:
    """A killed copy had told of its grants already; nobody is to look for who removed what never was in a block."""
    remove(store, "decisions", "copy_id = 'copy-0' AND seq = 3")
    killed = the_one(compare(store, Span()), "grant")
    assert "its copy was killed, or runs still, and what it decided last is in no block" in killed
    epoch = world.lives[0].identity.epoch
    record_control(store, "copy_stopped", copy_id="copy-0", epoch=epoch, next_seq=31)
    ended = the_one(compare(store, Span()), "grant")
    assert ended.endswith(": decisions that name it were removed")


def test_altered_decision_is_named(store: ClickHouseStore) -> None:
    """A row that says another cost changes no count, only a sum."""
    store.command(
        "INSERT INTO decisions SELECT * REPLACE (5 AS cost_tokens) FROM decisions WHERE copy_id = 'copy-0' AND seq = 12"
    )
    answer = compare(store, Span())
    assert "says 10 admitted of 10 tokens, its rows say 10 of 14: rows were altered" in the_one(answer, "block")
    assert "decisions are counted twice" in the_one(answer, "grant")


def test_decision_that_stands_twice_is_named(store: ClickHouseStore) -> None:
    """R2 gone wrong: one identity in two places of the sort key is one decision counted twice."""
    again = "INSERT INTO decisions SELECT * REPLACE ({}) FROM decisions WHERE copy_id = 'copy-0' AND seq = 12"
    store.command(again.format("at + INTERVAL 1 DAY AS at"))
    answer = compare(store, Span(MIDNIGHT_US, MIDNIGHT_US + 3_600_000_000))
    assert "decisions are counted twice" in the_one(answer, "grant"), "its day is not that of the blocks"
    store.command(again.format("'zzz' AS caller"))
    answer = compare(store, Span())
    assert "holds 10 decisions, on record are 11: some stand there twice" in the_one(answer, "block")
    assert any("the grant itself is not on record" in line for line in faults(answer, kind="grant"))


@pytest.mark.parametrize("other", ["spent_tokens * 2", "spent_tokens - 1"])
def test_grant_that_is_settled_twice_is_named(store: ClickHouseStore, other: str) -> None:
    """Totals, never increments: a second final total of one grant is a contradiction, not a sum, whichever is right."""
    store.command(
        f"INSERT INTO settlements SELECT * REPLACE ({other} AS spent_tokens) FROM settlements "
        "WHERE caller = 'acme' AND final AND spent_tokens > 0 AND copy_id = 'copy-0' ORDER BY grant_id LIMIT 1"
    )
    answer = compare(store, Span())
    assert "and 2 final totals are stated, the largest" in the_one(answer, "grant")
    assert not faults(answer, kind="block")
    assert compare(store, Span(), "other").agrees


def test_removed_block_is_named_by_those_around_it(store: ClickHouseStore) -> None:
    """Its rows are there, its copy counted them, and no block holds them."""
    remove(store, "blocks", BLOCK)
    answer = compare(store, Span())
    before, behind = faults(answer, kind="block")
    assert "block 0 to 9 of copy copy-0, " in before
    assert "is followed by 10 rows of no block: the next block was removed" in before
    assert "block 20 to 29 of copy copy-0, " in behind
    assert (
        "before it 10 decisions missing (10 to 19), 10 of them admitted, of 10 tokens by its copy's totals: " in behind
    )
    assert behind.endswith("no loss record")
    assert not faults(answer, kind="grant")


def test_lost_block_is_told_from_one_that_its_copy_owned_up_to(store: ClickHouseStore, world: LedgerWorld) -> None:
    """R16: what a loss record names is loss all the same, but nobody has to look for who cut the record."""
    remove(store, "blocks", BLOCK)
    remove(store, "decisions", "copy_id = 'copy-0' AND seq BETWEEN 10 AND 19")
    epoch = world.lives[0].identity.epoch
    record_control(store, "decisions_lost", copy_id="copy-0", epoch=epoch, first_seq=10, count=10, cause="no room")
    answer = compare(store, Span())
    assert the_one(answer, "block").endswith("of 10 tokens by its copy's totals: its copy said that it lost them")
    assert all(line.endswith("decisions of its copy are missing") for line in faults(answer, kind="grant"))
    assert faults(answer, kind="grant")


def test_grant_that_is_not_on_record_is_named(store: ClickHouseStore) -> None:
    """A lost message of grants must not look like tokens from nowhere."""
    remove(store, "grants", "caller = 'other' AND copy_id = 'copy-1'")
    answer = compare(store, Span(), "other")
    assert all("the grant itself is not on record" in line for line in faults(answer, kind="grant"))
    assert faults(answer, kind="grant")


def test_what_was_erased_on_request_is_counted_apart(store: ClickHouseStore) -> None:
    """A caller's right to be forgotten must not look like a forged record, nor hide one."""
    assert erase(store, "acme", requested_by="a test", reason="a test", progress=lambda _: None) is not None
    answer = compare(store, Span())
    assert answer.agrees, answer.text()
    erased = answer.facts["blocks"]["erased"]  # type: ignore[index]  # facts are plain values
    assert (
        f"{erased} decisions of them were erased on request, and 0 grants of their copies lack 0 tokens"
        in answer.text()
    )
    remove(store, "decisions", "copy_id = 'copy-0' AND seq = 16")
    assert "holds 10 decisions, on record are 4 and 5 were erased: rows were" in the_one(
        compare(store, Span()), "block"
    )


def test_span_of_which_raw_decisions_are_gone_is_compared_as_far_as_they_are_kept(store: ClickHouseStore) -> None:
    """What was kept no longer is no loss, and no claim that all is well either: it is said."""
    store.command("INSERT INTO retention VALUES ('2026-01-03 00:00:00', 1, 1, 400, 10)")
    answer = compare(store, Span())
    assert (None, 0) == (answer.agrees, answer.facts["grants"]["grants"])  # type: ignore[index]  # as above
    assert "are gone: they were kept no longer" in answer.findings[0].line


def test_adjacent_spans_count_each_block_once(store: ClickHouseStore) -> None:
    """Whole blocks by the time of their seal: cutting the question in two must not lose or double one."""
    (whole,) = store.rows("SELECT toUnixTimestamp64Micro(max(sealed_at)) FROM blocks")
    spans = (Span(to_us=whole[0]), Span(from_us=whole[0]))
    answers = [compare(store, span) for span in spans]
    assert all(answer.agrees for answer in answers), [answer.text() for answer in answers]
    counted = [compare(store, span).facts["blocks"] for span in (*spans, Span())]
    assert counted[0]["rows"] + counted[1]["rows"] == counted[2]["rows"]  # type: ignore[index]  # facts are plain values
    assert counted[1]["rows"] > 0  # type: ignore[index]  # as above


@pytest.mark.parametrize("most", [1, 7, 20])
def test_counts_do_not_depend_on_how_much_is_compared_at_a_time(store: ClickHouseStore, most: int) -> None:
    """A record of days is compared in parts, for one statement over it would be answered by nobody in time."""
    remove(store, "decisions", "copy_id = 'copy-0' AND seq IN (3, 17)")
    remove(store, "blocks", BLOCK)
    remove(store, "grants", "caller = 'other' AND copy_id = 'copy-1'")
    whole = compare(store, Span())
    assert {"block", "grant"} <= {finding.facts["kind"] for finding in whole.findings}
    assert whole.json() == compare(store, Span(), most=most).json()
    assert ledger_hours(store, Span()) == ledger_hours(store, Span(), most=most) != []


def test_action_reads_its_words_and_returns_its_code(
    store: ClickHouseStore, capsys: pytest.CaptureFixture[str]
) -> None:
    """Scripts go by the exit code."""
    parser = argparse.ArgumentParser()
    reconcile.add_arguments(parser)
    assert 0 == reconcile.run(parser.parse_args(["--caller", "acme"]), store)
    remove(store, "settlements", "final AND caller = 'other'")
    remove(store, "decisions", "caller = 'other' AND copy_id = 'copy-0' AND seq = 15")
    assert 1 == reconcile.run(parser.parse_args(["--json"]), store)
    first, *_, last = capsys.readouterr().out.splitlines()
    assert first.startswith("agrees: ")
    assert '"agrees":false' in last
