"""Repetitions and contradictions: the first in the log is the record, in whatever cuts and however often it is read."""

from __future__ import annotations

from collections.abc import Sequence

from aggregator.core.record.batches import PlacedBlock
from aggregator.core.record.repeats import SeenEnds, block_span_of, judge, slice_of
from tests.recordblocks import MIDNIGHT_US, Made, at, make_block


def _costs(parts: Sequence[PlacedBlock]) -> list[list[int]]:
    return [part.block.cost.tolist() for part in parts]


THREE = [Made(cost=1), Made(cost=2), Made(cost=3)]


def test_judge_takes_a_block_that_nothing_overlaps() -> None:
    """Also one that fills a gap."""
    before, after = make_block(THREE), make_block(THREE, first_seq=6)
    gap = at(make_block(THREE, first_seq=3), 9)
    judged = judge(gap, [block_span_of(at(before, 1)), block_span_of(at(after, 2))])
    assert judged.new[0] is gap
    assert () == judged.conflicting


def test_judge_finds_a_block_that_was_sent_twice() -> None:
    """A producer's retry is no second decision, and no conflict."""
    block = make_block(THREE)
    judged = judge(at(block, 2), [block_span_of(at(block, 1))])
    assert ((), ()) == (judged.new, judged.conflicting)


def test_judge_sets_apart_what_contradicts_the_record() -> None:
    """The same identity with another time: one decision is recorded, the other is shown as a conflict."""
    other = at(make_block([Made(at_us=MIDNIGHT_US + 99), *THREE], first_seq=2), 2)
    judged = judge(other, [block_span_of(at(make_block(THREE), 1))])
    assert [(2, 1)] == [(part.block.first_seq, part.block.count) for part in judged.conflicting]
    assert [(3, 3)] == [(part.block.first_seq, part.block.count) for part in judged.new]
    assert [MIDNIGHT_US + 99] == judged.conflicting[0].block.at_us.tolist()
    assert [1, 2, 3] == judged.new[0].block.cost.tolist()


def test_judge_finds_what_is_new_on_both_sides() -> None:
    """A block may begin before and end after what is recorded."""
    judged = judge(at(make_block([Made()] * 9), 5), [block_span_of(at(make_block(THREE, first_seq=3), 1))])
    assert [(0, 3), (6, 3)] == [(part.block.first_seq, part.block.count) for part in judged.new]
    assert [(3, 3)] == [(part.block.first_seq, part.block.count) for part in judged.conflicting]


def test_judge_is_the_same_on_a_replay() -> None:
    """A replay finds the later block recorded already, and must still prefer the earlier."""
    first, second = at(make_block(THREE), 1), at(make_block([Made(cost=8)] * 3), 2)
    recorded = [block_span_of(first), block_span_of(second)]
    earlier, later = judge(first, recorded), judge(second, recorded)
    assert ([[1, 2, 3]], []) == (_costs(earlier.new), _costs(earlier.conflicting)), "the first stays the record"
    assert ([], [[8, 8, 8]]) == (_costs(later.new), _costs(later.conflicting))


def test_slice_of_keeps_numbers_and_bases() -> None:
    """A part of a block says the same of its decisions as the whole."""
    part = slice_of(at(make_block(THREE, first_seq=10), 1), 1, 3).block
    assert (11, 2, [2, 3], [1, 2]) == (part.first_seq, part.count, part.cost.tolist(), part.basis.tolist())


def test_seen_ends_let_only_what_goes_on_pass_unasked() -> None:
    """Every other block is looked up."""
    ends = SeenEnds()
    first, second = at(make_block(THREE), 1), at(make_block(THREE, first_seq=3), 2)
    assert {("gw-1", 7)} == ends.unknown([first, second])
    ends.learn("gw-1", 7, 0)
    assert set() == ends.unknown([first])
    assert [True, True, False] == [ends.goes_on(first), ends.goes_on(second), ends.goes_on(first)]


def test_seen_ends_keep_epochs_apart_whose_joined_names_are_equal() -> None:
    """An identity is never a joined string."""
    ends = SeenEnds()
    one, other = at(make_block(THREE, copy_id="a-b"), 1), at(make_block(THREE, copy_id="a"), 2)
    for copy_id in ("a-b", "a"):
        ends.learn(copy_id, 7, 0)
    assert [True, True] == [ends.goes_on(one), ends.goes_on(other)]


def test_seen_ends_are_bounded() -> None:
    """Copies that come and go must not fill the memory; what is forgotten is asked again."""
    ends = SeenEnds(most=2)
    for copy_id in ("a", "b", "c"):
        ends.learn(copy_id, 1, 5)
    assert {("a", 1)} == ends.unknown([at(make_block(THREE, copy_id="a", epoch=1), 0)])


def test_seen_ends_let_nothing_pass_of_which_they_know_nothing() -> None:
    """More copies in one flush than they hold: what was forgotten on the way must be looked up, not taken for new."""
    ends = SeenEnds(most=2)
    for copy_id in ("a", "b", "c"):
        ends.learn(copy_id, 1, 5)
    forgotten = at(make_block(THREE, copy_id="a", epoch=1), 0)
    assert not ends.goes_on(forgotten)
