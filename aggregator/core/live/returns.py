"""Quick returns: decisions that a caller asked for before the Retry-After of its previous refusal had passed.

Judged per caller and scope, in the order of the log, and within one minute: what was told in one minute is not held
against a caller in the next. So the count (`early_returns` of `live` and `signals`) is a lower bound, exact as such
whoever counts it; the fairness audit's early returns look at every earlier refusal. Requests that were under way at
once with the one that was refused count as well: nobody can tell them apart.
Pure.
"""

from __future__ import annotations

import numpy as np

from aggregator.core.live.tables import Bools
from stream.contract.block import Int32s, Int64s

_US_PER_MS = 1_000
_SMALL = 1 << 16


def early_returns(groups: Int64s, at_us: Int64s, retry_after_ms: Int32s, told: Int64s) -> Int64s:
    """Positions of the decisions that came too early; brings `told` up to what was told last.

    Args:
        groups: of each decision, which line of `told` is its caller's in its scope.
        at_us: when each was made, unix microseconds.
        retry_after_ms: what a refused one was told; 0 or less if it was told nothing.
        told: (when, until) per group, unix microseconds; zeros if nothing. Changed in place.
    """
    telling = retry_after_ms > 0
    concerned = told[:, 1] > 0
    concerned[groups[telling]] = True
    places = np.flatnonzero(concerned[groups])
    if places.size == 0:
        return places
    group = groups[places]
    # Numbers of 16 bits are sorted in linear time.
    order = places[np.argsort(group.astype(np.uint16) if told.shape[0] <= _SMALL else group, kind="stable")]
    group, at, tells = groups[order], at_us[order], telling[order]
    until = at + retry_after_ms[order].astype(np.int64) * _US_PER_MS
    before = _telling_before(tells)
    known = (before >= 0) & (group[before] == group)
    told_at = np.where(known, at[before], told[group, 0])
    told_until = np.where(known, until[before], told[group, 1])
    early = order[(at > told_at) & (at < told_until)]
    # Of several assignments to one line, the last one stays.
    told[group[tells], 0] = at[tells]
    told[group[tells], 1] = until[tells]
    return early


def _telling_before(tells: Bools) -> Int64s:
    """The position of the last telling entry before each, -1 if there is none."""
    last = np.maximum.accumulate(np.where(tells, np.arange(tells.size), -1))
    before = np.empty_like(last)
    before[0] = -1
    before[1:] = last[:-1]
    return before
