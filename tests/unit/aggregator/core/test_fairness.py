"""What the replay says of single decisions and minutes, on histories short enough to work out by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from aggregator.core.fairness.layout import Carried, Counts, Flag
from aggregator.core.fairness.replay import COMPILED, IN_PYTHON, Replayer, epsilon_tokens, excess_tokens
from enforcer.types import Reason, Source, outcome_code
from tests.replaying import SPENT, START_US, One, decided, replayed

S = 1_000_000
NEVER = outcome_code(Source.LOCAL, Reason.NEVER)
CAP = outcome_code(Source.CAP, Reason.CEILING)
ALONE = outcome_code(Source.DEGRADED, Reason.NONE)

pytestmark = pytest.mark.parametrize(
    "by", [IN_PYTHON, pytest.param(COMPILED, marks=pytest.mark.skipif(COMPILED is None, reason="no C compiler"))]
)


def flags_of(ones: list[One], *terms: tuple[float, int], by: Replayer) -> list[Flag]:
    """What is said of each."""
    return [Flag(flag) for flag in replayed(ones, *terms, by=by).flags.tolist()]


def total(ones: list[One], *terms: tuple[float, int], by: Replayer) -> dict[str, int]:
    """The counts of all minutes together."""
    counts = replayed(ones, *terms, by=by).counts
    return {one.name: int(counts[:, one].sum()) for one in Counts if one > Counts.MINUTE}


def test_refusal_inside_the_plan_is_wrongful(by: Replayer) -> None:
    """Two tokens were sold, one was given: the second request had a right to the other."""
    assert [Flag.EXACT, Flag.EXACT | Flag.WRONGFUL, Flag(0)] == flags_of(
        [One(0), One(1, SPENT), One(2, SPENT)], (1.0, 2), by=by
    )


def test_refusal_beyond_the_plan_is_right(by: Replayer) -> None:
    """The exact bucket is empty too."""
    assert [Flag.EXACT, Flag(0)] == flags_of([One(0), One(999_998, SPENT)], (1.0, 1), by=by)


def test_refusal_in_whose_place_another_was_admitted_is_displaced(by: Replayer) -> None:
    """The caller had what it paid for, only in another order; nobody withheld anything."""
    found = flags_of([One(0), One(10), One(S + 5, SPENT)], (1.0, 1), by=by)
    assert Flag.EXACT | Flag.WRONGFUL | Flag.DISPLACED == found[2]
    assert Flag.OVER_ADMITTED == found[1]


def test_decisions_are_judged_by_time_and_within_one_moment_as_they_stand(by: Replayer) -> None:
    """Copies' blocks come in any order; equal times keep (copy, epoch, seq)."""
    later_first = [One(5, SPENT), One(0), One(5)]
    assert [Flag.EXACT | Flag.WRONGFUL, Flag.EXACT, Flag(0)] == [
        flag & (Flag.EXACT | Flag.WRONGFUL) for flag in flags_of(later_first, (1.0, 2), by=by)
    ]


def test_over_admitted_are_those_that_an_exact_bucket_would_have_refused(by: Replayer) -> None:
    """44 a second on a plan of 10 are 34 too many, not 44 and not the whole debt again."""
    ones = [One(round(n * S / 44)) for n in range(440)]
    found = total(ones, (10.0, 20), by=by)
    assert 440 - (20 + 99) == found["OVER_ADMITTED"]
    excess = excess_tokens(replayed(ones, (10.0, 20), by=by).levels)
    assert pytest.approx(440 - 20 - 10 * (439 / 44), abs=1e-3) == float(excess[0])


def test_excess_is_carried_over_minutes_and_paid_back_by_refill(by: Replayer) -> None:
    """A span may begin in one minute and end in another."""
    ones = [One(59 * S) for _ in range(40)] + [One(61 * S)] + [One(200 * S)]
    assert [30.0, 29.0, 0.0] == excess_tokens(replayed(ones, (1.0, 10), by=by).levels).tolist()


def test_cost_above_the_burst_is_refused_by_the_exact_bucket_too(by: Replayer) -> None:
    """`never` is not wrongful: no wait would have helped."""
    assert [Flag(0), Flag.EXACT] == flags_of([One(0, NEVER, cost=11, retry_after_ms=-1), One(1)], (1.0, 10), by=by)


def test_cost_of_nothing_is_always_inside_the_plan(by: Replayer) -> None:
    """The limiter always admits it; so does the judge, also with an empty bucket, and it takes nothing."""
    assert [Flag.EXACT, Flag.EXACT, Flag.EXACT | Flag.WRONGFUL] == flags_of(
        [One(0), One(1, cost=0), One(2, CAP, cost=0)], (1.0, 1), by=by
    )


def test_early_returns_are_those_before_the_retry_after_of_an_earlier_refusal(by: Replayer) -> None:
    """A caller that comes back too early is a retry storm in the making; one that waits is not."""
    ones = [One(0, SPENT, retry_after_ms=1000), One(S - 1, SPENT, retry_after_ms=-1), One(S), One(61 * S)]
    assert [False, True, False, False] == [bool(flag & Flag.EARLY) for flag in flags_of(ones, (1.0, 9), by=by)]
    across = [One(59 * S, SPENT, retry_after_ms=5_000), One(60 * S)]
    assert 1 == total(across, (1.0, 9), by=by)["EARLY_RETURNS"]


def test_busiest_second_counts_what_was_offered(by: Replayer) -> None:
    """Lesson's own mistake: the busiest second of the admitted is the limit, whatever was asked."""
    ones = [One(0), One(3 * S), *[One(3 * S + n, SPENT) for n in range(5)], One(4 * S)]
    counts = replayed(ones, (1.0, 1), by=by).counts[0]
    assert (6, START_US // S + 3) == (counts[Counts.BUSIEST], counts[Counts.BUSIEST_AT_S])


def test_k_is_the_copies_that_decided_in_the_minute(by: Replayer) -> None:
    """Not in the minute before, and each once."""
    ones = [One(n, copy=n % 3) for n in range(9)] + [One(60 * S, copy=7)]
    assert [3, 1] == replayed(ones, (1.0, 50), by=by).counts[:, Counts.K].tolist()


def test_smaller_burst_clips_and_larger_fills_up_from_what_was_left(by: Replayer) -> None:
    """The owner's rule of a plan that changes: 40 of 100 left, then 200 or 20."""
    spend = [One(n) for n in range(60)]
    to_small = [*spend, *[One(100 + n, terms=1) for n in range(21)]]
    assert 20 == sum(bool(f & Flag.EXACT) for f in flags_of(to_small, (1e-9, 100), (1e-9, 20), by=by)[60:])
    to_large = [*spend, *[One(100 + n, terms=1) for n in range(60)]]
    assert 40 == sum(bool(f & Flag.EXACT) for f in flags_of(to_large, (1e-9, 100), (1e-9, 200), by=by)[60:])


def test_refusal_soon_after_a_change_of_terms_is_marked(by: Replayer) -> None:
    """A copy that still held the old terms is the likely reason while the bucket cannot have filled since."""
    ones = [One(0), One(S, terms=1), One(2 * S, SPENT, terms=1), One(12 * S, SPENT, terms=1)]
    found = flags_of(ones, (1.0, 10), (1.0, 11), by=by)
    assert [False, False, True, False] == [bool(flag & Flag.POLICY) for flag in found]
    late = flags_of([One(0), One(S, terms=1), One(13 * S, SPENT, terms=1)], (1.0, 10), (1.0, 11), by=by)
    assert not late[2] & Flag.POLICY


def test_bound_is_one_burst_while_the_owner_answers(by: Replayer) -> None:
    """docs/epsilon.md, first rows: a burst, and k × (largest cost − 1)."""
    found = replayed([One(0, cost=5, copy=1), One(1, copy=2)], (1.0, 100), by=by)
    assert [100.0 + 2 * 4] == epsilon_tokens(found.levels).tolist()


def test_bound_grows_by_the_copies_own_buckets_while_they_decide_alone(by: Replayer) -> None:
    """A burst in each copy, and each copy's own refill; until the caller has been inside its plan again."""
    alone = [One(0, ALONE, copy=1), One(10 * S, ALONE, copy=2), *[One(10 * S, copy=3) for _ in range(200)]]
    later = [One(61 * S), One(1000 * S)]
    found = replayed(alone + later, (1.0, 100), by=by)
    assert [100.0 + 2 * 100 + 2 * 10, 100.0 + 220.0, 100.0] == epsilon_tokens(found.levels).tolist()


def test_wrongful_refusals_are_listed_with_what_the_real_bucket_held(by: Replayer) -> None:
    """Their causes are looked for by it."""
    found = replayed([One(0), One(1, SPENT), One(S, SPENT)], (1.0, 3), by=by)
    assert ([1, 2], [0, 0]) == (found.wrong_at.tolist(), found.wrong_row.tolist())
    assert [2_000_001.0, 3_000_000.0] == found.wrong_real.tolist()


@pytest.mark.parametrize("rate", [0.0, -1.0, 9e-10, 1e-300, float("inf"), float("nan")])
def test_rate_at_which_no_bucket_is_ever_full_again_is_refused_by_both(by: Replayer, rate: float) -> None:
    """One of them divided by zero, and the other said the end of time."""
    with pytest.raises(ValueError, match="a rate is"):
        replayed([One(0), One(5, code=SPENT)], (rate, 3), by=by)


def test_columns_that_do_not_fit_are_refused_by_name(by: Replayer) -> None:
    """Reading past the end of an array is not an answer."""
    good = decided([[One(0), One(1)]], (1.0, 1))
    with pytest.raises(ValueError, match="carried state is"):
        by.replay(good, Carried.unseen(2))
    wrongs: list[dict[str, Any]] = [{"terms": np.array([0, 1], np.uint32)}, {"copy": np.array([0, 300], np.uint32)}]
    for wrong in wrongs:
        with pytest.raises(ValueError, match="points outside"):
            by.replay(replace(good, **wrong), Carried.unseen(1))
    for starts in ([0, 3], [1, 2], [0, 2, 1, 2]):
        with pytest.raises(ValueError, match="starts does not rise from 0 to 2"):
            by.replay(replace(good, starts=np.array(starts, np.int64)), Carried.unseen(len(starts) - 1))
    with pytest.raises(ValueError, match="items; allowed: 2, one a decision"):
        by.replay(replace(good, copy=np.array([0], np.uint32)), Carried.unseen(1))
