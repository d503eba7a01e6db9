"""The loops of the live totals: in C and with numpy alike, and as one would count by hand."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aggregator.core.live import callers, cells, tables, tally
from aggregator.core.live.callers import NO_PLAN, Known, Lines
from aggregator.core.live.tally import FLEET_COUNTS, Decided, Held, Places
from enforcer.types import Reason, Source, outcome_code
from stream.contract.usage import USAGE_COUNTS

ROWS, CALLERS, CODES = 6, 4, [outcome_code(source, reason) for source in Source for reason in Reason]
TIMES = st.integers(1_000_000, 1_010_000)
needs_compiler = pytest.mark.skipif(tally.COMPILED is None, reason="built without a C compiler")


@dataclass(frozen=True)
class Drawn:
    """Decisions, where they count, and what was there before."""

    decided: Decided
    places: Places
    held: Held


@st.composite
def worlds(draw: st.DrawFn) -> Drawn:
    """Any decisions of one minute, also such as no copy would make."""
    rows = draw(st.lists(st.integers(0, ROWS - 1), min_size=1, max_size=8))
    spare = draw(st.integers(0, 2))
    of_row = draw(st.lists(st.integers(0, CALLERS - 1), min_size=ROWS, max_size=ROWS))
    one = st.tuples(
        st.integers(0, len(rows) - 1),
        st.sampled_from([*CODES, 255, 15]),
        st.sampled_from([0, 1, 7, 2**32 - 1]),
        TIMES,
        st.sampled_from([-1, 0, 0, 1, 3]),
    )
    drawn = draw(st.lists(one, min_size=1, max_size=60))
    basis, code, cost, at_us, retry = zip(*drawn, strict=True)
    used = set(basis)
    kinds = sorted(set(code))
    slot = np.zeros(tally.CODES, np.int64)
    slot[kinds] = np.arange(len(kinds))
    row = np.array([place if number in used else -1 for number, place in enumerate(rows)] + [-1] * spare, np.intp)
    pairs = np.array(draw(st.lists(st.integers(0, 2), min_size=row.size, max_size=row.size)), np.int64)
    told = draw(st.lists(st.tuples(TIMES, TIMES) | st.just((0, 0)), min_size=ROWS, max_size=ROWS))
    return Drawn(
        Decided(
            np.array(basis, np.uint32),
            np.array(code, np.uint8),
            np.array(cost, np.uint32),
            np.array(at_us, np.int64),
            np.array(retry, np.int32),
        ),
        Places(row, np.where(row < 0, -1, np.array(of_row)[row]), pairs * len(kinds), slot),
        Held(
            np.full((ROWS, len(USAGE_COUNTS)), 3, np.int64),
            np.array(told, np.int64),
            np.array(draw(st.lists(st.booleans(), min_size=ROWS, max_size=ROWS)), np.bool_),
            np.zeros((CALLERS, len(USAGE_COUNTS)), np.int64),
            np.zeros(CALLERS, np.bool_),
            np.zeros((3 * len(kinds), FLEET_COUNTS), np.int64),
        ),
    )


def copied(held: Held) -> Held:
    return replace(held, **{name: getattr(held, name).copy() for name in Held.__slots__})


def same(one: Held, other: Held) -> bool:
    return all(np.array_equal(getattr(one, name), getattr(other, name)) for name in Held.__slots__)


@needs_compiler
@given(worlds())
def test_compiled_and_numpy_tally_say_the_same(drawn: Drawn) -> None:
    """A total must not hang on which machine had a compiler."""
    assert tally.COMPILED is not None
    compiled, plain = copied(drawn.held), copied(drawn.held)

    assert tally.COMPILED(drawn.decided, drawn.places, compiled) == tally.tally_with_numpy(
        drawn.decided, drawn.places, plain
    )
    assert same(compiled, plain)


@given(worlds())
def test_tally_counts_what_one_would_count_by_hand(drawn: Drawn) -> None:
    """Both could be wrong alike."""
    before, after = drawn.held, copied(drawn.held)
    tally.BEST(drawn.decided, drawn.places, after)

    by_row: dict[int, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    told = {row: tuple(pair) for row, pair in enumerate(before.told.tolist())}
    one = drawn.decided
    for basis, code, cost, at, retry in zip(one.basis, one.code, one.cost, one.at_us, one.retry_after_ms, strict=True):
        row, counts = int(drawn.places.row[basis]), by_row[int(drawn.places.row[basis])]
        reason = int(code) & 15
        counts["offered"] += 1
        if reason < len(Reason):
            counts[USAGE_COUNTS[1 + reason]] += 1
        counts["degraded"] += int(code) >> 4 == Source.DEGRADED
        counts["early_returns"] += told[row][0] < at < told[row][1]
        counts["cost_offered"] += int(cost)
        counts["cost_admitted"] += int(cost) if reason == 0 else 0
        if retry > 0:
            told[row] = (int(at), int(at) + 1000 * int(retry))
    expected = before.counts.copy()
    for row, counts in by_row.items():
        expected[row] += [counts[name] for name in USAGE_COUNTS]
    assert after.counts.tolist() == expected.tolist()
    assert after.told.tolist() == [list(told[row]) for row in range(ROWS)]
    assert after.callers.sum(axis=0).tolist() == (expected - before.counts).sum(axis=0).tolist()
    assert after.fleet.sum(axis=0).tolist() == [
        len(one.basis),
        int(after.callers[:, tally.EARLY].sum()),
        int(one.cost.sum(dtype=np.int64)),
    ]


@needs_compiler
@given(worlds(), st.sampled_from(["row", "caller", "fleet"]), st.sampled_from([-1, 10_000]))
def test_compiled_tally_changes_nothing_when_an_index_points_outside(drawn: Drawn, which: str, wrong: int) -> None:
    """Half a block counted would be half a block wrong for good, and a wild write worse."""
    assert tally.COMPILED is not None
    places: npt.NDArray[np.int64] = getattr(drawn.places, which).copy()
    places[drawn.decided.basis[-1]] = wrong
    held = copied(drawn.held)

    with pytest.raises(ValueError, match="points outside"):
        tally.COMPILED(drawn.decided, replace(drawn.places, **{which: places}), held)

    assert same(held, drawn.held)


SEEN = st.lists(
    st.tuples(st.integers(0, ROWS - 1), st.sampled_from([NO_PLAN, 0, 1]), st.integers(0, 3)), min_size=1, max_size=20
)


@needs_compiler
@given(st.lists(st.tuples(SEEN, st.integers(0, 1), st.integers(0, 63)), min_size=1, max_size=5))
def test_compiled_and_numpy_see_the_same(blocks: list[tuple[list[tuple[int, int, int]], int, int]]) -> None:
    """Which callers are written again must not hang on it either."""
    assert callers.COMPILED is not None
    one, other = (
        Known(
            np.full(ROWS, NO_PLAN, np.int64),
            np.zeros(ROWS, np.int64),
            np.zeros((ROWS, 2), np.uint64),
            np.zeros(ROWS, np.bool_),
        )
        for _ in range(2)
    )
    for seen, word, bit in blocks:
        lines = Lines(*np.array(seen, np.int64).T.copy())
        # Which lines count twice is told alike, too.
        assert callers.COMPILED(lines, one, word, bit) == callers.see_with_numpy(lines, other, word, bit)
        assert all(np.array_equal(left, right) for left, right in zip(one, other, strict=True))


@needs_compiler
@given(st.lists(st.lists(st.integers(0, 2**40) | st.integers(0, 30), max_size=300), max_size=5))
def test_compiled_and_plain_numbers_are_the_same(batches: list[list[int]]) -> None:
    """Two pairs under one number would add one caller's decisions to another's."""
    assert cells.COMPILED is not None
    table, plain = cells.COMPILED(), cells.DictNumbers()
    for batch in batches:
        keys = np.array(batch, np.int64)
        assert table.of(keys).tolist() == plain.of(keys).tolist()
        assert len(table) == len(plain)


@needs_compiler
@given(st.lists(st.lists(st.text(max_size=3), max_size=200), max_size=5))
def test_compiled_and_plain_interner_number_names_alike(batches: list[list[str]]) -> None:
    """Two names under one number would bill one caller for another."""
    assert tables.COMPILED is not None
    table, plain = tables.COMPILED(), tables.Interner[str]()
    for batch in batches:
        assert table.ids_of(batch).tolist() == plain.ids_of(batch).tolist()
        assert table.keys == plain.keys
        assert len(table) == len(plain)
        assert [table.id_of(name) for name in batch] == [plain.id_of(name) for name in batch]


@given(st.lists(st.lists(st.integers(0, 200), max_size=50), max_size=6))
def test_each_id_has_one_row_of_its_own(batches: list[list[int]]) -> None:
    """Two rows for one cell are half a total each, and one row for two cells is the sum of strangers."""
    index, row_of = tables.RowIndex(), dict[int, int]()
    for batch in batches:
        rows = index.rows_of(np.array(batch, np.int64))
        for number, row in zip(batch, rows.tolist(), strict=True):
            assert row_of.setdefault(number, row) == row
        assert index.ids[rows].tolist() == batch
    assert sorted(row_of.values()) == list(range(index.count))
