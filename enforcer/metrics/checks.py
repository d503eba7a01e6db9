"""Measures how long checks take, where requests pass: in the middlewares, not in the limiter."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from itertools import cycle
from time import monotonic_ns
from typing import TypeAlias

from enforcer.limiting.limiter import Limiter
from enforcer.metrics.metrics import Metrics
from enforcer.types import Verdict

Checked: TypeAlias = Callable[[Awaitable[Verdict]], Awaitable[Verdict]]
#: Has a limiter decide about a caller and a scope on this thread.
Check: TypeAlias = Callable[[Limiter, str, str], Verdict]

_ONE_IN = 16


def unmeasured(check: Awaitable[Verdict]) -> Awaitable[Verdict]:
    """The check itself."""
    return check


def measured_by(metrics: Metrics, *, one_in: int = _ONE_IN) -> Checked:
    """Has the time of one check in so many observed, if it comes to a verdict, waiting for the owner included.

    Observing one takes about 0.9 µs, twice what a check itself does.
    """
    observe = metrics.observe
    is_turn = cycle([True, *([False] * (one_in - 1))]).__next__

    async def measured(check: Awaitable[Verdict]) -> Verdict:
        began_ns = monotonic_ns()
        verdict = await check
        observe("tallygate_check_seconds", (monotonic_ns() - began_ns) / 1e9)
        return verdict

    return lambda check: measured(check) if is_turn() else check


def measured_check(metrics: Metrics, *, one_in: int = _ONE_IN) -> Check:
    """The same for threads: see `measured_by`."""
    observe = metrics.observe
    is_turn = cycle([True, *([False] * (one_in - 1))]).__next__

    def check(limiter: Limiter, caller: str, scope: str) -> Verdict:
        if not is_turn():
            return limiter.check(caller, scope)
        began_ns = monotonic_ns()
        verdict = limiter.check(caller, scope)
        observe("tallygate_check_seconds", (monotonic_ns() - began_ns) / 1e9)
        return verdict

    return check
