"""The walk along a chain of blocks: nothing that is whole is called broken, whatever the order of what was sealed."""

from __future__ import annotations

import random
from itertools import pairwise

from aggregator.core.proof.chain import BlockRow, Break, ChainWalk
from aggregator.core.proof.excuses import StillKept, excuse
from aggregator.core.proof.holes import Numbers

DAY_US = 86_400_000_000


def chain(*sizes: int, first_seq: int = 0, first_hash: int = 0) -> list[BlockRow]:
    """Blocks of these sizes, each with the hash of the one before it; 0 is a sign of life."""
    rows = []
    for number, size in enumerate(sizes, start=first_hash):
        times = (DAY_US * 100 + number,) * 3
        rows.append(
            BlockRow(
                "gw-1", 7, first_seq, size, times[0], hashed(number), hashed(number + 1), *times[1:], 0, 0, None, 3,
                0, 0, 0, 0, 0, "log", 0, number,
            )
        )  # fmt: skip
        first_seq += size
    return rows


def hashed(number: int) -> bytes:
    return number.to_bytes(16, "big")


def walked(rows: list[BlockRow]) -> tuple[list[BlockRow], list[Break]]:
    """The blocks in the order of the walk, and the breaks."""
    walk = ChainWalk()
    items = [*walk.take(sorted(rows, key=lambda row: (row.first_seq, row.decisions))), *walk.end()]
    return [one for one in items if isinstance(one, BlockRow)], [one for one in items if isinstance(one, Break)]


def test_whole_chain_is_walked_in_its_order() -> None:
    """Signs of life have the number of the block after them: only their hashes say which came first."""
    rows = chain(0, 0, 0, 5, 0, 3, 0, 0, 0, 0, 2, 0, 0)
    for seed in range(50):
        shuffled = rows * 2
        random.Random(seed).shuffle(shuffled)
        assert (rows, []) == walked(shuffled)


def test_missing_blocks_are_breaks_with_the_numbers_between() -> None:
    """Whoever takes a block out takes its numbers with it."""
    rows = chain(4, 0, 3, 5, 0, 2)
    _, (broken,) = walked([row for row in rows if row.first_seq != 4 or row.decisions == 0])
    assert (Numbers(4, 7), False) == (broken.missing, broken.hash_fits)
    assert (rows[1], rows[3]) == (broken.after, broken.before)


def test_missing_sign_of_life_is_a_break_without_numbers() -> None:
    """Nothing is missing between the two, and the hash says that something was there."""
    rows = chain(4, 0, 3)
    _, (broken,) = walked([rows[0], rows[2]])
    assert (None, False) == (broken.missing, broken.hash_fits)


def test_numbers_that_no_block_had_are_a_break_whose_hash_fits() -> None:
    """A decision that could not be written was lost between two blocks that follow each other."""
    rows = chain(4, 3)
    _, (broken,) = walked([rows[0], rows[1]._replace(first_seq=6)])
    assert (Numbers(4, 6), True) == (broken.missing, broken.hash_fits)


def test_altered_hash_breaks_the_chain_before_and_after_it() -> None:
    """Whoever seals a block anew would have to seal all later ones anew, and the anchors as well."""
    rows = chain(1, 1, 1, 1)
    rows[2] = rows[2]._replace(block_hash=b"x" * 16)
    blocks, (broken,) = walked(rows)
    assert rows == blocks
    assert (rows[2], rows[3]) == (broken.after, broken.before)


def test_forged_block_beside_the_true_one_is_found() -> None:
    """It carries the right predecessor, and nobody carries it."""
    rows = chain(2, 2, 2)
    forged = rows[1]._replace(block_hash=b"f" * 16)
    blocks, breaks = walked([rows[0], forged, *rows[1:]])
    assert 4 == len(blocks)
    assert breaks
    assert all(one.before in {forged, *rows} for one in breaks)


def test_rows_without_an_excuse_are_silent() -> None:
    """Erased on request, too old, or dropped by hand: anything else is a fault."""
    (block,) = chain(10)
    block = block._replace(refused=4)
    holes = [Numbers(2, 5), Numbers(7, 8)]
    erased = [Numbers(3, 5), Numbers(7, 9)]
    found = excuse(block, holes, refused_left=4, erased=erased, left=StillKept())
    assert (3, 0, [Numbers(2, 3)]) == (found.erased, found.expired, found.silent)
    for left, refused_left, expired in (
        (StillKept(decisions_from_us=DAY_US * 101), 0, 4),
        (StillKept(admitted_from_us=DAY_US * 101), 4, 4),
        (StillKept(admitted_from_us=DAY_US * 101), 3, 0),
        (StillKept(admitted_from_us=DAY_US * 100), 4, 0),
        (StillKept(dropped=((DAY_US * 99, DAY_US * 101),)), 0, 4),
        (StillKept(dropped=((DAY_US * 101, DAY_US * 131),)), 0, 0),
    ):
        found = excuse(block, holes, refused_left=refused_left, erased=[], left=left)
        assert (expired, 4 - expired) == (found.expired, sum(hole.count for hole in found.silent)), left


def test_blocks_before_the_first_may_be_gone_by_their_month_only() -> None:
    """Nobody may cut off the beginning of the record and say that it was old."""
    old, new = chain(1, 1)
    new = new._replace(sealed_at_us=DAY_US * 200)
    left = StillKept(blocks_from_us=DAY_US * 90)
    assert [False, True] == [left.has_blocks_before(old), left.has_blocks_before(new)]
    assert StillKept().has_blocks_before(old)
    assert all(before.block_hash == after.prev_hash for before, after in pairwise(chain(1, 0, 1)))
