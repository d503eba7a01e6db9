"""However a burst, a cost and a number of limits fit: a caller gets what was sold, and is never sent away for hours."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from enforcer.clock import SystemClock
from enforcer.identity import new_identity
from enforcer.limiting.limiter import Limiter
from enforcer.owners.memory import MemoryOwner
from enforcer.settings import LimiterSettings
from enforcer.testing import RecordingSink
from enforcer.types import Verdict
from tests.unit.enforcer.harness import make_policy


def _checked(burst: int, cost: int, limits: int, *, threaded: bool, quota: bool) -> list[Verdict]:
    """One request more than the tightest limit has room for, one after the other, on one copy."""
    tight = {"quota": burst, "per": "month"} if quota else {"rate_per_s": 1e-4, "burst": burst}
    wide = {f"wide-{number}": {"by": "caller", "rate_per_s": 10, "burst": 1_000} for number in range(limits - 1)}
    policy = make_policy(rate_per_s=100, burst=1_000, limits={**wide, "tight": {"by": "caller", **tight}})
    clock = SystemClock()
    settings = LimiterSettings(threaded=threaded, idle_settle_s=60)
    owner = MemoryOwner(now_us=clock.unix_us)
    identity = new_identity("copy", unix_ms=1, pid=1)
    limiter = Limiter(policy, owner, RecordingSink(), identity, settings=settings, clock=clock)
    try:
        return [limiter.check("acme", cost=cost) for _ in range(burst // cost + 1)]
    finally:
        limiter.close()


@pytest.mark.parametrize("threaded", [False, True])
@pytest.mark.parametrize("limits", [1, 2, 4, 5])
@given(burst=st.integers(1, 40), cost=st.integers(1, 10), quota=st.booleans())
def test_requests_of_any_cost_are_admitted_as_often_as_the_burst_has_room_for_them(
    threaded: bool, limits: int, burst: int, cost: int, quota: bool
) -> None:
    """A refusal while the tokens are there, with a wait until the month turns, loses a caller what it paid for."""
    verdicts = _checked(burst, cost, limits, threaded=threaded, quota=quota)
    assert [True] * (burst // cost) + [False] == [verdict.allowed for verdict in verdicts]
    assert verdicts[-1].basis.limit == "tight"
