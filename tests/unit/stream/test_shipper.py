"""What a shipper counts when a round of it fails: each decision once, whichever way it went."""

from __future__ import annotations

from itertools import pairwise

import pytest
from msgspec import UNSET

from enforcer.messages import SettleCause, Settlement
from enforcer.sink import CostChanged, GrantSettled, OwnerClock
from stream.buffer import DROPPED, UNACKNOWLEDGED, UNENCODABLE, UNSENT, Loss, Run
from stream.config import StreamConfig
from stream.contract.codec import decode_block
from stream.contract.control import Anchor, AnyControlEvent, CopyStarted, CopyStopped, DecisionsLost, decode_control
from stream.contract.facts import decode_facts
from stream.contract.topics import CONTROL, DECISIONS
from stream.outbox import Letter
from stream.shipper import Shipper
from tests.verdicts import IDENTITY, verdict, verdicts


def shipper_of(count: int, *, block_decisions: int = 10) -> Shipper:
    """A shipper that has captured so many decisions."""
    shipper = Shipper(StreamConfig(block_decisions=block_decisions), IDENTITY, now_s=0.0, unix_us=10**15)
    shipper.captured += verdicts(count)
    return shipper


def step(shipper: Shipper, now_s: float, *, everything: bool = False) -> None:
    shipper.step(now_ns=int(now_s * 1e9), unix_us=2 * 10**15, partitions=4, everything=everything)


def control_events(shipper: Shipper) -> list[AnyControlEvent]:
    """The control events in the outbox."""
    return [decode_control(letter.value) for _, letter in shipper.outbox if letter.topic == CONTROL.name]


def named(shipper: Shipper) -> list[Loss]:
    """The losses that messages in the outbox name."""
    return [Loss(e.first_seq, e.count, e.cause) for e in control_events(shipper) if isinstance(e, DecisionsLost)]


def test_dropped_decisions_are_named_and_count_once_whatever_follows() -> None:
    """What comes after a drop must not make it a hole that is counted a second time."""
    shipper = shipper_of(5)
    assert 5 == shipper.drop_captured(now_s=0.0)
    shipper.captured += [verdict(5), verdict(6)]
    step(shipper, 0.1)
    step(shipper, 9.0)
    assert [Loss(0, 5, DROPPED)] == named(shipper)
    assert (7, 5, 2, 2) == (shipper.taken, shipper.lost, shipper.queued, shipper.outbox.decisions)


def test_block_that_cannot_be_sealed_is_named_and_takes_no_other_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fault of ours between the buffer and the outbox must neither lose decisions in silence nor stop the rest."""
    shipper = shipper_of(30)
    seal = shipper._sealer.seal

    def seal_but_one(run: Run, **times: int) -> tuple[list[Letter], list[Loss]]:
        if run.first_seq == 10:
            raise ZeroDivisionError
        return seal(run, **times)

    monkeypatch.setattr(shipper._sealer, "seal", seal_but_one)
    step(shipper, 0.0)
    assert [Loss(10, 10, UNENCODABLE)] == named(shipper)
    assert [0, 20] == [letter.first_seq for _, letter in shipper.outbox if letter.decisions]


def test_abandoned_decisions_are_named_by_what_may_have_become_of_them() -> None:
    """What a client had may be on the log; what it never had, or was never sealed, is certainly not."""
    shipper = shipper_of(30)
    step(shipper, 0.0)
    for number, letter in shipper.outbox.waiting(2):
        assert letter.first_seq == 0
        shipper.outbox.handed_over(number)
    shipper.captured += [verdict(30), verdict(33)]
    left = shipper.abandon(now_s=0.1)
    assert [(0, 10, UNACKNOWLEDGED), (10, 21, UNSENT)] == [(one.first_seq, one.count, one.cause) for one in left[:2]]
    assert (33, 1, UNSENT) == (left[-1].first_seq, left[-1].count, left[-1].cause)
    assert (34, 0) == (shipper.lost, shipper.queued)


def test_loss_whose_record_was_not_delivered_is_named_at_the_end() -> None:
    """A loss record that never left tells nobody."""
    shipper = shipper_of(5)
    shipper.drop_captured(now_s=0.0)
    step(shipper, 0.0)
    assert [Loss(0, 5, DROPPED)] == named(shipper) == shipper.abandon(now_s=0.0)


def test_every_block_says_the_owners_time_as_it_was_last_told() -> None:
    """R18: the readers put decisions of a copy whose clock is 400 days ahead where they belong, by this alone."""
    shipper = shipper_of(10)
    step(shipper, 0.0)
    shipper.take_event(OwnerClock("A", 5, 10**15))
    shipper.take_event(OwnerClock("A", -400 * 86_400_000_000, 10**15))
    shipper.captured += verdicts(10, first_seq=10)
    step(shipper, 0.1)
    shipper.take_event(OwnerClock("A", 2**60, 10**15))
    shipper.captured += verdicts(10, first_seq=20)
    step(shipper, 0.2)
    told = [decode_block(letter.value).owner_offset_us for _, letter in shipper.outbox if letter.decisions]
    assert [None, -400 * 86_400_000_000, -400 * 86_400_000_000] == told
    assert {CopyStarted} == {type(event) for event in control_events(shipper)}


def test_totals_of_a_block_hold_what_was_lost_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The record is held against what a copy counted by itself: whatever was lost must show as the difference."""
    shipper = Shipper(StreamConfig(block_decisions=10, max_held=15), IDENTITY, now_s=0.0, unix_us=10**15)
    shipper.captured += [verdict(seq, cost=2 + seq, code=seq // 18, retry_after_ms=seq // 18) for seq in range(20)]
    step(shipper, 0.0)
    for number, _ in shipper.outbox.waiting(100):
        shipper.outbox.remove(number)
    shipper.captured += verdicts(3, first_seq=20)
    step(shipper, 9.0)
    blocks = [decode_block(letter.value) for _, letter in shipper.outbox if letter.topic == DECISIONS.name]
    totals = [(b.first_seq, b.count, b.admitted_total, b.refused_total, b.cost_total) for b in blocks]
    paid = sum(range(2, 20))
    assert [(10, 5, 15, 0, sum(range(2, 17))), (20, 3, 21, 2, paid + 3)] == totals

    def fail(run: Run, **times: int) -> tuple[list[Letter], list[Loss]]:
        raise ZeroDivisionError

    with monkeypatch.context() as patched:
        patched.setattr(shipper._sealer, "seal", fail)
        shipper.captured += verdicts(4, first_seq=23)
        step(shipper, 18.0)
        step(shipper, 20.0)
    assert Loss(23, 4, UNENCODABLE) in named(shipper)
    shipper.captured += verdicts(1, first_seq=27)
    step(shipper, 27.0, everything=True)
    last = [decode_block(letter.value) for _, letter in shipper.outbox if letter.decisions][-1]
    assert (27, 26, 2, paid + 8) == (last.first_seq, last.admitted_total, last.refused_total, last.cost_total)


def test_the_end_of_the_chain_is_anchored_each_minute_while_it_grows_and_at_the_end() -> None:
    """R22: whoever cuts the last blocks off the record must meet a message on another topic that has seen them."""
    shipper = shipper_of(25)
    step(shipper, 0.0)
    step(shipper, 59.9)
    assert [] == anchors(shipper)
    step(shipper, 60.0)
    assert [ended(shipper)] == anchors(shipper)
    step(shipper, 60.1)
    assert 1 == len(anchors(shipper)), "nothing is new"
    shipper.captured += verdicts(3, first_seq=25)
    step(shipper, 100.0)
    step(shipper, 119.0)
    assert 1 == len(anchors(shipper)), "a minute has not passed"
    shipper.captured += verdicts(1, first_seq=28)
    step(shipper, 119.5, everything=True)
    assert ended(shipper) == anchors(shipper)[-1]
    kinds = [type(event) for event in control_events(shipper)]
    assert [CopyStarted, Anchor, Anchor, CopyStopped] == kinds


def test_control_events_say_the_owners_clock_as_blocks_do() -> None:
    """R18: with it the record puts an anchor beside the block that it names."""
    shipper = shipper_of(3)
    shipper.take_event(OwnerClock("owner:6379", -400 * 86_400_000_000, 0))
    step(shipper, 0.0, everything=True)
    said = {type(event): event.owner_offset_us for event in control_events(shipper)}
    known = -400 * 86_400_000_000
    assert {CopyStarted: UNSET, Anchor: known, CopyStopped: known} == said


def test_facts_are_stated_by_the_owners_clock_as_soon_as_it_is_known() -> None:
    """R18: they stand in the record beside grants, whose times are the owner's."""
    shipper = shipper_of(0)
    lent = Settlement(5, 1, True, SettleCause.ASK)
    for number, offset_us in enumerate((None, -7_000, -(10**16))):
        if offset_us is not None:
            shipper.take_event(OwnerClock("A", offset_us, 10**15))
        shipper.facts.append(GrantSettled("a", "rate", "gw-1/7", lent, 10**15))
        shipper.take_event(CostChanged("a", "/x", 1, 3, 0, 10**15))
        step(shipper, float(number), everything=True)
    facts = [decode_facts(letter.value) for _, letter in shipper.outbox if letter.facts]
    assert [10**15, 10**15 - 7_000, 10**15 - 7_000] == [one.settlements[0].at_us for one in facts]
    assert [10**15, 10**15 - 7_000, 10**15 - 7_000] == [one.costs[0].at_us for one in facts]


def test_a_copy_that_has_sealed_nothing_has_no_anchor() -> None:
    """There is no end of a chain that does not exist."""
    shipper = shipper_of(0)
    step(shipper, 0.0, everything=True)
    assert [] == anchors(shipper)


def anchors(shipper: Shipper) -> list[tuple[str, int, int]]:
    """Head, next seq and number of blocks of each anchor in the outbox."""
    return [(e.head, e.next_seq, e.blocks) for e in control_events(shipper) if isinstance(e, Anchor)]


def ended(shipper: Shipper) -> tuple[str, int, int]:
    """What an anchor says where the blocks in the outbox end now."""
    sealed = [decode_block(letter.value) for _, letter in shipper.outbox if letter.topic == DECISIONS.name]
    assert all(after.prev_hash == before.block_hash for before, after in pairwise(sealed))
    return sealed[-1].block_hash.hex(), sealed[-1].first_seq + sealed[-1].count, len(sealed)
