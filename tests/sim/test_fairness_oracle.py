"""The audit's replay against the simulation's own oracle, on the simulation's own traffic: the same counts."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from aggregator.core.fairness.layout import Carried, Counts, Decided, Levels, Replayed
from aggregator.core.fairness.replay import BEST
from enforcer.types import Plan
from tests.replaying import ADMITTED, SPENT, START_US
from tests.sim.designs import DESIGNS
from tests.sim.figures import Figures, worst_excess
from tests.sim.fleet import Fleet
from tests.sim.owners import specified
from tests.sim.reduced import STANDARD
from tests.sim.traffic import FLEET, PATTERNS, Traffic, traffic
from tests.sim.world import World


class Watched(Fleet):
    """A fleet whose decisions can be looked at."""

    decided: npt.NDArray[np.uint8]

    def _figures(self, caller: int, requests: Traffic, decided: npt.NDArray[np.uint8]) -> Figures:
        self.decided = decided
        return super()._figures(caller, requests, decided)


def audited(requests: Traffic, plan: Plan, allowed: npt.NDArray[np.bool_]) -> Replayed:
    """What the audit says of one caller's decisions."""
    n = len(allowed)
    columns = Decided(
        starts=np.array([0, n], np.int64),
        at_us=np.array(requests.at_us, np.int64) + START_US,
        cost=np.ones(n, np.uint32),
        code=np.where(allowed, ADMITTED, SPENT).astype(np.uint8),
        retry_after_ms=np.zeros(n, np.int32),
        copy=np.array(requests.copy, np.uint32),
        terms=np.zeros(n, np.uint32),
        rates=np.array([plan.rate_per_s]),
        bursts=np.array([float(plan.burst)]),
        copies=FLEET,
    )
    return BEST.replay(columns, Carried.unseen(1))


@pytest.mark.parametrize("pattern", ["poisson 0.9x", "onoff", "spike", "poisson 2x", "flood", "abuse"])
def test_audit_and_oracle_count_the_same_of_the_product(pattern: str) -> None:
    """The simulation is what the figures of the bound were measured with; the record must not use another measure."""
    requests = traffic(PATTERNS[pattern], STANDARD, k=30, seconds=20.0, seed=3)
    fleet = Watched(specified(), [STANDARD], World(), seed=1)
    figures = fleet.run([requests])[0]
    found = audited(requests, STANDARD, fleet.decided == 1)
    times = [at_us for at_us, one in zip(requests.at_us, fleet.decided, strict=True) if one]
    assert (figures.offered, figures.admitted, figures.wrongful) == tuple(
        found.counts[:, [Counts.OFFERED, Counts.ADMITTED, Counts.WRONGFUL]].sum(axis=0).tolist()
    )
    excess = max(0.0, worst_excess(times, STANDARD))
    assert excess == pytest.approx(found.levels[:, Levels.EXCESS].max() / 1e6, abs=1e-6)
    assert (found.levels[:, Levels.EXCESS] <= found.levels[:, Levels.EPSILON]).all()


@pytest.mark.parametrize("pattern", ["poisson 0.9x", "poisson 2x"])
def test_audit_finds_what_the_oracle_finds_in_a_divided_limit(pattern: str) -> None:
    """A limiter that refuses inside the plan is what the audit is for: thousands, not a rounding."""
    plan, k = STANDARD, 30
    requests = traffic(PATTERNS[pattern], plan, k=k, seconds=20.0, seed=3)
    figures = DESIGNS["divided"](requests, plan, 1)
    allowed, level, before = [], [1.0] * FLEET, [0] * FLEET
    for at_us, copy in zip(requests.at_us, requests.copy, strict=True):
        level[copy] = min(1.0, level[copy] + plan.rate_per_s / FLEET / 1e6 * (at_us - before[copy]))
        before[copy] = at_us
        allowed.append(level[copy] >= 1.0)
        level[copy] -= allowed[-1]
    found = audited(requests, plan, np.array(allowed))
    assert figures.wrongful == int(found.counts[:, Counts.WRONGFUL].sum()) > 500
    assert 0 == int(found.counts[:, Counts.DISPLACED].sum())
