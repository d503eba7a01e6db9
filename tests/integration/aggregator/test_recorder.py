"""The recorder on a real broker and a real database: each decision once, whatever the log holds."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from aggregator.sql import load_queries
from enforcer.identity import CopyIdentity
from enforcer.messages import SettleCause, Settlement
from enforcer.sink import GrantIssued, GrantSettled
from enforcer.types import Basis, Grant, Plan, Standing, Terms, Verdict
from stream.contract.codec import encode_block
from stream.contract.control import DecisionsLost, WouldRefuse, encode_control
from stream.contract.facts import encode_facts
from stream.contract.topics import CONTROL, DEAD_LETTERS, GRANTS
from tests.integration.aggregator.recording import Recording, recording
from tests.logfill import START_US, Fill, send
from tests.services import KafkaService

_WOULD_BE_REFUSALS = load_queries("aggregator.sql", "shadow.sql")["would_be_refusals"].sql
_BASIS = Basis(Standing("acct-1", Terms("sustained", Plan("pro", 10.0, 20), 3)), "/cards/{id}", START_US, 4)


@pytest.fixture
def log(kafka_broker: KafkaService, database_dsn: str, tmp_path: Path) -> Iterator[Recording]:
    """An empty log and an empty record."""
    with recording(kafka_broker.bootstrap, database_dsn, tmp_path) as made:
        yield made


def _block(first_seq: int, count: int, *, copy_id: str = "gw-1", epoch: int = 1, at_us: int = START_US) -> bytes:
    verdicts = [Verdict(seq, 0, _BASIS, True, 0, 10, 5, 0) for seq in range(first_seq, first_seq + count)]
    return encode_block(
        verdicts,
        copy_id=copy_id,
        epoch=epoch,
        first_seq=first_seq,
        sealed_at_us=at_us + 1_000,
        clock_offset_ns=at_us * 1_000,
    )


def test_recorder_writes_every_decision_once_and_acknowledges_all_of_them(log: Recording) -> None:
    """The exact record is the one thing that must be right."""
    fill = Fill(decisions=60_000, block=500)
    send(log.bootstrap, fill)
    # Long enough that nothing is read twice because the machine stood still.
    recorder = log.start(flush_decisions="7000", session_timeout_ms="60000")
    log.wait_for(fill.total)
    recorder.stop(timeout_s=60)
    assert 0 == recorder.exit_code()
    assert fill.totals().by_cell == log.by_cell()
    assert fill.totals().by_caller == log.by_caller()
    assert fill.blocks == log.acknowledged()
    assert fill.blocks == log.number("SELECT count() FROM blocks")
    assert fill.total == log.number("SELECT count() FROM decisions"), "nothing was even written twice"


def test_recorder_counts_a_block_once_that_stands_twice_in_the_log(log: Recording) -> None:
    """R2: a producer that retries writes the same block again; that is no second decision."""
    first, second = ("gw-1", _block(0, 1)), ("gw-1", _block(1, 1))
    log.send([first, first, second])
    log.start()
    log.wait_for(2)
    log.send([first, second])
    log.send([("gw-1", _block(2, 1))])
    log.wait_for_all()
    assert (3, 3) == (log.decisions(), log.repeated())
    assert 0 == log.conflicting()


def test_recorder_keeps_the_first_of_two_that_claim_one_identity(log: Recording) -> None:
    """R3: one decision is recorded, and the contradiction is shown, also on another day and after a restart."""
    log.send([("gw-1", _block(0, 5))])
    recorder = log.start()
    log.wait_for(5)
    recorder.stop(timeout_s=60)
    log.send([("gw-1", _block(4, 3, at_us=START_US + 86_400_000_000))])
    log.start()
    log.wait_for_all()
    assert [("gw-1", 1, 4)] == log.rows("SELECT copy_id, epoch, seq FROM conflicts FINAL")
    assert [(4, 0), (5, 1), (6, 1)] == log.rows(
        "SELECT seq, toUInt8(toDate(at) != toDate('2026-03-01')) FROM decisions FINAL WHERE seq >= 4 ORDER BY seq"
    )


def test_recorder_keeps_identities_apart_whose_joined_names_are_equal(log: Recording) -> None:
    """R4: copy a-1 in epoch 2 and copy a in epoch 12 are two, however they are written together."""
    log.send([("a-1", _block(2, 1, copy_id="a-1", epoch=2)), ("a", _block(2, 1, copy_id="a", epoch=12))])
    log.send([("a", _block(2, 1, copy_id="a", epoch=1))])
    log.start()
    log.wait_for_all()
    assert 3 == log.decisions()


def test_recorder_gives_the_same_record_for_a_replay_in_other_cuts(log: Recording) -> None:
    """R1, R5, R6: the whole log read again in other batches changes neither the count nor the cost."""
    fill = Fill(decisions=20_000, block=200, callers=50)
    send(log.bootstrap, fill)
    first = log.start(flush_decisions="3000")
    log.wait_for(fill.total)
    first.stop(timeout_s=60)
    log.send([("gw-1", _block(0, 7))])
    again = log.start(flush_decisions="1700", recorder_group="another-reader")
    log.wait_for(fill.total + 7)
    again.stop(timeout_s=60)
    recorded = log.by_caller()
    assert 7 == recorded.pop("acct-1").offered
    assert fill.totals().by_caller == recorded
    assert 0 == log.repeated(), "read twice is not sent twice"


def test_recorder_puts_a_late_decision_into_its_own_minute(log: Recording) -> None:
    """R7: spooled for eight days, it counts where it belongs, also over midnight and new month."""
    days = 86_400_000_000
    for number, at_us in enumerate((START_US - 8 * days, START_US - 1, START_US)):
        log.send([("gw-1", _block(number, 1, at_us=at_us))])
    log.start()
    log.wait_for(3)
    assert ["2026-02-21 00:00:00", "2026-02-28 23:59:00", "2026-03-01 00:00:00"] == [
        row[0] for row in log.rows("SELECT toString(toStartOfMinute(at)) FROM decisions FINAL ORDER BY at")
    ]


def test_recorder_sets_a_broken_block_aside_and_goes_on(log: Recording) -> None:
    """R20: one of ten is broken; nine are counted, the tenth is kept as it was, and counts once it comes whole."""
    blocks = [_block(seq, 1) for seq in range(10)]
    broken = blocks[4][:-3]
    log.send([("gw-1", broken if number == 4 else block) for number, block in enumerate(blocks)])
    recorder = log.start()
    log.wait_for_all()
    assert 9 == log.decisions()
    ((topic, offset, reason, payload),) = log.rows(
        "SELECT topic, log_offset, reason, hex(payload) FROM dead_letters FINAL"
    )
    assert ("tallygate.decisions", 4, broken.hex().upper()) == (topic, offset, payload)
    assert "block_bytes" in str(reason)
    (letter,) = log.read(DEAD_LETTERS.name, 1)
    assert (b"gw-1", broken) == (letter.key(), letter.value())
    assert {"reason": str(reason).encode(), "topic": b"tallygate.decisions", "offset": b"4"}.items() <= dict(
        letter.headers() or []
    ).items()
    log.wait_for_log(recorder, "dead letter tallygate.decisions")

    log.send([("gw-1", blocks[4])])
    log.wait_for_all()
    assert 10 == log.decisions()
    assert 0 == log.conflicting()


def test_recorder_writes_grants_settlements_and_control_events(log: Recording) -> None:
    """The ledger and the completeness line are read from them. R11: an event of 500 refusals is 500, and one event."""
    copy = CopyIdentity("gw-1", 7)
    issued = GrantIssued("acct-1", "sustained", 3, Grant(START_US, 50, 4, START_US, START_US + 9), 12.0)
    totals = [
        GrantSettled("acct-1", "sustained", "gw-1/7", Settlement(START_US, spent, final, SettleCause.ASK), START_US)
        for spent, final in ((10, False), (30, True), (30, True))
    ]
    lost = DecisionsLost(copy_id="gw-1", epoch=7, at_us=START_US, first_seq=100, count=30, cause="spool full")
    log.send([("acct-1", encode_facts(copy, [issued], totals))] * 2, topic=GRANTS.name)
    log.send([("gw-1", encode_control(lost))], topic=CONTROL.name)
    shadowed = [("acct-1", 7, 500), ("acct-2", 7, 200), ("acct-2", 7, 500), ("acct-2", 8, 30)]
    for number, (caller, epoch, requests) in enumerate(shadowed):
        event = WouldRefuse(
            copy_id="gw-1",
            epoch=epoch,
            at_us=START_US + number,
            caller=caller,
            scope="/cards/{id}",
            limit="site",
            policy_version=3,
            requests=requests,
            cost=2 * requests,
        )
        log.send([("gw-1", encode_control(event))] * 2, topic=CONTROL.name)
    log.send([("gw-1", _block(0, 1))])
    log.start()
    log.wait_for_all()
    assert [("acct-1", START_US, 50, 4)] == log.rows("SELECT caller, grant_id, size_tokens, k FROM grants FINAL")
    assert [(30, 2)] == log.rows("SELECT max(spent_tokens), count() FROM settlements FINAL")
    ((kind, body),) = log.rows("SELECT kind, body FROM control FINAL WHERE kind != 'would_refuse'")
    assert ("decisions_lost", 30) == (kind, json.loads(str(body))["count"])
    assert [
        ("acct-1", "/cards/{id}", "site", 3, 500, 1_000, 1),
        ("acct-2", "/cards/{id}", "site", 3, 530, 1_060, 3),
    ] == log.rows(_WOULD_BE_REFUSALS, {"caller": ""})


def test_two_recorders_share_the_log_and_take_over_from_each_other(log: Recording) -> None:
    """Whoever joins or leaves, each message is recorded by somebody, and counted once."""
    fill = Fill(decisions=120_000, block=300, copies=16)
    later = replace(fill, epoch=2)
    first = log.start(flush_decisions="5000")
    send(log.bootstrap, fill)
    second = log.start(flush_decisions="5000")
    send(log.bootstrap, later)
    log.wait_for(fill.total)
    first.stop(timeout_s=60)
    log.wait_for(2 * fill.total)
    second.stop(timeout_s=60)
    assert (0, 0) == (first.exit_code(), second.exit_code())
    assert {cell: 2 * count for cell, count in fill.totals().by_cell.items()} == log.by_cell()
    assert 2 * fill.blocks == log.acknowledged()
