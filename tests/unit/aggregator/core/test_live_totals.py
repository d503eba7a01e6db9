from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from aggregator.core.live.arrow import rows_table
from aggregator.core.live.load import open_shard, put_copies, put_minutes
from aggregator.core.live.rows import cut
from aggregator.core.live.shard import Shard, ShardBounds, evict, is_outgrown
from aggregator.core.live.totals import Folded, NotLoaded, fold, missing
from enforcer.types import Reason, Source, outcome_code
from stream.contract.block import BlockPlan, DecisionBlock
from tests.live_blocks import FIRST_MINUTE, LARGE, STANDARD, Decision, SlowTotals, block
from tests.live_table import totals_of

REFUSED = outcome_code(Source.LOCAL, Reason.SPENT)


def _add(shard: Shard, one: DecisionBlock) -> Folded:
    minutes, copies = missing(shard, one)
    put_minutes(shard, minutes, usage=[], fleet=[], callers=[])
    put_copies(shard, copies, [])
    return fold(shard, one, shard.next_offset)


def _stored(shard: Shard) -> SlowTotals:
    return totals_of(rows_table([cut(shard)]).to_pylist())


def _plain(*blocks: DecisionBlock) -> SlowTotals:
    totals = SlowTotals()
    for one in blocks:
        totals.add(0, one)
    return totals


@pytest.fixture
def shard() -> Shard:
    return open_shard(0, "log", [])


def test_fold_counts_each_reason_and_source_in_its_column(shard: Shard) -> None:
    """A page that shows the wrong reason for a refusal sends support after the wrong cause."""
    codes = [outcome_code(source, reason) for source in Source for reason in Reason]
    one = block([Decision(code=code, cost=3) for code in codes])

    _add(shard, one)

    assert _stored(shard) == _plain(one)


def test_fold_counts_an_unknown_reason_as_offered_alone(shard: Shard) -> None:
    """A newer enforcer's reason must neither crash an older worker nor be taken for an admission."""
    one = block([Decision(code=15, cost=7), Decision(code=0)])

    _add(shard, one)

    row = _stored(shard).usage[0, FIRST_MINUTE, "acme", "GET /v1/items"]
    assert row == {"offered": 2, "admitted": 1, "cost_offered": 8, "cost_admitted": 1}


def test_fold_splits_a_block_at_the_minute(shard: Shard) -> None:
    """A block seals once a second, so one a minute lies over its end; each decision belongs to its own minute."""
    one = block([Decision(minute=FIRST_MINUTE + place % 3, code=REFUSED * (place % 2)) for place in range(20)])

    _add(shard, one)

    assert _stored(shard) == _plain(one)
    assert sorted(shard.minutes) == [FIRST_MINUTE, FIRST_MINUTE + 1, FIRST_MINUTE + 2]


def test_fold_adds_bases_of_one_cell_together(shard: Shard) -> None:
    """One caller and scope has many bases in a block, one a grant: none may overwrite the other."""
    one = block([Decision(grant_id=place % 5, cost=place) for place in range(50)])

    _add(shard, one)

    assert _stored(shard) == _plain(one)


def test_fold_keeps_names_apart_that_joined_would_be_equal(shard: Shard) -> None:
    """Identities are never joined strings: ("a", "b c") and ("a b", "c") are two cells, two copies."""
    first = block([Decision(caller="a", scope="b c")], copy_id="a-b", epoch=3)
    second = block([Decision(caller="a b", scope="c")], copy_id="a", epoch=33)

    _add(shard, first)
    _add(shard, second)

    assert _stored(shard) == _plain(first, second)


def test_fold_counts_distinct_copies_and_the_largest_k(shard: Shard) -> None:
    """k is the number that support reads out: the 65th copy of a partition must not fall out of the word of bits."""
    blocks = [block([Decision(k=number % 90)], copy_id=f"gw-{number}") for number in range(150)]

    for one in [*blocks, *(replace(one, first_seq=1) for one in blocks)]:
        _add(shard, one)

    totals = _stored(shard)
    assert totals.copies[0, FIRST_MINUTE, "acme"] == {f"gw-{number}" for number in range(150)}
    assert totals.k[0, FIRST_MINUTE, "acme"] == 89


def test_fold_leaves_out_a_block_sent_twice(shard: Shard) -> None:
    """A producer that did not hear the answer sends again: [PostHog#17211] counted both."""
    one = block([Decision(), Decision(code=REFUSED)])

    first, second = _add(shard, one), _add(shard, one)

    assert (first, second) == (Folded(2, 0, 0), Folded(0, 2, 0))
    assert _stored(shard) == _plain(one)


def test_fold_counts_only_the_new_tail_of_an_overlapping_block(shard: Shard) -> None:
    """A copy that cut its blocks anew after a failure re-sends some decisions together with new ones."""
    decisions = [Decision(caller=f"c{place}", minute=FIRST_MINUTE + place // 6) for place in range(10)]

    _add(shard, block(decisions[:7]))
    folded = _add(shard, block(decisions[4:], first_seq=4))

    assert folded == Folded(3, 3, 0)
    assert _stored(shard) == _plain(block(decisions))


def test_fold_counts_a_gap_and_goes_on_behind_it(shard: Shard) -> None:
    """Lost decisions are a number on the page, not a stopped worker; what fills the gap later is for the raw record."""
    _add(shard, block([Decision()]))

    jumped = _add(shard, block([Decision()], first_seq=11))
    late = _add(shard, block([Decision()] * 3, first_seq=4))

    assert (jumped, late) == (Folded(1, 0, 10), Folded(0, 3, 0))
    assert shard.copies["gw-1", 1].next_seq == 12


def test_fold_takes_a_new_epoch_from_its_own_beginning(shard: Shard) -> None:
    """A restarted copy numbers from 0 again under a new epoch; it is not a duplicate of its former life."""
    blocks = [block([Decision()] * 5, epoch=1), block([Decision()] * 5, epoch=2)]

    for one in blocks:
        _add(shard, one)

    assert _stored(shard) == _plain(*blocks)


def test_fold_notes_how_far_an_empty_block_says_the_copy_is_complete(shard: Shard) -> None:
    """The heartbeat of a quiet copy is what "data until 12:03:20" is read from."""
    _add(shard, block([Decision()] * 5))
    folded = _add(shard, block([], first_seq=5, sealed_at_us=1_700_000_999_000_000))

    rows = [row for row in rows_table([cut(shard)]).to_pylist() if row["kind"] == "copy"]
    assert folded == Folded(0, 0, 0)
    assert [(row["next_seq"], row["sealed_at"].timestamp()) for row in rows] == [(5, 1_700_000_999.0)]


@pytest.mark.parametrize("at_us", [-(2**40), 2**53 - 1])
def test_fold_counts_an_impossible_time_at_the_edge(shard: Shard, at_us: int) -> None:
    """A copy with a mad clock must not stop the partition of all the others."""
    one = block([Decision()])
    mad = replace(one, at_us=np.array([at_us], np.int64))

    _add(shard, mad)

    assert sum(row["offered"] for row in _stored(shard).usage.values()) == 1


def test_fold_refuses_an_offset_that_is_not_the_next(shard: Shard) -> None:
    """Taking exactly the next offset is what makes the totals a function of the log's prefix."""
    one = block([Decision()])
    _add(shard, one)

    with pytest.raises(ValueError, match="offset is 0; allowed: 1"):
        fold(shard, one, 0)


def test_fold_refuses_what_is_not_loaded_and_changes_nothing(shard: Shard) -> None:
    """Adding to a minute that was not read back first would write a smaller total over a larger one."""
    with pytest.raises(NotLoaded):
        fold(shard, block([Decision()]), 0)

    assert (shard.next_offset, shard.changed_rows, shard.rows) == (0, 0, 0)


def test_missing_names_only_what_is_not_in_memory(shard: Shard) -> None:
    """Reading a minute again while it holds unwritten changes would lose them."""
    _add(shard, block([Decision()]))

    assert missing(shard, block([Decision(), Decision(minute=FIRST_MINUTE + 4)], first_seq=1)) == (
        [FIRST_MINUTE + 4],
        [],
    )
    assert missing(shard, block([Decision()], copy_id="gw-2")) == ([], [("gw-2", 1)])


def test_cut_holds_only_what_changed_since_the_last(shard: Shard) -> None:
    """At 200,000 decisions a second the unchanged cells are most of a minute; writing them again costs the database."""
    _add(shard, block([Decision(caller="a"), Decision(caller="b")]))
    cut(shard)
    _add(shard, block([Decision(caller="b")], first_seq=2))

    rows = rows_table([cut(shard)]).to_pylist()

    assert [row["caller"] for row in rows if row["kind"] == "usage"] == ["b"]
    assert [row["offered"] for row in rows if row["kind"] == "usage"] == [2]
    assert [row["caller"] for row in rows if row["kind"] == "caller"] == []
    assert {row["version"] for row in rows} == {2}


def test_changed_rows_is_never_less_than_what_a_cut_holds(shard: Shard) -> None:
    """The bound on one INSERT hangs on this number: a cut larger than it says could not be written in one part."""
    for place in range(30):
        decisions = [Decision(caller=f"c{(place * 7 + n) % 40}", plan=LARGE, code=n % 3, k=place) for n in range(20)]
        _add(shard, block(decisions, copy_id=f"gw-{place % 4}", first_seq=20 * (place // 4)))
        if place % 6 == 5:
            promised = shard.changed_rows
            assert cut(shard).rows - 1 <= promised
            assert shard.changed_rows == 0


def test_fold_shows_the_plan_seen_last(shard: Shard) -> None:
    """After a change of plan the page draws the new limit's line."""
    _add(shard, block([Decision(plan=STANDARD)]))
    cut(shard)
    _add(shard, block([Decision(plan=LARGE)], first_seq=1))

    (row,) = [row for row in rows_table([cut(shard)]).to_pylist() if row["kind"] == "caller"]
    assert (row["plan"], row["rate_per_s"], row["burst"]) == ("large", 1000.0, 2000)


def test_fold_never_takes_a_further_limit_for_the_callers_plan(shard: Shard) -> None:
    """The figures of a quota, shown as what was sold, are told to the customer: in a letter by support, too."""

    def plans() -> list[tuple[str, float, int]]:
        rows = [row for row in rows_table([cut(shard)]).to_pylist() if row["kind"] == "caller"]
        return [(row["plan"], row["rate_per_s"], row["burst"]) for row in rows]

    quota = Decision(plan=BlockPlan("standard", 10 / 86_400, 10, "day"), limit="day", code=REFUSED)
    _add(shard, block([quota]))
    assert [("", 0.0, 0)] == plans()
    _add(shard, block([Decision(), quota], first_seq=1))
    assert [("standard", 100.0, 200)] == plans()
    _add(shard, block([replace(quota, k=9)], first_seq=3))
    assert [("standard", 100.0, 200)] == plans()


def test_evict_keeps_what_has_not_been_written(shard: Shard) -> None:
    """Forgetting an unwritten change would lose it: it is not in the table and will not be delivered again."""
    for place in range(6):
        _add(shard, block([Decision(minute=FIRST_MINUTE + place)], first_seq=place))

    evict(shard, ShardBounds(minutes=3, rows=10**6, copies=0))
    dirty = (sorted(shard.minutes), len(shard.copies))
    cut(shard)
    evict(shard, ShardBounds(minutes=3, rows=10**6, copies=0))

    assert dirty == ([FIRST_MINUTE + place for place in range(6)], 1)
    assert (sorted(shard.minutes), len(shard.copies)) == ([FIRST_MINUTE + place for place in (3, 4, 5)], 0)


def test_evict_frees_memory_by_rows_but_keeps_two_minutes(shard: Shard) -> None:
    """A minute of many callers is large; the two at the border of now are needed by the next block."""
    for place in range(4):
        _add(shard, block([Decision(minute=FIRST_MINUTE + place)], first_seq=place))
    cut(shard)

    evict(shard, ShardBounds(minutes=10, rows=0, copies=10))

    assert sorted(shard.minutes) == [FIRST_MINUTE + 2, FIRST_MINUTE + 3]


def test_is_outgrown_only_when_most_of_its_names_are_of_no_use(shard: Shard) -> None:
    """Names that its minutes use would be loaded again at once; dropping them would only make the worker slow."""
    for place in range(10):
        callers = [Decision(caller=f"c{place} {number}", minute=FIRST_MINUTE + place) for number in range(10)]
        _add(shard, block(callers, first_seq=10 * place))
    cut(shard)

    before = is_outgrown(shard, ShardBounds(names=5))
    evict(shard, ShardBounds(minutes=2))

    assert (before, is_outgrown(shard, ShardBounds(names=5)), is_outgrown(shard, ShardBounds(names=1000))) == (
        False,
        True,
        False,
    )
