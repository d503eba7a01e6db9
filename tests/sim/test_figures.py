"""What the design promises of its policy, held against the product's own account and owner, fleet-wide."""

from __future__ import annotations

from statistics import mean

import pytest

from enforcer.core import sizing
from enforcer.core.account import Account
from enforcer.core.dials import Dials, epsilon_tokens
from tests.sim import fleet
from tests.sim.owners import burst_over_k
from tests.sim.reduced import KS, LARGE, STANDARD, Grid, inside_the_plan, one, wrongful_pct
from tests.sim.world import World

MEAN_PCT, WORST_PCT = 0.02, 0.2
MOST_ASKS = {4: 3.0, 30: 18.0, 120: 55.0}
MOST_ABUSE = 150.0


@pytest.fixture(scope="module")
def ours() -> Grid:
    """The product, on every pattern inside the plan."""
    return inside_the_plan()


def test_callers_inside_their_plan_are_hardly_ever_refused(ours: Grid) -> None:
    """A wrongful refusal is what we exist to prevent."""
    mean_pct, worst_pct = wrongful_pct(ours)
    assert mean_pct <= MEAN_PCT
    assert worst_pct <= WORST_PCT


def test_callers_inside_their_plan_get_the_rate_that_they_were_sold(ours: Grid) -> None:
    """Neither more nor less, whatever their pattern."""
    assert all(0.998 <= figures.rate_ratio <= 1.01 for figures in ours.values())


def test_the_plain_rule_refuses_many_times_as_much(ours: Grid) -> None:
    """Burst divided by k is what the policy has to beat, in the same simulation; and the limits can fail."""
    mean_pct, worst_pct = wrongful_pct(inside_the_plan(burst_over_k(), world=World(ahead_above_ms=1e12)))
    assert mean_pct >= 20.0 * wrongful_pct(ours)[0]
    assert mean_pct > MEAN_PCT
    assert worst_pct > WORST_PCT


@pytest.mark.parametrize("k", MOST_ASKS)
def test_a_steady_caller_costs_few_calls(k: int) -> None:
    """At 0.9 of the plan; asking for each request would cost 90."""
    assert one("poisson 0.9x", k, seconds=60.0).asks_per_s <= MOST_ASKS[k]


@pytest.mark.parametrize(("k", "most_pct"), [(4, 4.0), (30, 20.0)])
def test_a_steady_caller_seldom_waits(ours: Grid, k: int, most_pct: float) -> None:
    """A request that waits takes a round trip longer."""
    assert ours["poisson 0.9x", k].wait_pct <= most_pct


def test_floods_stay_inside_the_declared_bound() -> None:
    """Quiet for a while and then everything at once is the worst that a caller can do to idle grants."""
    floods = [one(pattern, k) for pattern in ("flood", "quietflood") for k in KS]
    assert max(figures.worst_excess for figures in floods) <= epsilon_tokens(STANDARD.burst)
    assert mean(figures.over_pct_of_burst for figures in floods) <= 25.0


def test_abuse_does_not_reach_the_owner() -> None:
    """E18's sister at 50 times the plan over 120 copies: refusing is cheaper than admitting."""
    assert one("abuse", 120).asks_per_s <= MOST_ABUSE


def test_overload_admits_the_rate_that_was_sold_and_costs_little() -> None:
    """Exact on the rate: 2 × the plan is cut to 1 ×, within half a per cent; and calls come down once it is seen."""
    figures = one("poisson 2x", 4, seconds=60.0)
    assert 1.0 == pytest.approx(figures.rate_ratio, abs=0.005)
    assert figures.asks_late_per_s <= 60.0


def test_a_large_caller_at_twice_its_plan_does_not_fill_the_owner() -> None:
    """Asking for each request would be 40,000 calls a second, more than one owner answers."""
    figures = one("poisson 2x", 240, plan=LARGE, seconds=8.0)
    assert figures.asks_late_per_s <= 4_000.0
    assert figures.over_pct_of_burst <= 100.0


def test_without_the_overdraft_the_limits_would_be_missed() -> None:
    """Mutation: whoever waits finds only what is left at the owner, while other copies sit on the rest."""
    figures = [one("onoff", k, dials=Dials(overdraft=0.0)).wrongful_pct for k in KS]
    assert max(figures) > WORST_PCT


def test_without_a_share_of_what_is_left_the_limits_would_be_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutation: stock is a share of the burst alone, so the first copies take all that is left."""

    def greedy(tokens_micro: float, *, want: int, burst: int, k: int, dials: Dials, **_: object) -> int:
        return max(0, int(min(want, burst / max(k, dials.k_floor), tokens_micro / sizing.MICRO)))

    monkeypatch.setattr(sizing, "stock_size", greedy)
    mean_pct, worst_pct = wrongful_pct({(name, k): one(name, k) for name in ("onoff", "spike") for k in KS})
    assert worst_pct > WORST_PCT
    assert mean_pct > MEAN_PCT


def test_without_slow_start_the_limits_would_be_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutation: a copy wants its whole share at once, whatever its own rate."""
    monkeypatch.setattr(Account, "_want", lambda self: self.plan.burst)
    monkeypatch.setattr(sizing, "overdraft_micro", lambda *_, **__: 0.0)
    assert max(one(name, k).wrongful_pct for name in ("onoff", "zipf") for k in KS) > WORST_PCT


def test_without_pacing_abuse_would_reach_the_owner() -> None:
    """Mutation: however far the offered load is beyond the plan, no pressure is seen."""
    assert one("abuse", 120, dials=Dials(press_from=1e9), seconds=10.0).asks_per_s > 2.0 * MOST_ABUSE


def test_a_copy_that_gives_back_every_idle_token_would_cost_too_many_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutation: with 120 copies each has less than one request a second, and is idle all the time."""
    monkeypatch.setattr(fleet, "goes_home", lambda *_: True)
    assert one("poisson 0.9x", 120, seconds=60.0).asks_per_s > MOST_ASKS[120]
