"""The replay of the exact bucket: both modules alike to the bit, one specification with the owner's, cut anywhere."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aggregator.core.fairness.layout import CARRIED_LEVELS, Carried, Counts, Flag, Levels, Replayed
from aggregator.core.fairness.replay import BEST, COMPILED, IN_PYTHON, last_rows
from enforcer.core.bucket import answer
from enforcer.core.dials import Dials
from enforcer.core.state import Bucket
from enforcer.messages import Ask, SettleCause, Settlement
from enforcer.types import Plan, Reason, Source, outcome_code
from tests.replaying import ADMITTED, SPENT, START_US, One, decided

CODES = [outcome_code(source, reason) for source in Source for reason in Reason]
TERMS = st.lists(
    st.tuples(st.sampled_from([100.0, 1 / 3, 54 / 60, 1e-9, 20_000.0, 1e9]), st.integers(1, 2**32 - 1)),
    min_size=1,
    max_size=3,
)
TIMES = st.one_of(st.integers(0, 3_000_000), st.integers(0, 200_000_000))


@st.composite
def decisions(draw: st.DrawFn, terms: int) -> One:
    """Any decision, also one that no copy would make."""
    code = draw(st.sampled_from([ADMITTED, SPENT, *CODES]))
    wait = draw(st.sampled_from([-1, 0, 1, 999, 60_000]))
    cost = draw(st.sampled_from([0, 1, 1, 1, 2, 50, 2**32 - 1]))
    place = st.integers(0, 5), st.integers(0, terms - 1)
    return One(draw(TIMES), code, cost, draw(place[0]), wait, draw(place[1]))


@st.composite
def buckets(draw: st.DrawFn) -> tuple[list[list[One]], list[tuple[float, int]]]:
    """Some buckets and the terms that they are held to."""
    terms = draw(TERMS)
    small = [(rate, min(burst, draw(st.sampled_from([3, 200, 2**32 - 1])))) for rate, burst in terms]
    return draw(st.lists(st.lists(decisions(len(terms)), max_size=15), max_size=3)), small


def same(one: Replayed, other: Replayed) -> bool:
    """Whether all columns are equal to the bit."""
    names = ("levels", "counts", "flags", "wrong_at", "wrong_row", "wrong_real")
    return all(getattr(one, name).tobytes() == getattr(other, name).tobytes() for name in names)


@pytest.mark.skipif(COMPILED is None, reason="built without a C compiler")
@given(buckets())
def test_compiled_and_python_replay_say_the_same_to_the_bit(
    drawn: tuple[list[list[One]], list[tuple[float, int]]],
) -> None:
    """What a customer is told must not hang on which machine had a compiler."""
    ones, terms = drawn
    columns, carried = decided(ones, *terms), Carried.unseen(len(ones))
    assert COMPILED is not None
    assert same(IN_PYTHON.replay(columns, carried), COMPILED.replay(columns, carried))


@given(buckets(), st.integers(0, 3_400_000))
def test_replay_cut_between_minutes_is_the_replay_in_one(
    drawn: tuple[list[list[One]], list[tuple[float, int]]], cut: int
) -> None:
    """A pass goes on from a row, and only from one of which anything is left by then."""
    ones, terms = drawn
    cut_us = cut // 60_000 * 60_000_000
    whole = BEST.replay(decided(ones, *terms), Carried.unseen(len(ones)))
    early = [[one for one in bucket if one.at_us < cut_us] for bucket in ones]
    late = [[one for one in bucket if one.at_us >= cut_us] for bucket in ones]
    first = BEST.replay(decided(early, *terms), Carried.unseen(len(ones)))
    state, rows = Carried.unseen(len(ones)), last_rows(first)
    state.levels[first.counts[rows, Counts.GROUP]] = first.carried(rows).levels
    state.marks[first.counts[rows, Counts.GROUP]] = first.carried(rows).marks
    over = state.marks[:, Counts.FULL_AT] <= START_US + cut_us
    state.levels[over], state.marks[over] = 0.0, -1
    second = BEST.replay(decided(late, *terms), state)
    parts = np.concatenate([first.counts, second.counts])
    order = np.lexsort((parts[:, Counts.MINUTE], parts[:, Counts.GROUP]))
    assert whole.counts.tolist() == parts[order].tolist()
    assert whole.levels.tobytes() == np.concatenate([first.levels, second.levels])[order].tobytes()


class Asked:
    """The owner's own bucket, asked for each request and told at once that it was spent: the exact design."""

    def __init__(self) -> None:
        self._bucket: Bucket | None = None
        self._number = 0
        self._dials = Dials(keep_us=10**12)

    def admits(self, at_us: int, cost: int, plan: Plan) -> bool:
        """Whether the owner gives all of it."""
        granted = self._ask(at_us, plan, cost, ())
        size = granted[1]
        spent = cost if size == cost else 0
        if size:
            self._ask(at_us, plan, 0, (Settlement(granted[0], spent, True, SettleCause.ASK),))
        return spent == cost

    def _ask(self, at_us: int, plan: Plan, waiting: int, stated: tuple[Settlement, ...]) -> tuple[int, int]:
        self._number += 1
        ask = Ask(
            caller="a", limit="rate", plan=plan, member="gw/1", ask_no=self._number, settlements=stated,
            waiting=waiting, want=0, rate_per_s=0.0, offered=waiting, jitter=0.0,
        )  # fmt: skip
        self._bucket, told = answer(self._bucket, ask, at_us, self._dials)
        return (told.grant.grant_id, told.grant.size) if told.grant is not None else (0, 0)


@given(
    st.lists(st.tuples(st.integers(0, 40_000), st.integers(1, 3), st.integers(0, 2)), min_size=1, max_size=60),
    st.lists(st.tuples(st.sampled_from([100.0, 54 / 60, 1 / 3, 20_000.0]), st.integers(3, 12)), min_size=3, max_size=3),
)
def test_exact_bucket_is_the_owners_own_specification(
    steps: list[tuple[int, int, int]], terms: list[tuple[float, int]]
) -> None:
    """The audit must not judge by another arithmetic than the one that decides, also when a plan changes."""
    owner, at_us, ones, expected = Asked(), 0, [], []
    for step_us, cost, number in steps:
        at_us += step_us
        ones.append(One(at_us, cost=cost, terms=number))
        expected.append(owner.admits(START_US + at_us, cost, Plan("p", *terms[number])))
    flags = BEST.replay(decided([ones], *terms), Carried.unseen(1)).flags
    assert expected == [bool(flag & Flag.EXACT) for flag in flags.tolist()]


@given(buckets())
def test_counts_of_a_minute_add_up(drawn: tuple[list[list[One]], list[tuple[float, int]]]) -> None:
    """Whatever comes in: nothing is counted twice, and what is carried is what stands in the row."""
    ones, terms = drawn
    out = BEST.replay(decided(ones, *terms), Carried.unseen(len(ones)))
    counts = out.counts
    assert sum(map(len, ones)) == counts[:, Counts.OFFERED].sum()
    assert (counts[:, Counts.OFFERED] == counts[:, Counts.ADMITTED] + counts[:, Counts.REFUSED]).all()
    assert (counts[:, Counts.DISPLACED] <= counts[:, Counts.WRONGFUL]).all()
    assert len(out.wrong_at) == int((counts[:, Counts.WRONGFUL] - counts[:, Counts.DISPLACED]).sum())
    assert (out.levels[:, Levels.EXACT] >= 0).all()
    assert (out.levels[:, Levels.POLICED] >= 0).all()
    assert CARRIED_LEVELS == out.carried(last_rows(out)).levels.shape[1]
    keys = counts[:, [Counts.GROUP, Counts.MINUTE]].tolist()
    assert all(before < after for before, after in pairwise(keys))
