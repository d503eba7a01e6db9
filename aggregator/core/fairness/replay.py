"""The exact bucket, replayed over what was really decided: which refusals were wrongful, which admissions too many.

There are two replays of one behaviour: one in C, where the distribution was built with a compiler, and one in Python
(`fairness_in_python`) which gives the same to the last bit. The arithmetic is the owner's (`enforcer.core.sizing`).
Pure: reads no clock, talks to nobody, and changes nothing that it is given.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np

from aggregator.core.fairness import in_python
from aggregator.core.fairness.layout import (
    CARRIED_LEVELS,
    CARRIED_MARKS,
    MINUTE_US,
    ROW_COUNTS,
    ROW_LEVELS,
    Arrays,
    Carried,
    Counts,
    Decided,
    Doubles,
    Int64s,
    Levels,
    Replayed,
    UInt32s,
)
from aggregator.core.record.acceptance import MIN_RATE_PER_S
from enforcer.core.sizing import MICRO

_Order = Callable[[Int64s, Int64s, UInt32s], None]
_Replay = Callable[..., tuple[int, int]]


class Replayer:
    """Replays buckets, by the functions `order` and `replay` of one of the two modules."""

    __slots__ = ("_order", "_replay")

    def __init__(self, order: _Order, replay: _Replay) -> None:
        self._order = order
        self._replay = replay

    def order(self, starts: Int64s, at_us: Int64s) -> UInt32s:
        """The places of each bucket's decisions by time; those of one moment stay as they stand.

        Raises:
            ValueError: `starts` does not rise from 0 to the number of decisions.
        """
        order = np.empty(len(at_us), np.uint32)
        self._order(starts, at_us, order)
        return order

    def replay(self, decided: Decided, carried: Carried) -> Replayed:
        """Replay each bucket from the state that it is given.

        Raises:
            ValueError: columns differ in length, an index points outside, or a rate is below 1e-9 or not finite.
            TypeError: a column is of another type than it should be.
        """
        _check_rates(decided.rates)
        order = self.order(decided.starts, decided.at_us)
        buckets, room = len(decided.starts) - 1, _row_room(decided, order)
        refused = int(np.count_nonzero(decided.code & 15))
        arrays = Arrays(
            starts=decided.starts,
            order=order,
            at_us=decided.at_us,
            cost=decided.cost,
            code=decided.code,
            retry_after_ms=decided.retry_after_ms,
            copy=decided.copy,
            terms=decided.terms,
            rates=decided.rates,
            bursts=decided.bursts * MICRO,
            carried_levels=_flat(carried.levels, buckets, CARRIED_LEVELS),
            carried_marks=_flat(carried.marks, buckets, CARRIED_MARKS),
            seen=np.zeros(2 * decided.copies, np.int64),
            row_levels=np.zeros(room * ROW_LEVELS),
            row_counts=np.zeros(room * ROW_COUNTS, np.int64),
            flags=np.zeros(len(decided.at_us), np.uint8),
            wrong_at=np.empty(refused, np.int64),
            wrong_row=np.empty(refused, np.int64),
            wrong_real=np.empty(refused),
        )
        rows, wrongs = self._replay(*arrays)
        return Replayed(
            arrays.row_levels.reshape(-1, ROW_LEVELS)[:rows],
            arrays.row_counts.reshape(-1, ROW_COUNTS)[:rows],
            arrays.flags,
            arrays.wrong_at[:wrongs],
            arrays.wrong_row[:wrongs],
            arrays.wrong_real[:wrongs],
        )


def last_rows(replayed: Replayed) -> Int64s:
    """The last row of each bucket that has any, buckets in order."""
    groups = replayed.counts[:, Counts.GROUP]
    return np.flatnonzero(np.append(groups[1:] != groups[:-1], True)) if len(groups) else np.zeros(0, np.int64)


def excess_tokens(levels: Doubles) -> Doubles:
    """Tokens admitted beyond ``burst + rate × t`` in the worst span that ends in each row's minute."""
    return levels[:, Levels.EXCESS] / MICRO


def epsilon_tokens(levels: Doubles) -> Doubles:
    """The declared bound on that, in tokens."""
    return levels[:, Levels.EPSILON] / MICRO


def _check_rates(rates: Doubles) -> None:
    """A bucket that is never full again is none; what the two modules made of it would differ."""
    bad = rates[~((rates >= MIN_RATE_PER_S) & np.isfinite(rates))]
    if len(bad):
        raise ValueError(f"a rate is {bad[0]}; allowed: {MIN_RATE_PER_S:g} or more tokens per second, finite")


def _row_room(decided: Decided, order: UInt32s) -> int:
    """At most so many rows: of each bucket no more than the minutes from its first to its last decision."""
    starts = decided.starts
    full = np.flatnonzero(starts[1:] > starts[:-1])
    first, last = decided.at_us[order[starts[full]]], decided.at_us[order[starts[full + 1] - 1]]
    minutes = last // MINUTE_US - first // MINUTE_US + 1
    return int(np.minimum(minutes, starts[full + 1] - starts[full]).sum())


def _flat(state: Any, buckets: int, width: int) -> Any:
    if state.shape != (buckets, width):
        raise ValueError(f"carried state is {state.shape}; allowed: {buckets} buckets of {width}")
    return np.ascontiguousarray(state).reshape(-1)


def _compiled() -> Replayer | None:
    try:
        from aggregator.core.fairness import _replay  # noqa: PLC0415  (absent where there was no compiler)
    except ImportError:
        return None
    return Replayer(_replay.order, _replay.replay)


IN_PYTHON: Final = Replayer(in_python.order, in_python.replay)
#: None where the distribution was built without a C compiler.
COMPILED: Final = _compiled()
BEST: Final = IN_PYTHON if COMPILED is None else COMPILED
