"""The limiter that a gateway holds: a verdict for each request, from the grant in hand or, without one, from the owner.

Never raises for a refusal, never waits for the record, and never asks the owner while it holds a grant.
"""

from __future__ import annotations

import asyncio
import logging

from enforcer.clock import Clock, SystemClock
from enforcer.core.account import Account
from enforcer.core.degrade import fail_rule
from enforcer.errors import EnforcerError, InvalidField
from enforcer.identity import CopyIdentity, format_request_id
from enforcer.limiting.alone import decide_alone
from enforcer.limiting.asker import Asker
from enforcer.limiting.directory import Directory, validate_name
from enforcer.limiting.lane import Decisions, Lane, Waiter
from enforcer.limiting.settling import too_late
from enforcer.owners.port import Owner
from enforcer.policies.model import MAX_COST_TOKENS, FailMode, Policy
from enforcer.settings import LimiterSettings
from enforcer.sink import Sink
from enforcer.types import Reason, Source, Verdict, outcome_code

log = logging.getLogger("enforcer")

_REFUSED_LOCALLY = outcome_code(Source.LOCAL, Reason.SPENT)
_NEVER = outcome_code(Source.LOCAL, Reason.NEVER)
_DEGRADED = int(Source.DEGRADED)


class Limiter(Decisions):
    """Decides, in one copy, about all callers of one policy.

    Safe for any number of threads and event loops. Build it after a fork: it has a thread of its own.
    """

    def __init__(
        self,
        policy: Policy,
        owner: Owner,
        sink: Sink,
        identity: CopyIdentity,
        *,
        settings: LimiterSettings | None = None,
        clock: Clock | None = None,
    ) -> None:
        settings = settings or LimiterSettings()
        clock = clock or SystemClock()
        super().__init__(sink.capture, clock, policy_version=policy.version, fast=not settings.takes_lock)
        self.policy = policy
        self.identity = identity
        self._owner = owner
        self._sink = sink
        self._settings = settings
        self._timeout_s = policy.timeouts.ask_ms / 1e3
        self._fail_rule = fail_rule(policy)
        self._directory = Directory(policy, max_callers=settings.max_callers)
        self._lanes = self._directory.lanes
        self._closed = False
        member = f"{identity.copy_id}/{identity.epoch}"
        self._asker = Asker(owner, sink, self, self._decide_waiting, member=member, clock=clock, settings=settings)
        self._asker.tending.forget = self._directory.forget
        if settings.threaded:
            self._asker.start()

    @property
    def degraded(self) -> bool:
        """Whether requests without a grant are decided by this copy alone, because the owner is away."""
        return self._asker.alone

    def check(self, caller: str, scope: str = "default", cost: int | None = None) -> Verdict:
        """Decide about one request. Without a grant it blocks this thread, at most the policy's `ask_ms`.

        Args:
            caller: whose limit is charged: 1 to 256 printable characters, never a credential.
            scope: class of the request, 1 to 256 printable characters.
            cost: tokens, from 1; None for what the policy says of the scope.

        Raises:
            InvalidField: an argument is not of that form. Nothing is recorded.
            EnforcerError: the limiter is closed.
        """
        now_ns = self._now()
        try:
            lane = self._lanes[caller, scope]
        except (KeyError, TypeError):
            lane = self._new_lane(caller, scope)
        if cost is None:
            cost = lane.cost
        elif cost.__class__ is not int or not 0 < cost <= MAX_COST_TOKENS:
            raise _invalid_cost(cost)
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
        elif now_ns < (until_ns := lease.refused_until_ns) and cost == 1:
            lease.left = left
            seq = self._seq
            self._seq = seq + 1
            verdict = Verdict(seq, now_ns, lane.basis, False, _REFUSED_LOCALLY, 1, 0, until_ns)
            self._capture(verdict)
            return verdict
        decided = self._decide(lane, cost, now_ns, None)
        if isinstance(decided, Verdict):
            return decided
        if self._settings.threaded:
            decided.wait(self._timeout_s)
        else:
            self._asker.step()
        return self._outcome(decided)

    async def acheck(self, caller: str, scope: str = "default", cost: int | None = None) -> Verdict:
        """Decide about one request. Without a grant it waits in this event loop, at most the policy's `ask_ms`.

        Arguments and errors are those of `check`. A request that is cancelled before it is decided spends nothing.
        """
        now_ns = self._now()
        try:
            lane = self._lanes[caller, scope]
        except (KeyError, TypeError):
            lane = self._new_lane(caller, scope)
        if cost is None:
            cost = lane.cost
        elif cost.__class__ is not int or not 0 < cost <= MAX_COST_TOKENS:
            raise _invalid_cost(cost)
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
        elif now_ns < (until_ns := lease.refused_until_ns) and cost == 1:
            lease.left = left
            seq = self._seq
            self._seq = seq + 1
            verdict = Verdict(seq, now_ns, lane.basis, False, _REFUSED_LOCALLY, 1, 0, until_ns)
            self._capture(verdict)
            return verdict
        decided = self._decide(lane, cost, now_ns, asyncio.get_running_loop())
        if isinstance(decided, Verdict):
            return decided
        if self._settings.threaded:
            await self._wait(decided)
        else:
            self._asker.step()
        return self._outcome(decided)

    async def _wait(self, waiter: Waiter) -> None:
        try:
            await waiter.wait_async(self._timeout_s)
        except asyncio.CancelledError:
            with self._asker.lock:
                waiter.gone = True
            raise

    def request_id(self, verdict: Verdict) -> str:
        """The id by which support finds this decision."""
        return format_request_id(self.identity, verdict.seq)

    def room(self, verdict: Verdict) -> int:
        """Tokens that the caller may expect to have left, for the `RateLimit` header.

        What this copy holds and what the owner still had at its last answer; the verdict's own number after a refusal.
        """
        code = verdict.code
        if code >> 4 == _DEGRADED or not (verdict.allowed or code == _NEVER):
            return verdict.remaining
        basis = verdict.basis
        lane = self._lanes.get((basis.standing.caller, basis.scope))
        if lane is None:
            return verdict.remaining
        account = lane.account
        return min(account.plan.burst, account.held + max(0, int(account.tokens)))

    def tend(self) -> None:
        """Do once what the background thread does: ask, settle what fell idle, probe. For `threaded=False`."""
        self._asker.step()

    def close(self) -> None:
        """Settle every grant, ship the record, release the owner. Safe to call twice; afterwards `check` raises.

        Requests that wait are decided and recorded first; what is decided later than that is neither.
        """
        with self._asker.lock:
            if self._closed:
                return
            self._closed = True
            self._lanes.clear()
        timeout_s = self._settings.close_timeout_s
        deadline_ns = self._now() + round(timeout_s * 1e9)
        try:
            self._asker.close(lambda: self._directory.accounts, timeout_s, deadline_ns)
        finally:
            self._capture = too_late
            try:
                self._owner.close()
            except Exception:  # a connection that will not end must not cost the record
                log.exception("the owner's connection could not be closed", extra={"action": "owner_close_failed"})
            finally:
                self._sink.close(max(0.0, (deadline_ns - self._now()) / 1e9))

    def _decide(self, lane: Lane, cost: int, now_ns: int, loop: asyncio.AbstractEventLoop | None) -> Verdict | Waiter:
        """Decide off the fast path, or have the request wait."""
        asker = self._asker
        with asker.lock:
            if self._closed:
                raise EnforcerError("this limiter is closed")
            if lane.account.evicted:
                lane = self._open_lane(lane.account.caller, lane.scope)
            account = lane.account
            account.touched_ns = now_ns
            if cost > account.plan.burst:
                account.refuse(cost)
                basis, held = lane.basis_alone(), account.held
                return self.record(basis, now_ns, allowed=False, code=_NEVER, cost=cost, remaining=held, wait_ms=-1)
            away = asker.alone or now_ns < account.retry_at_ns
            verdict = self._spend_held(lane, cost, now_ns, away=away)
            if verdict is not None:
                return verdict
            if now_ns < account.refused_until_ns(cost):
                return self.refuse(lane, cost=cost, now_ns=now_ns, source=Source.LOCAL)
            if away:
                return decide_alone(self, self._fail_rule, lane, cost=cost, now_ns=now_ns)
            waiter = Waiter(lane, cost, loop)
            asker.line_up(waiter)
            return waiter

    def _outcome(self, waiter: Waiter) -> Verdict:
        """The asker's decision; if there is none by now, this copy's own."""
        with self._asker.lock:
            if waiter.verdict is not None:
                return waiter.verdict
            waiter.gone = True
            return self._decide_waiting(waiter)

    def _decide_waiting(self, waiter: Waiter) -> Verdict:
        """Decide about a request for which the owner's answer did not come. With the lock held."""
        lane, cost, now_ns = waiter.lane, waiter.cost, self._now()
        away = self._asker.alone or now_ns < lane.account.retry_at_ns
        held = self._spend_held(lane, cost, now_ns, away=away)
        return held or decide_alone(self, self._fail_rule, lane, cost=cost, now_ns=now_ns)

    def _spend_held(self, lane: Lane, cost: int, now_ns: int, *, away: bool) -> Verdict | None:
        """Admit from what is held; while the owner is away past its expiry too, but for routes that fail closed."""
        account = lane.account
        past_expiry = away and lane.resolution.fail_mode is not FailMode.CLOSED
        left = account.spend(cost, now_ns, past_expiry=past_expiry)
        if left < 0:
            return None
        if left < account.current.low:
            self._queue_ahead(account)
        source = Source.LOCAL if now_ns < account.current.until_ns else Source.DEGRADED
        return self.admit(lane, cost=cost, left=left, now_ns=now_ns, source=source)

    def _ask_ahead(self, lane: Lane) -> None:
        with self._asker.lock:
            self._queue_ahead(lane.account)

    def _queue_ahead(self, account: Account) -> None:
        if account.upcoming is None and not (self._asker.alone or account.evicted or account.retry_at_ns):
            account.current.low = 0
            self._asker.enqueue(account)

    def _new_lane(self, caller: str, scope: str) -> Lane:
        validate_name("caller", caller)
        validate_name("scope", scope)
        with self._asker.lock:
            return self._open_lane(caller, scope)

    def _open_lane(self, caller: str, scope: str) -> Lane:
        if self._closed:
            raise EnforcerError("this limiter is closed")
        now_ns = self._now()
        lane, is_new = self._directory.open(caller, scope, now_ns)
        if is_new:
            self._asker.tending.watch_age(lane.account, now_ns)
        return lane


def _invalid_cost(cost: object) -> InvalidField:
    return InvalidField("cost", cost, f"a whole number from 1 to {MAX_COST_TOKENS:,}")
