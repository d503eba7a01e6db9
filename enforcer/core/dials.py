"""The dials of the owner: one frozen value that the specification and the script are both given.

Holds no plan and no state, and is never read from the environment here.
"""

from __future__ import annotations

import math

import msgspec

from enforcer.errors import InvalidField

#: No time that is stored lies beyond it: a double still counts single microseconds there.
LATEST_US = 1 << 52
#: Longest time that a bucket is kept for: about 63 years, so that sums with it stay below `LATEST_US`.
LONGEST_US = 2_000_000_000_000_000


class Dials(msgspec.Struct, frozen=True, cache_hash=True):
    """How the owner lends. The defaults are the policy R* of the design's simulation.

    Attributes:
        expiry_us: how long a copy may spend a grant.
        grace_us: how long after that the owner still waits for its settlement, before it gives the grant back.
        keep_us: how long a given-back grant can still be settled, and an idle member is remembered.
        k_window_us: over what span distinct copies are counted.
        k_floor: copies that a bucket is shared among while fewer have been counted.
        epsilon: the declared bound on over-admission, in bursts.
        overdraft: how far the waiting may draw on tokens that other copies hold unspent, in bursts; part of `epsilon`.
        lent_decay_us: time constant in which lent tokens stop holding back the refill.
        offered_min_us: shortest time constant of the offered load's average; 2 bursts ÷ rate if that is longer.
        press_from: offered load, in parts of the rate, at which pacing begins.
        press_span: how much further it rises until pacing is full.
        chunk_us: a copy's stock under pressure, in time of its own spending.
        chunk_large_us: the same for plans of `large_rate_per_s` and more.
        large_rate_per_s: where those plans begin.
        pause_min_us, pause_max_us: bounds of the pause between the asks of a copy under full pressure.
        clock_back_us: a clock that moves back by more than this is a new clock, not jitter: time goes on from there.
    """

    expiry_us: int = 5_000_000
    grace_us: int = 1_000_000
    keep_us: int = 60_000_000
    k_window_us: int = 2_000_000
    k_floor: int = 4
    epsilon: float = 1.0
    overdraft: float = 0.25
    lent_decay_us: int = 500_000
    offered_min_us: int = 1_000_000
    press_from: float = 1.1
    press_span: float = 0.3
    chunk_us: int = 100_000
    chunk_large_us: int = 250_000
    large_rate_per_s: float = 1_000.0
    pause_min_us: int = 100_000
    pause_max_us: int = 1_000_000
    clock_back_us: int = 1_000_000

    def __post_init__(self) -> None:
        """Refuse values with which the rules would not hold.

        Raises:
            InvalidField: names the dial, its value and what is allowed.
        """
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if not math.isfinite(value) or value < 0:
                raise InvalidField(name, value, "a finite number, 0 or more")
            if name.endswith("_us") and value > LONGEST_US:
                raise InvalidField(name, value, f"at most {LONGEST_US} microseconds")
        for name in ("expiry_us", "keep_us", "k_window_us", "k_floor", "lent_decay_us", "offered_min_us", "press_span"):
            if getattr(self, name) <= 0:
                raise InvalidField(name, getattr(self, name), "a number above 0")
        if self.overdraft > self.epsilon:
            raise InvalidField("overdraft", self.overdraft, f"at most epsilon, which is {self.epsilon}")


#: The dials of every owner that is not given others.
DEFAULT_DIALS = Dials()


def epsilon_tokens(burst: int, dials: Dials = DEFAULT_DIALS, *, copies: int = 0, largest_cost: int = 1) -> float:
    """How many tokens more than ``burst + rate × t`` may be admitted in any span of t seconds.

    Why it holds. Let T be the bucket's tokens and S the unspent stock in the hands of copies. What is admitted between
    two moments is at most ``T + S`` at the first, plus the refill, less T at the second. T never passes the burst.
    Stock is lent only up to ``(epsilon - overdraft) × burst`` in all, so S is never more. Waiting requests draw T down
    to ``-overdraft × burst`` at most. Together: ``burst + (epsilon - overdraft) × burst + overdraft × burst``.

    A waiting request counts at the moment when the owner debited it. Requests of several tokens may find less than they
    need and leave that with the copy: up to ``largest_cost - 1`` tokens for each of `copies`. Not in it: what a copy
    spent and then never settled (it crashed); the owner gives an expired grant back in good faith, and the ledger
    shows it. Nor what copies decide while they cannot reach the owner, nor what a restart without
    its memory costs: docs/decisions/0006 has the bounds of that.

    A calendar quota has ε = 0: what is lent is debited from the period's amount at once, nothing is drawn on, and an
    expired grant counts as spent until its total is known. So never more than the amount is admitted in a period.
    """
    return dials.epsilon * burst + copies * (largest_cost - 1)
