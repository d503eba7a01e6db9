"""The arithmetic of lending, number by number; each trap that the simulation met has its test."""

from __future__ import annotations

import math

import pytest

from enforcer.core import sizing
from enforcer.core.dials import DEFAULT_DIALS, Dials
from enforcer.core.sizing import MICRO


def stock(
    tokens: float,
    *,
    want: int = 1_000,
    rate_per_s: float = 100.0,
    burst: int = 200,
    own_rate_per_s: float = 0.0,
    k: int = 4,
    stock_out: int = 0,
    press: float = 0.0,
) -> int:
    return sizing.stock_size(
        tokens * MICRO,
        want=want,
        rate_per_s=rate_per_s,
        burst=burst,
        own_rate_per_s=own_rate_per_s,
        k=k,
        stock_out=stock_out,
        press=press,
        dials=DEFAULT_DIALS,
    )


def wait_ms(tokens: float, *, rate_per_s: float = 100.0, k: int = 4, press: float = 0.0, jitter: float = 0.5) -> int:
    return sizing.refused_for_ms(
        tokens * MICRO,
        overdraft=0.0,
        rate_per_s=rate_per_s,
        k=k,
        press=press,
        jitter=jitter,
        dials=DEFAULT_DIALS,
    )


@pytest.mark.parametrize("part", [0.0, 0.001, 0.1, 0.5, 1.0, 2.0, 4.0, 10.0, 1e12])
def test_decay_is_close_to_the_exponential(part: float) -> None:
    """The script has no exp that is the same on every machine; the averages must still be averages."""
    assert sizing.decay(part * 500_000, 500_000) == pytest.approx(math.exp(-part), abs=0.01)


def test_decay_in_many_small_steps_is_the_decay_in_one() -> None:
    """How often a caller asks must not change how fast its average forgets."""
    small = 1.0
    for _ in range(200):
        small *= sizing.decay(5_000, 1_000_000)
    assert small == pytest.approx(sizing.decay(1_000_000, 1_000_000), rel=0.01)


def test_refill_stops_at_the_burst_less_what_was_lent_lately() -> None:
    """Tokens in idle copies would come on top of a full bucket."""
    filled = sizing.refilled(0.0, rate_per_s=100.0, burst=200, lent=50.0, elapsed_us=60_000_000)
    assert filled == 150 * MICRO


def test_refill_never_lowers_the_level() -> None:
    """What a caller has is not taken away because other tokens are out."""
    assert sizing.refilled(180 * MICRO, rate_per_s=100.0, burst=200, lent=50.0, elapsed_us=10) == 180 * MICRO


def test_whole_tokens_are_never_negative() -> None:
    """Trap: after grants expired, tokens + overdraft can be below zero; lending that would mint tokens."""
    assert sizing.whole_tokens(-49.5 * MICRO) == 0


def test_rounding_of_a_fractional_rate_does_not_withhold_a_token() -> None:
    """Ten refills of 0.1 are one token, whatever the last bit says."""
    level = 0.0
    for _ in range(10):
        level = sizing.refilled(level, rate_per_s=0.1, burst=5, lent=0.0, elapsed_us=1_000_000)
    assert sizing.whole_tokens(level) == 1


def test_overdraft_is_what_others_hold_up_to_its_share() -> None:
    """Beyond what may come back, the rate would be wrong; beyond the share, the bound."""
    assert sizing.overdraft_micro(10, burst=200, dials=DEFAULT_DIALS) == 10 * MICRO
    assert sizing.overdraft_micro(190, burst=200, dials=DEFAULT_DIALS) == 50 * MICRO


def test_stock_is_a_share_of_burst_and_of_what_is_left() -> None:
    """A bucket that lends all it has to the first copies strands the rest."""
    assert stock(200, k=4) == 50
    assert stock(100, k=4) == 25
    assert stock(200, k=50) == 4
    assert stock(200, k=240) == 0


def test_stock_is_never_more_than_wanted() -> None:
    """A copy that starts cold asks for one."""
    assert stock(200, want=1) == 1
    assert stock(200, want=0) == 0


def test_stock_of_few_copies_is_held_to_the_floor_of_k() -> None:
    """E12: until more have been counted, the first copy gets a quarter."""
    assert stock(200, k=1) == 50


def test_stock_keeps_all_lent_tokens_inside_the_bound() -> None:
    """Lent stock + overdraft = ε: the declared bound rests on this line."""
    assert stock(200, stock_out=130) == 20
    assert stock(200, stock_out=150) == 0


def test_stock_under_pressure_is_a_chunk_of_the_copys_own_spending() -> None:
    """Without it an empty bucket is asked once for each request."""
    assert stock(30, k=4, press=1.0, own_rate_per_s=250.0) == 25
    assert stock(30, k=4, press=0.0, own_rate_per_s=250.0) == 7


def test_stock_under_pressure_is_larger_for_large_plans() -> None:
    """At 20,000/s a tenth of a second is still 2,800 asks a second."""
    large = stock(9_000, rate_per_s=20_000.0, burst=40_000, k=240, press=1.0, own_rate_per_s=400.0)
    assert large == 100


def test_stock_from_an_overdrawn_bucket_is_none() -> None:
    """Also under pressure."""
    assert stock(-20, press=1.0, own_rate_per_s=500.0) == 0


@pytest.mark.parametrize(
    ("offered", "press"), [(0.0, 0.0), (100.0, 0.0), (110.0, 0.0), (125.0, 0.5), (140.0, 1.0), (9e9, 1.0)]
)
def test_pressure_rises_from_just_above_the_plan(offered: float, press: float) -> None:
    """A caller at its plan is not paced; one at 1.4 times it is in full."""
    assert sizing.pressure(offered, rate_per_s=100.0, dials=DEFAULT_DIALS) == pytest.approx(press)


def test_wait_is_the_time_to_one_token() -> None:
    """E8: Retry-After is never earlier than true, and not later than need be."""
    assert wait_ms(0.2, rate_per_s=1.0) == 800
    assert wait_ms(1.0) == 0
    assert wait_ms(-1.0) == 20
    assert wait_ms(0.0, rate_per_s=1 / 86_400) == 86_400_000


def test_wait_counts_what_the_overdraft_will_give() -> None:
    """Else a copy would refuse by itself what the owner would serve."""
    wait = sizing.refused_for_ms(
        -50 * MICRO, overdraft=50 * MICRO, rate_per_s=100.0, k=4, press=0.0, jitter=0.0, dials=DEFAULT_DIALS
    )
    assert wait == 10


def test_wait_under_pressure_grows_with_k_and_is_spread() -> None:
    """Trap: "come back when one token is there", told to k copies, makes k × rate asks a second."""
    assert wait_ms(0.0, k=4, press=1.0, jitter=0.5) == 100
    assert wait_ms(0.0, k=60, press=1.0, jitter=0.5) == 600
    assert wait_ms(0.0, k=60, press=1.0, jitter=0.0) == 300
    assert wait_ms(0.0, k=240, press=1.0, jitter=0.9) == 1_000
    assert wait_ms(5.0, k=240, press=1.0, jitter=0.9) == 0


def test_average_of_offered_load_spans_two_bursts_of_refill() -> None:
    """A legal burst must not look like overload, and a second is the least that can be told apart."""
    assert sizing.offered_constant_us(rate_per_s=100.0, burst=200, dials=DEFAULT_DIALS) == 4_000_000
    assert sizing.offered_constant_us(rate_per_s=1_000.0, burst=10, dials=Dials()) == 1_000_000
