"""The limiter that a gateway holds: a verdict for each request, from the grant in hand or, without one, from the owner.

Never raises for a refusal, never waits for the record, and never asks the owner while it holds a grant.

The limiter is the fairness: who may have how much. It does not know whether the service is saturated; the protection is
`enforcer.cap`, which in turn knows nobody.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from enforcer.core.rooms import Room, named_room, room_of_verdict
from enforcer.identity import format_request_id
from enforcer.limiting.arguments import invalid_cost, validate_request
from enforcer.limiting.engine import Engine
from enforcer.limiting.lane import Lane, Legs
from enforcer.limiting.rooms import all_rooms, room_held
from enforcer.policies.limits import MAX_COST_TOKENS
from enforcer.types import Reason, Source, Verdict, outcome_code

_REFUSED_LOCALLY = outcome_code(Source.LOCAL, Reason.SPENT)
_DEGRADED = int(Source.DEGRADED)


class Limiter(Engine):
    """Decides, in one copy, about all callers of one policy.

    Safe for any number of threads and event loops, in the process that built it. In a fork of that it decides nothing:
    see `PerProcess`.

    Attributes:
        again: builds its like in another process; None where nobody said how.
    """

    again: Callable[[], Limiter] | None = None

    def check(self, caller: str, scope: str = "default", cost: int | None = None) -> Verdict:
        """Decide about one request. Without a grant it blocks this thread, at most the policy's `ask_ms`.

        Args:
            caller: whose limit is charged: 1 to 256 printable characters, never a credential.
            scope: class of the request, 1 to 256 printable characters.
            cost: tokens, from 0, which is always admitted; None for what the policy says of the scope.

        A request that is interrupted while it waits is treated as one that is cancelled: see `acheck`.

        Raises:
            InvalidField: an argument is not of that form. Nothing is recorded.
            EnforcerError: the limiter is closed; a `ConfigError` if this process was forked from the limiter's.
        """
        now_ns = self._now()
        try:
            lane = self._lanes[caller, scope]
        except (KeyError, TypeError):
            lane = self._new_lane(caller, scope)
        if cost is None:
            cost = lane.cost
        elif cost.__class__ is not int or not 0 <= cost <= MAX_COST_TOKENS:
            raise invalid_cost(cost)
        lease = lane.lease
        # Between this read and the last store there is no call, so no other thread runs in between under the GIL.
        left = lease.left - cost
        if left >= 0:
            if now_ns < lease.until_ns:
                lease.left = left
                seq = self._seq
                self._seq = seq + 1
                verdict = Verdict(seq, now_ns, lane.basis, True, 0, cost, left, 0)
                self._capture(verdict)
                if left < lease.low:
                    self._ask_ahead(lane)
                return verdict
        elif now_ns < lease.refused_until_ns and cost == 1:
            lease.left = left
            seq = self._seq
            self._seq = seq + 1
            verdict = Verdict(seq, now_ns, lane.basis, False, _REFUSED_LOCALLY, 1, 0, lease.ready_at_ns)
            self._capture(verdict)
            return verdict
        if lane.legs is not None and (several := self._several(lane.legs, lane, cost, now_ns)) is not None:
            return several
        decided = self._slow(lane, cost, now_ns, None)
        return decided if isinstance(decided, Verdict) else self._wait(decided)

    async def acheck(self, caller: str, scope: str = "default", cost: int | None = None) -> Verdict:
        """Decide about one request. Without a grant it waits in this event loop, at most the policy's `ask_ms`.

        Arguments and errors are those of `check`. A request that is cancelled before it is decided spends nothing, and
        is not recorded; if the decision was made, and only its caller not told, it stands, and is refunded.
        """
        now_ns = self._now()
        try:
            lane = self._lanes[caller, scope]
        except (KeyError, TypeError):
            lane = self._new_lane(caller, scope)
        if cost is None:
            cost = lane.cost
        elif cost.__class__ is not int or not 0 <= cost <= MAX_COST_TOKENS:
            raise invalid_cost(cost)
        lease = lane.lease
        # As in `check`, line by line: a call to a shared function would be a seventh of the price of a decision.
        left = lease.left - cost
        if left >= 0:
            if now_ns < lease.until_ns:
                lease.left = left
                seq = self._seq
                self._seq = seq + 1
                verdict = Verdict(seq, now_ns, lane.basis, True, 0, cost, left, 0)
                self._capture(verdict)
                if left < lease.low:
                    self._ask_ahead(lane)
                return verdict
        elif now_ns < lease.refused_until_ns and cost == 1:
            lease.left = left
            seq = self._seq
            self._seq = seq + 1
            verdict = Verdict(seq, now_ns, lane.basis, False, _REFUSED_LOCALLY, 1, 0, lease.ready_at_ns)
            self._capture(verdict)
            return verdict
        if lane.legs is not None and (several := self._several(lane.legs, lane, cost, now_ns)) is not None:
            return several
        decided = self._slow(lane, cost, now_ns, asyncio.get_running_loop())
        return decided if isinstance(decided, Verdict) else await self._wait_async(decided)

    def check_in_shadow(self, caller: str, scope: str = "default", cost: int | None = None) -> None:
        """Find out what the limits would say about a request, and decide nothing: nobody waits, nothing is recorded.

        They are charged in buckets of their own, which no enforced limit shares. What they would refuse goes to the
        sink as `WouldRefuse`, also later, when an owner has answered.

        Arguments and errors are those of `check`.
        """
        validate_request(caller, scope, cost)
        with self._lock:
            lane = self._open_lane(caller, scope)
            for account in self._directory.in_shadow(lane, self._now()):
                self._askers.ask_in_shadow(lane, account, lane.cost if cost is None else cost)

    def request_id(self, verdict: Verdict) -> str:
        """The id by which support finds this decision."""
        return format_request_id(self.identity, verdict.seq)

    def rooms(self, verdict: Verdict) -> tuple[Room, ...]:
        """What each limit of the request has left, for the `RateLimit` header; the plan's own rate stands first.

        Of one moment, and only of limits that can refuse. It is what this copy holds and what the owner still had at
        its last answer; of the limit that refused it is what the verdict says. Where the policy has changed since, it
        is of that limit alone.
        """
        basis = verdict.basis
        lane = self._lanes.get((basis.standing.caller, basis.scope))
        if lane is None:
            return (room_of_verdict(verdict),)
        accounts, decider = lane.accounts, verdict.code >> 4
        if verdict.allowed and decider != _DEGRADED:
            now_ns = verdict.at_ns
            if len(accounts) == 1:
                return (room_held(accounts[0], now_ns),)
            with self._lock:
                return tuple([room_held(account, now_ns) for account in accounts])
        if len(accounts) == 1 and verdict.code == _REFUSED_LOCALLY and verdict.cost == 1:
            return (room_of_verdict(verdict),)
        with self._lock:
            return all_rooms(
                lane, verdict, is_away=self._askers.is_away, rule=self._fail_rule, open_capped=self._open_capped
            )

    def room(self, verdict: Verdict) -> int:
        """Tokens that the caller may expect to have left of the limit that the verdict names. See `rooms`."""
        return named_room(self.rooms(verdict), verdict).left

    def tend(self) -> None:
        """Do once what the background thread does: ask, settle what fell idle, probe. For `threaded=False`."""
        self._askers.step()

    def _several(self, legs: Legs, lane: Lane, cost: int, now_ns: int) -> Verdict | None:
        """The fast path of a request with several limits: all admit, or none is charged. None if it needs the lock."""
        first, second, third, fourth = legs.leases
        # From here to the last store there is no call and no loop, so no other thread runs in between under the GIL.
        left_1 = first.left - cost
        left_2 = second.left - cost
        left_3 = third.left - cost
        left_4 = fourth.left - cost
        if left_1 >= 0 and left_2 >= 0 and left_3 >= 0 and left_4 >= 0:
            if not (
                now_ns < first.until_ns
                and now_ns < second.until_ns
                and now_ns < third.until_ns
                and now_ns < fourth.until_ns
            ):
                return None
            first.left = left_1
            second.left = left_2
            third.left = left_3
            fourth.left = left_4
            seq = self._seq
            self._seq = seq + 1
            left = min((left_1, left_2, left_3, left_4)[: legs.enforced])
            verdict = Verdict(seq, now_ns, legs.basis, True, 0, cost, left, 0)
            self._capture(verdict)
            if left_1 < first.low or left_2 < second.low or left_3 < third.low or left_4 < fourth.low:
                self._ask_ahead(lane)
            return verdict
        return self._refuse_several(legs, now_ns) if cost == 1 else None

    def _refuse_several(self, legs: Legs, now_ns: int) -> Verdict | None:
        """Refuse by the limit with the longest wait, without the lock; None if the owner may be asked."""
        ready_ns, number, refuses = now_ns, -1, False
        for at in range(legs.enforced):
            lease = legs.leases[at]
            if lease.left <= 0 and lease.ready_at_ns > now_ns:
                if lease.refused_until_ns > now_ns:
                    refuses = True
                if lease.ready_at_ns > ready_ns:
                    ready_ns, number = lease.ready_at_ns, at
        if not refuses:
            return None
        refusing = legs.leases[number]
        # Read anew, and no call until it is stored: meanwhile another thread may have turned to the next grant.
        left = refusing.left
        if left > 0 or refusing.ready_at_ns != ready_ns:
            return None
        refusing.left = left - 1
        seq = self._seq
        self._seq = seq + 1
        verdict = Verdict(seq, now_ns, legs.refusals[number], False, _REFUSED_LOCALLY, 1, 0, ready_ns)
        self._capture(verdict)
        return verdict
