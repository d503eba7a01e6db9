"""How a copy decides alone: fail static, by plan and by route.

Small plans get their full bucket in each copy and may be over-admitted; large plans get their share of the fleet and
may be refused. Pure: time and state are arguments. Never protects the service: that is the cap's work.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import msgspec

from enforcer.types import Plan, Reason

if TYPE_CHECKING:
    from enforcer.policies.limits import Per
    from enforcer.policies.model import FailMode, Policy


class Fallback(msgspec.Struct, frozen=True):
    """The local bucket that stands in for the owner, and the reason it gives when it refuses.

    A `capacity` of 0 refuses everything.
    """

    rate_per_s: float
    capacity: float
    reason: Reason


#: Forgives the rounding of fractions of tokens, so that retrying at the stated time is admitted.
_EPSILON_TOKENS = 1e-6

_CLOSED = Fallback(0.0, 0.0, Reason.CLOSED)


class FailRule(msgspec.Struct, frozen=True):
    """What a policy says about deciding alone, as numbers."""

    copies: int
    ceiling_per_s: float | None
    large_share: float


def fail_rule(policy: Policy) -> FailRule:
    """The numbers of a policy's `fleet` and `fail`."""
    return FailRule(policy.fleet.copies, policy.fleet.ceiling_per_s, policy.fail.large_share)


def is_large(rule: FailRule, plan: Plan, *, k: int) -> bool:
    """Whether the full plan in each of k copies would weigh too much on the fleet.

    `k` is 0 if it was never counted; then all copies are assumed. A plan that is smaller than the number of copies is
    never large: its share would round to nothing.
    """
    if rule.ceiling_per_s is None or plan.rate_per_s < rule.copies or plan.burst < rule.copies:
        return False
    return (k or rule.copies) * plan.rate_per_s > rule.large_share * rule.ceiling_per_s


def fallback(rule: FailRule, plan: Plan, mode: FailMode, *, k: int, per: Per | None = None) -> Fallback:
    """The bucket for one limit and route while the owner is away.

    A quota (`per`) is divided by the copies whatever its size: what is left of it nobody knows, and a full one in each
    copy would be spent many times over.
    """
    if mode.value == "closed":
        return _CLOSED
    if mode.value == "open_capped" and rule.ceiling_per_s is not None:
        share = rule.ceiling_per_s / rule.copies
        return Fallback(share, max(1.0, share), Reason.CEILING)
    if mode.value == "emergency" or per is not None or is_large(rule, plan, k=k):
        share = max(1.0, plan.burst / rule.copies)
        return Fallback(plan.rate_per_s / rule.copies, share, Reason.EMERGENCY)
    return Fallback(plan.rate_per_s, float(plan.burst), Reason.SPENT)


class LocalBucket:
    """A token bucket of this copy alone. Outlives the outage, so that outages do not add up.

    Starts full, or with what the owner had left if that is less: an ask that was lost is no reason to hand out what the
    caller had just spent.
    """

    __slots__ = ("_at_ns", "_tokens")

    def __init__(self, now_ns: int, kind: Fallback, *, left: float = math.inf) -> None:
        self._at_ns = now_ns
        self._tokens = min(kind.capacity, left)

    def take(self, kind: Fallback, cost: int, now_ns: int) -> int | None:
        """Spend `cost` tokens if they are there.

        Returns:
            0 if they were spent; else the milliseconds until they would be there; None if this bucket never holds
            that many.
        """
        self._refill(kind, now_ns)
        if self._tokens + _EPSILON_TOKENS >= cost:
            self._tokens = max(0.0, self._tokens - cost)
            return 0
        if cost > kind.capacity or kind.rate_per_s <= 0:
            return None
        return math.ceil((cost - self._tokens) * 1e3 / kind.rate_per_s)

    def is_full(self, kind: Fallback, now_ns: int) -> bool:
        """Whether it holds what a new one would."""
        gained = max(0, now_ns - self._at_ns) * kind.rate_per_s / 1e9
        return self._tokens + gained + _EPSILON_TOKENS >= kind.capacity

    def lower(self, kind: Fallback, left: float, now_ns: int) -> None:
        """The owner was heard again: there is no more here than it has left."""
        self._refill(kind, now_ns)
        self._tokens = min(self._tokens, left)

    def put_back(self, cost: int) -> None:
        """Undo a `take` that came to nothing."""
        self._tokens += cost

    @property
    def remaining(self) -> int:
        """Whole tokens left at the last `take`."""
        return int(self._tokens)

    def _refill(self, kind: Fallback, now_ns: int) -> None:
        gained = max(0, now_ns - self._at_ns) * kind.rate_per_s / 1e9
        self._tokens = min(kind.capacity, self._tokens + gained)
        self._at_ns = max(now_ns, self._at_ns)
