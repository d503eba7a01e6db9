"""What goes wrong in a fleet: messages lost, copies killed or stopped, the owner's clock stepped, a slow owner."""

from __future__ import annotations

import random

import pytest

from tests.sim.fleet import Fleet
from tests.sim.owners import specified
from tests.sim.reduced import STANDARD, one
from tests.sim.traffic import PATTERNS, traffic
from tests.sim.world import World

K = 30


def _world(**faults: object) -> World:
    return World(fleet=K, **faults)  # type: ignore[arg-type]  # each by the name and type of its field


def test_copies_killed_while_holding_cost_the_caller_nothing_and_stay_inside_the_bound() -> None:
    """One in thirty every second: what they held comes back when it expires, what they spent is forgiven."""
    chance = random.Random(3)
    world = _world(crashes=tuple((second + chance.random(), chance.randrange(K)) for second in range(1, 30)))
    assert 0 == one("poisson 0.9x", K, world=world).wrongful
    assert one("flood", K, world=world).over_pct_of_burst <= 100.0


def test_a_copy_that_was_stopped_does_not_spend_what_has_expired() -> None:
    """It goes on with a clock that went on, so it asks again; the bound holds."""
    freezes = tuple((3.0 * number, number, 1.0 + number) for number in range(1, 9))
    for pattern in ("flood", "quietflood"):
        assert one(pattern, K, world=_world(freezes=freezes)).over_pct_of_burst <= 100.0


@pytest.mark.parametrize("lose", [0.01, 0.1])
def test_lost_messages_refuse_nobody_who_is_inside_the_plan(lose: float) -> None:
    """A copy that hears nothing decides alone, and states its totals until they are heard."""
    for pattern in ("poisson 0.9x", "spike"):
        figures = one(pattern, K, world=_world(lose=lose))
        assert figures.wrongful_pct <= 0.2
        assert 1.0 == pytest.approx(figures.rate_ratio, abs=0.005)


def test_an_owner_that_forgets_everything_costs_a_burst_at_most() -> None:
    """A bucket is state that may be lost: its caller starts from full."""
    figures = one("poisson 2x", K, world=_world(restarts=(15.0,)))
    assert figures.admitted <= figures.oracle_admitted + 1.1 * STANDARD.burst
    assert 0 == one("poisson 0.9x", K, world=_world(restarts=(15.0,))).wrongful


@pytest.mark.parametrize("step_s", [-3_600.0, -5.0, -0.5, 5.0])
def test_a_step_of_the_owners_clock_is_hardly_felt(step_s: float) -> None:
    """A failover to a replica whose clock is behind must not refuse every caller until it has caught up."""
    world = _world(clock_steps=((15.0, step_s),))
    assert one("poisson 0.9x", K, world=world).wrongful_pct <= 0.2
    assert one("flood", K, world=world).over_pct_of_burst <= 100.0


@pytest.mark.parametrize("rtt_ms", [5, 20, 80])
def test_a_slow_owner_is_asked_ahead_and_refuses_nobody(rtt_ms: int) -> None:
    """Slow answers must cost neither refusals nor, where the next grant can be asked for early, waits."""
    world = World(rtt_us=1_000 * rtt_ms)
    steady = one("poisson 0.9x", 4, world=world)
    assert steady.wrongful_pct <= 0.2
    assert steady.wait_pct <= 1.0
    assert one("flood", K, world=world).over_pct_of_burst <= 100.0


def test_callers_that_share_an_owner_do_not_disturb_each_other() -> None:
    """300 callers over 12 copies each, and an owner that takes 25 µs for an ask and answers one after the other."""
    plans = [STANDARD] * 300
    requests = [traffic(PATTERNS["poisson 0.5x"], STANDARD, k=12, seconds=4.0, seed=seed) for seed in range(300)]
    figures = Fleet(specified(), plans, World(service_us=25.0), seed=1).run(requests)
    assert 0 == sum(one.wrongful for one in figures)
    assert max(one.over_pct_of_burst for one in figures) == 0.0
    assert max(one.wait_us_p99 for one in figures) <= 50_000.0
