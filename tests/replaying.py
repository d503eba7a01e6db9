"""Decisions written down for replays: one line each, columns out. Knows the layout, not the arithmetic."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from aggregator.core.fairness.layout import Carried, Decided, Replayed
from aggregator.core.fairness.replay import BEST, Replayer
from enforcer.types import Reason, Source, outcome_code

#: A minute begins here.
START_US = 1_780_000_020_000_000
ADMITTED = outcome_code(Source.LOCAL, Reason.NONE)
SPENT = outcome_code(Source.LOCAL, Reason.SPENT)


@dataclass(frozen=True)
class One:
    """One decision; `at_us` counts from `START_US`, `terms` numbers the rates and bursts."""

    at_us: int
    code: int = ADMITTED
    cost: int = 1
    copy: int = 0
    retry_after_ms: int = 0
    terms: int = 0


def decided(buckets: Sequence[Sequence[One]], *terms: tuple[float, int], copies: int = 300) -> Decided:
    """The columns of some buckets' decisions, each bucket's in any order."""
    ones = [one for bucket in buckets for one in bucket]
    return Decided(
        starts=np.cumsum([0, *map(len, buckets)]).astype(np.int64),
        at_us=np.array([START_US + one.at_us for one in ones], np.int64),
        cost=np.array([one.cost for one in ones], np.uint32),
        code=np.array([one.code for one in ones], np.uint8),
        retry_after_ms=np.array([one.retry_after_ms for one in ones], np.int32),
        copy=np.array([one.copy for one in ones], np.uint32),
        terms=np.array([one.terms for one in ones], np.uint32),
        rates=np.array([rate for rate, _ in terms], np.float64),
        bursts=np.array([burst for _, burst in terms], np.float64),
        copies=copies,
    )


def replayed(ones: Sequence[One], *terms: tuple[float, int], by: Replayer = BEST) -> Replayed:
    """One bucket of which nothing was known before."""
    return by.replay(decided([ones], *terms), Carried.unseen(1))
