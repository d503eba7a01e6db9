"""The replay itself: decisions per second of one core, in memory, ordering included.

Four loads of `_DECISIONS` each: 20,000 callers at 0.9 of their plan over 4 copies; the same at twice the plan; one
caller over 240 copies, which is the longest sort; and a policy that changes in the middle. A run whose counts are not
those of a plain re-count, or not those of the replay in Python, fails.
"""

from __future__ import annotations

from dataclasses import replace
from time import process_time_ns

import numpy as np

from aggregator.core.fairness.layout import Carried, Counts, Decided
from aggregator.core.fairness.replay import BEST, COMPILED, IN_PYTHON, Replayer
from benchmarks.report import Result, WrongCount

_DECISIONS = 4_000_000
_PYTHON_DECISIONS = 100_000
_ROUNDS = 5
_START_US = 1_780_000_020_000_000
_ADMITTED, _SPENT = 0, 1


def results() -> list[Result]:
    """Measure all loads."""
    loads = {
        "in_plan": _load(callers=20_000, k=4, offered=0.9),
        "flooded": _load(callers=20_000, k=4, offered=2.0),
        "one_caller_k240": _load(callers=1, k=240, offered=2.0),
        "terms_change": _load(callers=20_000, k=4, offered=0.9, terms=2),
    }
    measured = [
        Result(f"replay_{name}_per_s", _per_s(BEST, load), "/s", must=">= 5000000", goal=">= 20000000")
        for name, load in loads.items()
    ]
    small = _load(callers=500, k=4, offered=2.0, decisions=_PYTHON_DECISIONS)
    if COMPILED is None:
        raise WrongCount("built without a C compiler: the bounds are those of the compiled replay")
    if not _same(small):
        raise WrongCount("the compiled replay and the one in Python do not say the same")
    order = BEST.order(loads["in_plan"].starts, loads["in_plan"].at_us)
    sorted_load = _sorted(loads["in_plan"], order)
    return [
        *measured,
        Result("replay_sorted_in_plan_per_s", _per_s(BEST, sorted_load), "/s"),
        Result("replay_in_python_per_s", _per_s(IN_PYTHON, small, rounds=1), "/s"),
    ]


def _load(*, callers: int, k: int, offered: float, decisions: int = _DECISIONS, terms: int = 1) -> Decided:
    """A minute of decisions, in the order of the table: caller, copy, seq."""
    chance = np.random.default_rng(7)
    caller = np.sort(chance.integers(0, callers, decisions))
    copy = chance.integers(0, k, decisions).astype(np.uint32)
    at_us = chance.integers(0, 60_000_000, decisions)
    order = np.lexsort((at_us, copy, caller))
    at_us, copy = at_us[order] + _START_US, copy[order]
    rate = decisions / callers / 60 / offered
    refused = chance.random(decisions) >= min(1.0, 1.0 / offered)
    changed = (at_us > _START_US + 30_000_000) & (terms > 1)
    return Decided(
        starts=np.searchsorted(caller, np.arange(callers + 1)).astype(np.int64),
        at_us=at_us,
        cost=np.ones(decisions, np.uint32),
        code=np.where(refused, _SPENT, _ADMITTED).astype(np.uint8),
        retry_after_ms=np.where(refused, 100, 0).astype(np.int32),
        copy=copy,
        terms=changed.astype(np.uint32),
        rates=np.array([rate, rate * 1.5])[:terms],
        bursts=np.array([2 * rate, 3 * rate])[:terms].round() + 1,
        copies=k,
    )


def _sorted(load: Decided, order: np.ndarray[tuple[int], np.dtype[np.uint32]]) -> Decided:
    names = ("at_us", "cost", "code", "retry_after_ms", "copy", "terms")
    return replace(load, **{name: getattr(load, name)[order] for name in names})


def _per_s(replayer: Replayer, load: Decided, *, rounds: int = _ROUNDS) -> float:
    carried = Carried.unseen(len(load.starts) - 1)
    least = float("inf")
    for _ in range(rounds):
        started = process_time_ns()
        replayed = replayer.replay(load, carried)
        least = min(least, process_time_ns() - started)
        offered, refused = replayed.counts[:, [Counts.OFFERED, Counts.REFUSED]].sum(axis=0).tolist()
        if (offered, refused) != (len(load.at_us), int(np.count_nonzero(load.code))):
            raise WrongCount(f"{offered} offered and {refused} refused of {len(load.at_us)}")
    return len(load.at_us) / least * 1e9


def _same(load: Decided) -> bool:
    carried = Carried.unseen(len(load.starts) - 1)
    one, other = BEST.replay(load, carried), IN_PYTHON.replay(load, carried)
    names = ("levels", "counts", "flags", "wrong_at", "wrong_row", "wrong_real")
    return all(np.array_equal(getattr(one, name), getattr(other, name)) for name in names)
