"""What was erased stays out of the record, and nothing else does."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aggregator.core.record.batches import Gathered, decision_batches
from aggregator.core.record.erased import (
    Erased,
    ErasedPart,
    Erasure,
    callers_in,
    erased_batches,
    ranges_of,
    who_hash,
)
from aggregator.core.record.facts import PlacedControl, PlacedFacts
from aggregator.core.record.repeats import slice_of
from aggregator.core.record.terms import terms_shown
from enforcer.identity import CopyIdentity
from enforcer.messages import SettleCause, Settlement
from enforcer.sink import CostChanged, GrantIssued, GrantSettled
from enforcer.types import Grant
from stream.contract.block import OtherCharge
from stream.contract.facts import decode_facts, encode_facts
from tests.recordblocks import MIDNIGHT_US, Made, at, make_block

SALT = b"0123456789abcdef"


def _erasure(caller: str, before_us: int, number: int = 1) -> Erasure:
    return Erasure(number, before_us, SALT, who_hash(SALT, caller))


def test_hash_says_nothing_without_its_salt_and_the_same_with_it() -> None:
    """Support can answer "was X erased?"; the record alone cannot say who was."""
    one = _erasure("acct-1", 10)
    assert one.is_of("acct-1")
    assert not one.is_of("acct-2")
    assert one.who_hash != who_hash(b"f" * 16, "acct-1")
    assert b"acct-1" not in repr(one).encode()


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 9)), min_size=1, max_size=40), st.integers(0, 9))
def test_sift_takes_exactly_what_was_erased_and_keeps_every_number(made: list[tuple[str, int]], before: int) -> None:
    """A decision too many is a broken promise, one too few a hole; a number moved is another decision."""
    block = make_block([Made(caller, at_us=MIDNIGHT_US + when, cost=n) for n, (caller, when) in enumerate(made)],
                       first_seq=40)  # fmt: skip
    placed = at(block, 5, partition=2)
    kept, parts = Erased([_erasure("b", MIDNIGHT_US + before, 77)]).sift([placed])
    gone = {40 + n for n, (caller, when) in enumerate(made) if caller == "b" and when < before}
    rows = {row["seq"]: row for batch in decision_batches(kept) for row in batch.rows.to_pylist()}
    whole = {row["seq"]: row for batch in decision_batches([placed]) for row in batch.rows.to_pylist()}
    assert {seq: row for seq, row in whole.items() if seq not in gone} == rows
    assert [("gw-1", 7, 2, 5, 77)] * bool(gone) == [
        (part.copy_id, part.epoch, part.log_partition, part.log_offset, part.erasure_id) for part in parts
    ]
    assert gone == {int(seq) for part in parts for seq in part.seqs}


def test_sift_hands_back_the_same_blocks_where_nobody_was_erased() -> None:
    """Nearly always: it must cost nothing."""
    placed = [at(make_block([Made()]), 1)]
    kept, parts = Erased().sift(placed)
    assert kept[0] is placed[0]
    assert [] == parts
    kept, parts = Erased([_erasure("other", MIDNIGHT_US * 2)]).sift(placed)
    assert kept[0] is placed[0]


@pytest.mark.parametrize("first", [0, 1, 3])
def test_sift_leaves_no_name_in_what_a_block_says_of_itself(first: int) -> None:
    """Terms are read from a block's dictionary and kept for good, also where its other part was recorded before."""
    made = [Made(name, MIDNIGHT_US + n, limit="rate", grant_id=n) for n, name in enumerate("babacb")]
    whole = make_block(made, first_seq=10)
    also = [OtherCharge(number, f"org-{number}", "rate", number) for number in range(len(made))]
    placed = slice_of(at(replace(whole, bases=replace(whole.bases, also=also)), 5), first, len(made))
    kept, _ = Erased([_erasure("b", MIDNIGHT_US + 2)]).sift([placed])
    rows = [row for batch in decision_batches(kept) for row in batch.rows.to_pylist()]
    stay = [row for batch in decision_batches([placed]) for row in batch.rows.to_pylist() if row["seq"] != 10]
    assert stay == rows
    assert {"a", "b", "c"} == {name for one in terms_shown(Gathered(kept)).values() for name in one.callers}

    kept, _ = Erased([_erasure("b", MIDNIGHT_US + 9)]).sift([placed])
    assert {"a", "c"} == {name for one in terms_shown(Gathered(kept)).values() for name in one.callers}
    assert {"a", "c"} == {name for one in kept for name in one.block.bases.callers}
    (part,) = Erased([_erasure("b", MIDNIGHT_US + 9)]).sift([slice_of(placed, 4 - first, 5 - first)])[0]
    assert ["c"] == part.block.bases.callers


def test_sift_puts_a_mark_in_place_of_a_name_whose_bucket_paid_for_others() -> None:
    """Read again from the log, a decision of somebody else must not bring the name back; nor lose its own charges."""
    whole = make_block([Made("a", MIDNIGHT_US + n, limit="rate", grant_id=n) for n in range(3)])
    also = [OtherCharge(number, name, "site", 9) for number in range(3) for name in ("b", "c")]
    placed = at(replace(whole, bases=replace(whole.bases, also=also)), 5)
    kept, parts = Erased([_erasure("b", MIDNIGHT_US + 2, 77)]).sift([placed])
    rows = [row for batch in decision_batches(kept) for row in batch.rows.to_pylist()]
    mark = "erased:000000000000004d"
    assert [[mark, "c"], [mark, "c"], ["b", "c"]] == [[one["subject"] for one in row["charges"]] for row in rows]
    assert [] == parts


def test_latest_of_several_erasures_of_a_caller_counts() -> None:
    """Who comes back, and is erased again, is erased up to the second time."""
    found = Erased([_erasure("a", 20, 1), _erasure("a", 30, 2), _erasure("b", 40, 3)]).of("a")
    assert found is not None
    assert (2, 30) == (found.erasure_id, found.erased_before_us)


def test_sift_facts_and_controls_leave_out_what_names_the_caller() -> None:
    """Grants, settlements, costs and control events would bring the name back as well."""
    identity = CopyIdentity("gw-1", 7)
    erased = Erased([_erasure("a", MIDNIGHT_US)])
    issued = [
        GrantIssued(name, "rate", 3, Grant(1, 5, 4, at_us, at_us + 9), 0.5)
        for name, at_us in (("a", MIDNIGHT_US - 1), ("b", MIDNIGHT_US - 1), ("a", MIDNIGHT_US))
    ]
    settled = [
        GrantSettled(name, "rate", "gw-1/7", Settlement(MIDNIGHT_US - 1, 2, True, SettleCause.IDLE), MIDNIGHT_US - 1)
        for name in ("a", "b")
    ]
    costs = [CostChanged(name, "/x", 1, 1, 0, MIDNIGHT_US - 1) for name in ("b", "a")]
    facts = decode_facts(encode_facts(identity, issued, settled, costs))
    (left,) = erased.sift_facts([PlacedFacts(facts, 0, 1)])
    assert [("b", MIDNIGHT_US - 1), ("a", MIDNIGHT_US)] == [
        (one.caller, one.grant.issued_at_us) for one in left.facts.grants
    ]
    assert ["b"] == [one.caller for one in left.facts.settlements] == [one.caller for one in left.facts.costs]

    event = PlacedControl("would_refuse", "gw-1", 7, MIDNIGHT_US - 1, '{"caller":"a"}', 0, 1)
    later = replace(event, at_us=MIDNIGHT_US)
    subject = replace(event, body='{"subject":"a","k":1}')
    other = replace(event, body='{"caller":"b"}')
    assert [later, other] == erased.sift_controls([event, later, subject, other])
    assert {""} == callers_in('{"caller":""}'), "a caller may be called that"
    assert set() == callers_in("no json") == callers_in('{"kind":"copy_started"}')


def test_sift_leaves_out_the_past_by_a_copys_clock_that_is_ahead() -> None:
    """A copy may be a year ahead: what it had sent before the erasure must not come back with the log."""
    identity = CopyIdentity("gw-1", 7)
    erased, ahead_us = Erased([_erasure("a", MIDNIGHT_US)]), MIDNIGHT_US * 2
    settled = [
        GrantSettled("a", "rate", "gw-1/7", Settlement(grant_id, 2, True, SettleCause.IDLE), ahead_us)
        for grant_id in (MIDNIGHT_US - 1, MIDNIGHT_US)
    ]
    facts = decode_facts(encode_facts(identity, [], settled, [CostChanged("a", "/x", 1, 1, 0, ahead_us)]))
    before, after = (PlacedFacts(facts, 0, 1, MIDNIGHT_US + when) for when in (-1, 0))
    gone, left = erased.sift_facts([before, after])
    assert ([], []) == (gone.facts.settlements, gone.facts.costs)
    assert (settled[1:], facts.costs) == (left.facts.settlements, left.facts.costs)

    events = [
        PlacedControl("would_refuse", "gw-1", 7, ahead_us, '{"caller":"a"}', 0, 1, appended_us)
        for appended_us in (MIDNIGHT_US - 1, MIDNIGHT_US, None)
    ]
    assert events[1:] == erased.sift_controls(events)


@given(st.sets(st.integers(0, 60) | st.integers(2**64 - 20, 2**64 - 1), min_size=1))
def test_ranges_say_each_number_once(numbers: set[int]) -> None:
    """What is written down of an erasure must be read back as what was erased."""
    firsts, counts = ranges_of(np.array(sorted(numbers), dtype=np.uint64))
    assert sorted(numbers) == [
        n for first, count in zip(firsts, counts, strict=True) for n in range(first, first + count)
    ]
    assert all(first + count < later for first, count, later in zip(firsts, counts, firsts[1:], strict=False))


def test_erased_batches_have_a_row_for_each_block() -> None:
    """Verifying asks block by block: rows left and rows erased must be what the block had."""
    (batch,) = erased_batches([ErasedPart("gw-1", 7, 2, 5, 9, np.array([3, 4, 8], dtype=np.uint64))])
    assert [
        {
            "copy_id": "gw-1", "epoch": 7, "first_seq": 3, "log_partition": 2, "log_offset": 5, "erasure_id": 9,
            "decisions": 3, "firsts": [3, 8], "counts": [2, 1],
        }
    ] == batch.rows.to_pylist()  # fmt: skip
    assert [] == erased_batches([])
