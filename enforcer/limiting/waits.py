"""How a request waits for what is not held: in a thread or in an event loop, for its timeout at most.

It never asks an owner: the askers do. What nobody waits for any more is not decided, or is given back.
"""

from __future__ import annotations

import asyncio

from enforcer.core.account import Account
from enforcer.errors import EnforcerError
from enforcer.limiting.charging import Charging
from enforcer.limiting.decisions import Case
from enforcer.limiting.lane import Lane
from enforcer.limiting.waiter import Waiter
from enforcer.settings import LimiterSettings
from enforcer.types import Source, Verdict


class Waits(Charging):
    """The part of an `Engine` between a request that cannot be decided at once and its verdict."""

    _settings: LimiterSettings
    _timeout_s: float

    def _slow(self, lane: Lane, cost: int, now_ns: int, loop: asyncio.AbstractEventLoop | None) -> Verdict | Waiter:
        """Decide off the fast path, or have the request wait."""
        with self._lock:
            self._life.require()
            if any(account.evicted for account in lane.accounts):
                lane = self._open_lane(lane.caller, lane.scope)
            outcome = self.decide(self._askers, Case(lane, cost, now_ns, Source.LOCAL), final=False)
            if isinstance(outcome, Verdict):
                return outcome
            waiter = Waiter(lane, cost, loop, since_ns=now_ns)
            self._askers.line_up(waiter, outcome)
            return waiter

    def _wait(self, waiter: Waiter) -> Verdict:
        try:
            if self._settings.threaded:
                waiter.wait(self._timeout_s)
            else:
                self._askers.step()
            return self._outcome(waiter)
        except BaseException:  # as of a signal's handler: whoever asked never gets the verdict
            self._give_up(waiter)
            raise

    async def _wait_async(self, waiter: Waiter) -> Verdict:
        try:
            if self._settings.threaded:
                await waiter.wait_async(self._timeout_s)
            else:
                self._askers.step()
            return self._outcome(waiter)
        except BaseException:  # cancelled above all
            self._give_up(waiter)
            raise

    def _give_up(self, waiter: Waiter) -> None:
        """Nobody waits for this decision any more: it is not made; one that is made stands, and is refunded."""
        with self._lock:
            waiter.gone = True
            verdict = waiter.verdict
            if verdict is not None and verdict.allowed and verdict.cost and not self._life.is_over:
                self._charge(verdict, 0)

    def _outcome(self, waiter: Waiter) -> Verdict:
        """The askers' decision; if there is none by now, this copy's own."""
        with self._lock:
            if waiter.verdict is not None:
                return waiter.verdict
            waiter.gone = True
            self._askers.overdue(waiter)
            return self._decide_alone(waiter)

    def _decide_alone(self, waiter: Waiter) -> Verdict:
        """Decide about a request for which an owner's answer did not come. With the lock held."""
        case = Case(waiter.lane, waiter.cost, self._now(), Source.LOCAL)
        outcome = self.decide(self._askers, case, final=True)
        if not isinstance(outcome, Verdict):
            raise EnforcerError(f"a final decision named {len(outcome)} owners to ask")
        return outcome

    def _settle(self, waiter: Waiter, asked: Account, now_ns: int) -> Verdict | None:
        """Decide by the answer for one account; None if the request waits for others, or again. With the lock held."""
        case = Case(waiter.lane, waiter.cost, now_ns, Source.SHARED)
        outcome = self.decide(self._askers, case, final=False)
        if isinstance(outcome, Verdict):
            return outcome
        if waiter.lane.is_plain:
            return self.refuse(case, 0)
        # Another request took tokens that were given for this one: it asks again, in its turn.
        waiter.counted.discard(asked)
        self._askers.line_up(waiter, outcome)
        return None
