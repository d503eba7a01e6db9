"""How much to lend, and how long to refuse: arithmetic of the owner, in plain numbers.

Every function mirrors a passage of `owners/lua/grant.lua` and uses only operations that give the same double in both
(no exp, no pow). Tokens in the bucket are counted in millionths (`micro`), because rate per second × microseconds is
just that: whole rates stay exact. Never reads a clock, never keeps state.
"""

from __future__ import annotations

import math

from enforcer.core.dials import Dials

#: Millionths of a token in a token.
MICRO = 1_000_000.0
#: Millionths that the rounding of a fractional rate may have left out; a token is not withheld for them.
ROUNDING = 0.001


def decay(elapsed_us: float, constant_us: float) -> float:
    """What is left of 1 after `elapsed_us`: e to the minus elapsed/constant, within 0.01 of it, without exp."""
    part = elapsed_us / constant_us / 4.0
    grown = 1.0 + part + part * part * 0.5
    square = grown * grown
    return 1.0 / (square * square)


def refilled(tokens_micro: float, *, rate_per_s: float, burst: int, lent: float, elapsed_us: float) -> float:
    """The bucket after a span of refill: up to the burst less what was lent lately, and never lower than it was."""
    most = (burst - lent) * MICRO
    return max(tokens_micro, min(most, tokens_micro + rate_per_s * elapsed_us))


def overdraft_micro(stock_out: int, *, burst: int, dials: Dials) -> float:
    """What the waiting may draw beyond the bucket: stock in other hands, up to a share of the burst."""
    return min(float(stock_out), dials.overdraft * burst) * MICRO


def whole_tokens(micro: float) -> int:
    """Whole tokens in a count of millionths; never negative, or the owner would mint."""
    return max(0, math.floor((micro + ROUNDING) / MICRO))


def offered_constant_us(*, rate_per_s: float, burst: int, dials: Dials) -> float:
    """Time constant of the average of the offered load: two bursts' worth of refill, or the shortest allowed."""
    return max(2.0 * burst / rate_per_s * 1_000_000.0, float(dials.offered_min_us))


def pressure(offered_per_s: float, *, rate_per_s: float, dials: Dials) -> float:
    """How far the offered load is beyond the plan: 0 inside it, 1 at full pacing.

    Built on offered load, not on refusals: pacing removes refusals, and would remove its own cause.
    """
    return min(1.0, max(0.0, (offered_per_s / rate_per_s - dials.press_from) / dials.press_span))


def share(tokens_micro: float, *, want: int, burst: int, k: int, dials: Dials) -> float:
    """What one of k copies may be lent: a share of the burst, and of what is left; never more than it wants."""
    shared_by = float(max(k, dials.k_floor))
    left = (tokens_micro + ROUNDING) / MICRO
    return min(float(want), burst / shared_by, left / shared_by)


def stock_size(
    tokens_micro: float,
    *,
    want: int,
    rate_per_s: float,
    burst: int,
    own_rate_per_s: float,
    k: int,
    stock_out: int,
    press: float,
    dials: Dials,
) -> int:
    """Tokens to lend beyond what waits: from real tokens only, a share by k of the burst and of what is left.

    Args:
        tokens_micro: the bucket after the waiting were served.
        want: what the copy would hold.
        rate_per_s: of the plan.
        burst: of the plan.
        own_rate_per_s: the copy's own spending.
        k: copies counted; `Dials.k_floor` is taken if it is more.
        stock_out: tokens already lent; the total stays inside ``(epsilon - overdraft) × burst``.
        press: from `pressure`.
        dials: of the owner.
    """
    size = share(tokens_micro, want=want, burst=burst, k=k, dials=dials)
    if press > 0.0:
        left = (tokens_micro + ROUNDING) / MICRO
        chunk_us = dials.chunk_large_us if rate_per_s >= dials.large_rate_per_s else dials.chunk_us
        size = max(size, min(own_rate_per_s * chunk_us / 1_000_000.0, burst / float(max(k, dials.k_floor)), left))
    size = min(size, (dials.epsilon - dials.overdraft) * burst - stock_out)
    return max(0, math.floor(size))


def refused_for_ms(
    tokens_micro: float,
    *,
    overdraft: float,
    rate_per_s: float,
    k: int,
    press: float,
    jitter: float,
    dials: Dials,
) -> int:
    """How long a copy refuses by itself once its grant is spent: until one token can be given, longer under pressure.

    One moment for all k copies would bring k asks for one token, so under pressure the pause grows with k and is spread
    by `jitter`.
    """
    # Not less ROUNDING, though that would do to be served: what rounds off until then is inside it.
    wait_us = max(0.0, (MICRO - (tokens_micro + overdraft)) / rate_per_s)
    if press > 0.0 and tokens_micro < MICRO - ROUNDING:
        pause_us = press * press * max(float(dials.pause_min_us), k / rate_per_s * 1_000_000.0) * (0.5 + jitter)
        wait_us = max(wait_us, min(float(dials.pause_max_us), pause_us))
    return math.ceil(wait_us / 1_000.0)
