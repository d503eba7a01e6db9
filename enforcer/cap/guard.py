"""The cap by the policy in force, in front of a limiter: a request that finds no room is refused, and recorded.

It charges nothing and asks nobody. The slot is taken before the limiter is asked: what cannot be served should not
cost its caller anything.
"""

from __future__ import annotations

import math

from enforcer.cap.cap import Cap, Slot
from enforcer.clock import Clock, SystemClock
from enforcer.core.adapting import Adapting, AdaptingDials
from enforcer.core.inflight import Priority
from enforcer.forking import tell_of_forks
from enforcer.limiting.limiter import Limiter
from enforcer.policies.cap import CapRule
from enforcer.policies.model import Fleet, Policy
from enforcer.types import Verdict

#: The adaptive bound is at least the most divided by this.
_LEAST_SHARE = 10


class CapGuard:
    """One copy's cap; give it to the middleware. It follows ``cap``, ``fleet`` and the scopes' ``priority``.

    A policy without ``cap`` has no bound, and requests in flight are only counted.

    Attributes:
        cap: what counts, for metrics.
    """

    def __init__(self, *, clock: Clock | None = None, dials: AdaptingDials | None = None) -> None:
        """Start empty; the bound is taken from the policy at the first request, and whenever that changes.

        Args:
            clock: for an adaptive bound; None: the machine's.
            dials: how an adaptive bound moves; None: the defaults.
        """
        self._clock = clock if clock is not None else SystemClock()
        self._dials = dials if dials is not None else AdaptingDials()
        self._policy: Policy | None = None
        self._sized: tuple[CapRule | None, Fleet] | None = None
        self.cap = Cap(clock=self._clock)
        tell_of_forks(self)

    def after_fork(self) -> None:
        """See `Forkable`: an adaptive bound begins anew; another thread may have been moving it."""
        self._policy = self._sized = None

    def enter(self, limiter: Limiter, caller: str, scope: str, cost: int | None = None) -> Slot | Verdict:
        """A slot to hold until the response is finished, or the refusal, which is recorded.

        Raises:
            InvalidField: caller, scope or cost is not of the form that `Limiter.check` takes, and there is no room.
        """
        policy = limiter.policy
        if policy is not self._policy:
            self._follow(policy)
        rule = policy.scopes.get(scope)
        slot = self.cap.take(rule.priority if rule is not None else Priority.NORMAL)
        if slot is not None:
            return slot
        return limiter.refuse_for_cap(caller, scope, cost, wait_ms=_turn_ms(policy.cap))

    def _follow(self, policy: Policy) -> None:
        """Take another policy's bound; if that is the same, what an adaptive one has learned is kept."""
        sized = (policy.cap, policy.fleet)
        if sized != self._sized:
            rule, fleet = sized
            rooms = None if rule is None else rule.rooms(ceiling_per_s=fleet.ceiling_per_s, copies=fleet.copies)
            adapting = None
            if rule is not None and rooms is not None and rule.adaptive:
                least = max(1, rooms.high // _LEAST_SHARE)
                now_ns = self._clock.monotonic_ns()
                adapting = Adapting(least=least, most=rooms.high, now_ns=now_ns, dials=self._dials)
            self.cap.resize(rooms, adapting=adapting)
        self._sized = sized
        self._policy = policy


def _turn_ms(rule: CapRule | None) -> int:
    """How long to wait: in one latency everything that is in flight now is finished. Nobody can promise more."""
    return math.ceil(rule.latency_ms) if rule is not None else 1
