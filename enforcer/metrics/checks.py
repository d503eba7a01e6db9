"""Measures how long checks take, where requests pass: in the middleware, not in the limiter."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from time import monotonic_ns
from typing import TypeAlias

from enforcer.metrics.metrics import Metrics
from enforcer.types import Verdict

Checked: TypeAlias = Callable[[Awaitable[Verdict]], Awaitable[Verdict]]


def unmeasured(check: Awaitable[Verdict]) -> Awaitable[Verdict]:
    """The check itself."""
    return check


def measured_by(metrics: Metrics) -> Checked:
    """Has the time of each check that comes to a verdict observed, waiting for the owner included."""
    observe = metrics.observe

    async def measured(check: Awaitable[Verdict]) -> Verdict:
        began_ns = monotonic_ns()
        verdict = await check
        observe("tallygate_check_seconds", (monotonic_ns() - began_ns) / 1e9)
        return verdict

    return measured
