"""What a copy may seal when, and what it names as lost."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import Any

import pytest

from enforcer.types import Verdict
from stream.buffer import HOLE, OVERFLOW, BufferLimits, DecisionBuffer, Loss, take_head
from tests.verdicts import verdict, verdicts

LIMITS = BufferLimits(block_decisions=10, flush_s=1.0, heartbeat_s=5.0, hold_back_s=2.0, max_held=100)


def cut_seqs(buffer: DecisionBuffer, now_s: float, *, everything: bool = False) -> list[list[int]]:
    return [[v.seq for v in run.verdicts] for run in buffer.cut(now_s=now_s, everything=everything)]


def test_full_block_is_cut_at_once() -> None:
    """A busy copy must not wait for the clock."""
    buffer = DecisionBuffer(LIMITS, now_s=0.0)
    buffer.add(verdicts(25), now_s=0.0)
    assert [list(range(10)), list(range(10, 20))] == cut_seqs(buffer, 0.0)
    assert [] == cut_seqs(buffer, 0.5)
    assert [list(range(20, 25))] == cut_seqs(buffer, 1.0)


def test_part_filled_block_is_cut_after_the_flush_time_of_its_oldest() -> None:
    """The page is fresh in seconds also for a slow copy, however late the next decision comes."""
    buffer = DecisionBuffer(LIMITS, now_s=0.0)
    buffer.add([verdict(0)], now_s=3.0)
    buffer.add([verdict(1)], now_s=3.9)
    assert [] == cut_seqs(buffer, 3.9)
    assert [[0, 1]] == cut_seqs(buffer, 4.0)


def test_idle_copy_says_how_far_its_record_is_complete() -> None:
    """Without heartbeats nobody could tell an idle copy from a lost one."""
    buffer = DecisionBuffer(LIMITS, now_s=0.0)
    buffer.add(verdicts(3), now_s=0.0)
    assert [[0, 1, 2]] == cut_seqs(buffer, 1.0)
    assert [] == cut_seqs(buffer, 5.9)
    assert [(3, [])] == [(run.first_seq, run.verdicts) for run in buffer.cut(now_s=6.0)]
    assert [] == cut_seqs(buffer, 6.1)
    assert [] == buffer.cut(now_s=60.0, heartbeat=False)


def test_overtaken_decision_is_waited_for() -> None:
    """Threads append slightly out of order; that is no loss."""
    buffer = DecisionBuffer(LIMITS, now_s=0.0)
    buffer.add([verdict(0), verdict(2), verdict(3)], now_s=0.0)
    assert [[0]] == cut_seqs(buffer, 1.5)
    buffer.add([verdict(4), verdict(1)], now_s=1.6)
    assert [[1, 2, 3, 4]] == cut_seqs(buffer, 2.6)
    assert [] == buffer.take_losses()


def test_hole_that_stays_open_is_named_and_passed() -> None:
    """One decision that never came must not hold back the record for ever."""
    buffer = DecisionBuffer(LIMITS, now_s=0.0)
    buffer.add([verdict(0), verdict(3), verdict(5)], now_s=0.0)
    buffer.add([], now_s=1.9)
    assert [] == buffer.take_losses()
    buffer.add([], now_s=2.0)
    assert [Loss(1, 2, HOLE), Loss(4, 1, HOLE)] == buffer.take_losses()
    assert [[0], [3], [5]] == cut_seqs(buffer, 3.0)
    assert 3 == buffer.lost


def test_decision_after_its_loss_was_named_is_dropped() -> None:
    """The record has said that it is missing; saying both would count it twice."""
    buffer = DecisionBuffer(LIMITS, now_s=0.0)
    buffer.add([verdict(1)], now_s=0.0)
    buffer.add([], now_s=2.0)
    buffer.add([verdict(0)], now_s=2.1)
    assert (1, 1) == (buffer.late, buffer.lost)
    assert [[1]] == cut_seqs(buffer, 9.0)


def test_decision_that_came_twice_counts_once() -> None:
    """Also while it waits beyond a hole."""
    buffer = DecisionBuffer(LIMITS, now_s=0.0)
    buffer.add([verdict(0), verdict(0), verdict(2), verdict(2)], now_s=0.0)
    assert (2, 2) == (buffer.held, buffer.late)
    buffer.add([verdict(1)], now_s=0.1)
    assert [[0, 1, 2]] == cut_seqs(buffer, 1.5)


def test_decisions_beyond_the_bound_are_one_exact_loss() -> None:
    """R9: bound 100, 130 decisions, broker down: 100 are kept and one record names the other thirty."""
    buffer = DecisionBuffer(LIMITS, now_s=0.0)
    for first_seq in range(0, 130, 13):
        buffer.add(verdicts(13, first_seq=first_seq), now_s=0.0)
    assert [Loss(100, 30, OVERFLOW)] == buffer.take_losses()
    assert 100 == buffer.held
    assert list(range(100)) == [seq for run in cut_seqs(buffer, 1.0) for seq in run]


def test_decisions_at_the_broker_count_towards_the_bound() -> None:
    """The bound is on memory, wherever the decision waits."""
    buffer = DecisionBuffer(LIMITS, now_s=0.0)
    buffer.add(verdicts(10), now_s=0.0, held_elsewhere=95)
    assert [Loss(5, 5, OVERFLOW)] == buffer.take_losses()


def test_record_goes_on_after_a_loss() -> None:
    """When the broker is back, what comes next is kept, in a block of its own."""
    buffer = DecisionBuffer(LIMITS, now_s=0.0)
    buffer.add(verdicts(4), now_s=0.0)
    buffer.add(verdicts(4, first_seq=4), now_s=0.0, held_elsewhere=200)
    buffer.add(verdicts(4, first_seq=8), now_s=0.0)
    assert [[0, 1, 2, 3], [8, 9, 10, 11]] == cut_seqs(buffer, 1.0)


def test_open_hole_cannot_grow_without_bound() -> None:
    """A lost decision under heavy load must not fill the memory during the hold-back."""
    buffer = DecisionBuffer(LIMITS, now_s=0.0)
    buffer.add(verdicts(150, first_seq=1), now_s=0.0)
    assert 100 == buffer.held
    assert [Loss(0, 1, HOLE), Loss(101, 50, OVERFLOW)] == buffer.take_losses()


def test_everything_is_cut_at_the_end() -> None:
    """A copy that stops leaves nothing behind, not even what stood beyond a hole."""
    buffer = DecisionBuffer(LIMITS, now_s=0.0)
    buffer.add([verdict(0), verdict(2)], now_s=0.0)
    assert [[0], [2]] == cut_seqs(buffer, 0.0, everything=True)
    assert [Loss(1, 1, HOLE)] == buffer.take_losses()
    assert 3 == buffer.next_seq


def test_head_is_taken_whole_while_threads_append() -> None:
    """The request path takes no lock: nothing may be lost or doubled between the two statements of the taking."""
    captured: list[Verdict] = []
    made = [verdicts(4_000, first_seq=number * 4_000) for number in range(4)]

    def append(mine: list[Verdict]) -> None:
        for one in mine:
            captured.append(one)  # noqa: PERF402  # one by one is what the request path does

    threads = [threading.Thread(target=append, args=(mine,)) for mine in made]
    for thread in threads:
        thread.start()
    taken: list[Verdict] = []
    while any(thread.is_alive() for thread in threads) or captured:
        taken += take_head(captured)
    assert list(range(16_000)) == sorted(one.seq for one in taken)


class CountedList(list[Verdict]):
    """Verdicts that count how many of them were copied out of it, and of the lists that were cut from it."""

    copied = 0

    def __getitem__(self, place: Any) -> Any:
        found = super().__getitem__(place)
        if not isinstance(place, slice):
            return found
        CountedList.copied += len(found)
        return CountedList(found)


def test_long_backlog_is_cut_in_linear_work() -> None:
    """After a long stall the copy must ship its backlog, not move it about once per block."""
    count = 5_000
    buffer = DecisionBuffer(replace(LIMITS, max_held=count), now_s=0.0)
    CountedList.copied = 0
    buffer.add(CountedList(verdicts(count)), now_s=0.0)
    runs = buffer.cut(now_s=0.0)
    assert count // 10 == len(runs)
    assert CountedList.copied <= 2 * count


def test_run_that_grows_past_a_block_begins_another() -> None:
    """Also when it comes in pieces that fit no block."""
    buffer = DecisionBuffer(LIMITS, now_s=0.0)
    for first_seq in range(0, 28, 7):
        buffer.add(verdicts(7, first_seq=first_seq), now_s=0.0)
    assert [list(range(10)), list(range(10, 20))] == cut_seqs(buffer, 0.0)
    assert [list(range(20, 28))] == cut_seqs(buffer, 1.0)


def test_many_holes_are_given_up_in_linear_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """When every other decision is missing, the rest must not be sorted through once per hole."""
    looked_at = 0
    split = DecisionBuffer._split

    def counting(self: DecisionBuffer, batch: list[Verdict]) -> tuple[list[Verdict], list[Verdict]]:
        nonlocal looked_at
        looked_at += len(batch)
        return split(self, batch)

    monkeypatch.setattr(DecisionBuffer, "_split", counting)
    buffer = DecisionBuffer(replace(LIMITS, max_held=2_000), now_s=0.0)
    buffer.add([verdict(seq) for seq in range(1, 2_001, 2)], now_s=0.0)
    assert 1_000 == len(buffer.cut(now_s=0.0, everything=True))
    assert [Loss(seq, 1, HOLE) for seq in range(0, 2_000, 2)] == buffer.take_losses()
    assert looked_at <= 2_000
