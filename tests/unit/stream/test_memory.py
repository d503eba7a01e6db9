"""From captured verdicts to sealed messages, without a broker: what `KafkaSink` ships, looked at from the log."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from enforcer.clock import ManualClock
from enforcer.sink import DegradeChanged
from enforcer.types import Verdict
from stream.buffer import OVERFLOW, UNENCODABLE
from stream.config import StreamConfig
from stream.contract import control
from stream.contract.block import DecisionBlock
from stream.contract.codec import NO_HASH, decode_block
from stream.contract.facts import decode_facts
from stream.contract.partition import grants_partition
from stream.contract.topics import CONTROL, DECISIONS, GRANTS
from stream.memory import MemorySink
from tests.verdicts import IDENTITY, basis, grant, settlement, verdict, verdicts


def sink(clock: ManualClock | None = None, **settings: Any) -> MemorySink:
    return MemorySink(StreamConfig(**settings), IDENTITY, clock=clock or ManualClock())


def blocks(shipped: MemorySink) -> list[DecisionBlock]:
    return [decode_block(letter.value) for letter in shipped.letters if letter.topic == DECISIONS.name]


def events(shipped: MemorySink) -> list[control.AnyControlEvent]:
    return [control.decode_control(letter.value) for letter in shipped.letters if letter.topic == CONTROL.name]


def capture(into: MemorySink, taken: Sequence[Verdict]) -> None:
    for one in taken:
        into.capture(one)


def seqs(found: list[DecisionBlock]) -> list[int]:
    return [seq for block in found for seq in range(block.first_seq, block.first_seq + block.count)]


def test_blocks_of_an_epoch_form_a_chain() -> None:
    """Cutting or altering the record breaks the chain."""
    shipped = sink()
    capture(shipped, verdicts(5_000))
    shipped.close(1.0)
    found = blocks(shipped)
    assert [2_000, 2_000, 1_000] == [block.count for block in found]
    assert [NO_HASH, *(block.block_hash for block in found[:-1])] == [block.prev_hash for block in found]


def test_messages_are_cloud_events_keyed_by_copy() -> None:
    """Any consumer can tell what a message is without reading it, and a copy's blocks stay in one partition."""
    shipped = sink()
    capture(shipped, verdicts(1))
    shipped.close(1.0)
    letter = next(letter for letter in shipped.letters if letter.topic == DECISIONS.name)
    assert (b"gw-017", None) == (letter.key, letter.partition)
    assert {
        "ce_specversion": b"1.0",
        "ce_id": b"d0",
        "ce_source": f"/tallygate/copies/gw-017/{IDENTITY.epoch}".encode(),
        "ce_type": b"tallygate.decisions.v1",
        "content-type": b"application/vnd.tallygate.block",
    } == dict(letter.headers)


def test_message_ids_are_unique_within_their_source() -> None:
    """CloudEvents: source and id together name one event."""
    shipped = sink()
    capture(shipped, verdicts(5_000))
    shipped.grant_issued(grant())
    shipped.close(1.0)
    ids = [dict(letter.headers)["ce_id"] for letter in shipped.letters]
    assert len(set(ids)) == len(ids)


def test_start_and_stop_are_told() -> None:
    """A copy that vanished without a stop is one that crashed."""
    clock = ManualClock()
    shipped = sink(clock)
    capture(shipped, verdicts(3))
    clock.advance(1.0)
    shipped.close(1.0)
    whose: dict[str, Any] = {"copy_id": IDENTITY.copy_id, "epoch": IDENTITY.epoch}
    assert [
        control.CopyStarted(**whose, at_us=1_750_000_000_000_000),
        control.CopyStopped(**whose, at_us=1_750_000_001_000_000, next_seq=3),
    ] == [event for event in events(shipped) if not isinstance(event, control.Anchor)]


def test_change_of_state_is_told_as_it_was() -> None:
    """A degraded minute is explained by it."""
    shipped = sink()
    shipped.degrade_changed(DegradeChanged("10.0.0.1:6379", True, "no answer in 50 ms", 1_750_000_000_000_001))
    shipped.tick()
    told = events(shipped)[-1]
    assert isinstance(told, control.DegradeChanged)
    assert ("10.0.0.1:6379", True, "no answer in 50 ms") == (told.owner, told.entered, told.cause)


def test_change_with_a_strange_cause_is_still_told() -> None:
    """A cause quotes an error of some library, which may hold anything."""
    shipped = sink()
    shipped.degrade_changed(DegradeChanged("a:1", False, "bad \udcff byte", 1))
    shipped.tick()
    told = events(shipped)[-1]
    assert isinstance(told, control.DegradeChanged)
    assert "bad \\udcff byte" == told.cause


def test_memory_is_bounded_and_what_is_missing_is_named_once() -> None:
    """R9: bound 100, 130 decisions, broker down: 100 counted and one loss record, seq 100 to 129."""
    shipped = sink(max_held=100)
    shipped.is_away = True
    for first_seq in range(0, 130, 10):
        capture(shipped, verdicts(10, first_seq=first_seq))
        shipped.tick()
    shipped.is_away = False
    shipped.tick()
    shipped.close(1.0)
    lost = [event for event in events(shipped) if isinstance(event, control.DecisionsLost)]
    assert [(100, 30, OVERFLOW)] == [(event.first_seq, event.count, event.cause) for event in lost]
    assert list(range(100)) == seqs(blocks(shipped))


def test_sealed_bytes_are_bounded_too() -> None:
    """Long names must not fill the memory of a gateway."""
    shipped = sink(max_held_bytes=1_000_000, block_decisions=10)
    shipped.is_away = True
    for seq in range(400):
        shipped.capture(verdict(seq, on=basis("x" * 9_000 + str(seq))))
        if seq % 10 == 9:
            shipped.tick()
    assert shipped.shipper.outbox.bytes < 1_200_000
    assert shipped.shipper.lost > 200


def test_only_the_decision_that_does_not_fit_is_lost() -> None:
    """One odd value must not take two thousand others with it."""
    taken = verdicts(1_000)
    taken[137] = verdict(137, cost=2**40)
    taken[600] = verdict(600, on=basis("\ud800"))
    taken[601] = msgspec.structs.replace(taken[601], at_ns=None)  # no integer at all
    shipped = sink()
    capture(shipped, taken)
    shipped.close(1.0)
    lost = [(e.first_seq, e.count, e.cause) for e in events(shipped) if isinstance(e, control.DecisionsLost)]
    assert [(137, 1, UNENCODABLE), (600, 2, UNENCODABLE)] == lost
    assert [seq for seq in range(1_000) if seq not in {137, 600, 601}] == seqs(blocks(shipped))


def test_message_never_grows_past_its_limit() -> None:
    """A broker refuses a longer one for ever, and its decisions would be lost."""
    shipped = sink(max_message_bytes=20_000)
    capture(shipped, [verdict(seq, on=basis(f"{seq}" * 300)) for seq in range(300)])
    for number in range(500):
        shipped.grant_issued(grant("y" * 200 + str(number)))
    shipped.close(1.0)
    assert max(len(letter.value) for letter in shipped.letters) <= 20_000
    assert list(range(300)) == seqs(blocks(shipped))
    facts = [decode_facts(letter.value) for letter in shipped.letters if letter.topic == GRANTS.name]
    assert 500 == sum(len(block.grants) for block in facts)


def test_facts_go_to_the_partition_of_their_caller() -> None:
    """All facts of a caller stand in one partition, whichever copy states them."""
    shipped = sink()
    for number in range(50):
        shipped.grant_issued(grant(f"acct-{number}"))
        shipped.grant_settled(settlement(f"acct-{number}"))
    shipped.close(1.0)
    found = [
        (letter.partition, decode_facts(letter.value)) for letter in shipped.letters if letter.topic == GRANTS.name
    ]
    assert 50 == sum(len(block.grants) for _, block in found)
    assert 50 == sum(len(block.settlements) for _, block in found)
    for partition, block in found:
        callers = [fact.caller for fact in block.grants] + [fact.caller for fact in block.settlements]
        assert {partition} == {grants_partition(caller, 4) for caller in callers}


def test_lost_facts_are_counted_and_told() -> None:
    """A ledger that does not add up must say why."""
    shipped = sink()
    shipped.grant_issued(grant("\ud800"))
    shipped.grant_issued(grant("acct-1"))
    shipped.close(1.0)
    assert [1] == [event.total for event in events(shipped) if isinstance(event, control.FactsLost)]
    assert (1, 1) == (shipped.shipper.facts_delivered, shipped.shipper.facts_lost)


@pytest.mark.parametrize("decisions", [0, 1])
def test_heartbeats_do_not_pile_up_while_the_broker_is_away(decisions: int) -> None:
    """An outage of a day must not fill the memory with nothing."""
    clock = ManualClock()
    shipped = sink(clock)
    shipped.is_away = True
    capture(shipped, verdicts(decisions))
    for _ in range(100):
        clock.advance(6.0)
        shipped.tick()
    shipped.is_away = False
    shipped.tick()
    assert decisions == len(blocks(shipped))
    clock.advance(6.0)
    shipped.tick()
    assert [0] == [block.count for block in blocks(shipped)[decisions:]], "and it is heard of again afterwards"


def test_lost_facts_are_told_in_one_message_while_the_broker_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """It states a total; said twenty times a second for a day it would leave no memory for decisions."""
    monkeypatch.setattr("stream.shipper.MAX_FACTS", 10)
    clock = ManualClock()
    shipped = sink(clock)
    shipped.is_away = True
    capture(shipped, verdicts(1))
    for _ in range(100):
        for _ in range(30):
            shipped.grant_issued(grant("acct-1"))
        clock.advance(0.05)
        shipped.tick()
    waiting = len(shipped.shipper.outbox)
    assert waiting < 100
    shipped.is_away = False
    shipped.close(1.0)
    told = [event.total for event in events(shipped) if isinstance(event, control.FactsLost)]
    assert shipped.shipper.facts_lost == told[-1] > 0
    assert len(told) <= 3


def test_wall_time_of_a_decision_follows_the_clock_at_sealing() -> None:
    """Decisions carry the monotonic clock only; the block dates them."""
    clock = ManualClock(monotonic_ns=5_000_000_000, unix_us=1_750_000_000_000_000)
    shipped = sink(clock)
    shipped.capture(verdict(0, at_ns=4_200_000_000))
    shipped.close(1.0)
    assert [1_749_999_999_200_000] == blocks(shipped)[0].at_us.tolist()


def test_close_while_the_broker_is_away_counts_what_is_left() -> None:
    """The owner of the process learns that the last decisions are not recorded."""
    shipped = sink()
    shipped.is_away = True
    capture(shipped, verdicts(7))
    shipped.close(1.0)
    shipped.close(1.0)
    assert (7, 7, 0) == (shipped.shipper.taken, shipped.shipper.lost, shipped.shipper.queued)
