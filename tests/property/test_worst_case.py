"""The worst that a caller can do, directed: hoard grants on every copy, let the bucket fill, then take everything."""

from __future__ import annotations

import pytest

from enforcer.core.dials import DEFAULT_DIALS, Dials
from enforcer.types import Plan
from tests.property.world import World

SECOND_US = 1_000_000


@pytest.mark.parametrize("dials", [DEFAULT_DIALS, Dials(epsilon=0.5, overdraft=0.1), Dials(k_floor=1)])
@pytest.mark.parametrize("plan", [Plan("standard", 100.0, 200), Plan("even", 50.0, 50), Plan("large", 2e4, 40_000)])
def test_hoarding_and_rushing_stays_inside_the_bound_and_comes_near_it(plan: Plan, dials: Dials) -> None:
    """The declared ε must hold against intent, and must be of use: not far above what can happen."""
    world = World(plan, copies=12, dials=dials)
    *hoarders, last = world.copies
    rounds = 8
    for _ in range(rounds):
        for copy in hoarders:
            copy.drop_expired(world.real_us)
            world.exchange(copy, waiting=0, want=2 * plan.burst)
        world.pass_time(dials.expiry_us // rounds - 1)
    world.exchange(last, waiting=0, want=0)
    for copy in hoarders:
        world.spend(copy, copy.left)
    world.exchange(last, waiting=2 * plan.burst, want=0)
    world.spend(last, last.left)
    excess = world.admissions.excess(plan) - world.admissions.lowest - plan.burst
    assert 0.75 * dials.epsilon * plan.burst <= excess <= dials.epsilon * plan.burst
