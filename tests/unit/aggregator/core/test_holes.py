"""Numbers that are missing, and what is said of them."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aggregator.core.proof.holes import Numbers, parts_of

HOLE = Numbers(10, 20)


@pytest.mark.parametrize(
    ("said", "declared", "silent"),
    [
        ([], [], [(10, 20)]),
        ([(10, 20)], [(10, 20)], []),
        ([(0, 90)], [(10, 20)], []),
        ([(0, 10), (20, 30)], [], [(10, 20)]),
        ([(12, 15)], [(12, 15)], [(10, 12), (15, 20)]),
        ([(15, 30), (5, 12)], [(10, 12), (15, 20)], [(12, 15)]),
        ([(10, 14), (14, 20)], [(10, 20)], []),
        ([(10, 16), (12, 14), (13, 20)], [(10, 20)], []),
    ],
)
def test_hole_is_split_into_what_was_said_and_what_was_not(
    said: Sequence[tuple[int, int]], declared: Sequence[tuple[int, int]], silent: Sequence[tuple[int, int]]
) -> None:
    """A loss that a copy owned up to is another matter than one that nobody speaks of."""
    expected = ([Numbers(*part) for part in declared], [Numbers(*part) for part in silent])
    assert expected == parts_of(HOLE, [Numbers(*one) for one in said])


@given(said=st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30))))
def test_every_missing_number_is_in_one_part_only(said: list[tuple[int, int]]) -> None:
    """Whatever the loss records say, no number is forgotten and none counted twice."""
    declared, silent = parts_of(HOLE, [Numbers(min(pair), max(pair)) for pair in said])
    counted = sorted(number for part in (*declared, *silent) for number in range(part.first, part.end))
    assert list(range(10, 20)) == counted
    lost = {number for pair in said for number in range(min(pair), max(pair))}
    assert all(number in lost for part in declared for number in range(part.first, part.end))


def test_numbers_are_named_by_both_ends() -> None:
    """Whoever looks for them must find them."""
    assert ("10 to 19", 10) == (HOLE.words, HOLE.count)
    assert "10" == Numbers(10, 11).words
