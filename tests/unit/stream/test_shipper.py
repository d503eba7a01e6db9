"""What a shipper counts when a round of it fails: each decision once, whichever way it went."""

from __future__ import annotations

import pytest

from stream.buffer import DROPPED, UNACKNOWLEDGED, UNENCODABLE, UNSENT, Loss, Run
from stream.config import StreamConfig
from stream.contract.control import DecisionsLost, decode_control
from stream.contract.topics import CONTROL
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


def named(shipper: Shipper) -> list[Loss]:
    """The losses that messages in the outbox name."""
    events = [decode_control(letter.value) for _, letter in shipper.outbox if letter.topic == CONTROL.name]
    return [Loss(e.first_seq, e.count, e.cause) for e in events if isinstance(e, DecisionsLost)]


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
