"""Inputs that broke other limiters, played on the fleet: E9 to E12, E18, E24."""

from __future__ import annotations

import random

import pytest

from enforcer.core.dials import epsilon_tokens
from enforcer.types import Plan
from tests.sim.owners import burst_over_k
from tests.sim.reduced import STANDARD, send, written
from tests.sim.traffic import Pattern as SimPattern
from tests.sim.traffic import spikes, traffic


def test_e9_traffic_that_moves_to_another_copy_is_not_refused() -> None:
    """A minute on one copy of four, then all of it on another, at 95 % of the plan."""
    chance = random.Random(9)
    at_s, requests = 0.0, []
    while (at_s := at_s + chance.expovariate(95.0)) < 120.0:
        requests.append((at_s, 0 if at_s < 60.0 else 1))
    figures = send(written(requests, seconds=120.0))
    assert figures.admitted == figures.offered


def test_e10_small_burst_over_more_copies_than_tokens_is_admitted() -> None:
    """Burst 10, 48 copies counted, then ten requests on ten different copies: a grant of burst ÷ k is none at all."""
    plan = Plan("ten", 10.0, 10)
    counting = [(0.001 * copy, copy) for copy in range(48)]
    burst = [(1.9 + 0.001 * number, 3 * number) for number in range(10)]
    before = send(written(counting, seconds=3.0), plan=plan).admitted
    figures = send(written([*counting, *burst], seconds=3.0), plan=plan)
    assert 10 == figures.admitted - before


@pytest.mark.parametrize("seed", range(3))
def test_e11_full_legal_burst_over_fifty_copies_is_admitted(seed: int) -> None:
    """The plain rule, burst divided by k, refuses a good part of it."""
    pattern = SimPattern("whole bursts", spikes(1.0, 4.0))
    requests = traffic(pattern, STANDARD, k=50, seconds=20.0, seed=seed)
    assert send(requests).wrongful_pct <= 1.0
    assert send(requests, rule=burst_over_k()).wrongful_pct > 5.0


def test_e12_first_grant_does_not_take_the_bucket() -> None:
    """Four copies of a cold caller at once; then everything goes to the last of them."""
    first = [(0.0, copy) for copy in range(4)]
    rest = [(0.01 + 0.0005 * number, 3) for number in range(196)]
    assert 200 == send(written([*first, *rest], seconds=1.0)).admitted


def test_e18_a_flood_of_one_caller_costs_less_than_an_ask_per_pause() -> None:
    """40,000 requests a second on 4 copies: calls are bounded by the pauses, not by the load."""
    chance = random.Random(18)
    requests = [(number / 40_000.0, chance.randrange(4)) for number in range(200_000)]
    figures = send(written(requests, seconds=5.0))
    shortest_pause_s, copies = 0.05, 4
    # Totals that go home by themselves come on top: they keep the pause that clients were told of, and draw no new one.
    assert figures.asks_per_s <= 1.4 * copies / shortest_pause_s
    assert 1.0 == pytest.approx(figures.rate_ratio, abs=0.05)


def test_e24_one_to_each_copy_then_everything_stays_inside_the_bound() -> None:
    """One request to each of four copies, two seconds of quiet, then 400 at once."""
    first = [(0.001 * copy, copy) for copy in range(4)]
    flood = [(2.0 + 0.0001 * number, number % 4) for number in range(400)]
    figures = send(written([*first, *flood], seconds=3.0))
    assert figures.worst_excess <= epsilon_tokens(STANDARD.burst)
    assert figures.admitted >= 200
