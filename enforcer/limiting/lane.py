"""The parts that the limiter and the asker share: lanes, waiters, and the numbering of decisions.

A lane is the limiter's handle on one (caller, scope); several lanes may lead to one account. Nothing here asks the
owner.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

from enforcer.clock import Clock
from enforcer.core.account import Account
from enforcer.core.lease import Lease
from enforcer.core.resolution import Resolution
from enforcer.types import MAX_RETRY_MS, NEVER_NS, Basis, Reason, Source, Verdict, outcome_code

_NO_LEASE = Lease(None, until_ns=0)


class Lane:
    """What the fast path needs for one (caller, scope).

    `lease` and `basis` always change together, without a call in between.
    """

    __slots__ = ("account", "basis", "cost", "lease", "resolution", "scope")

    def __init__(self, account: Account, scope: str, resolution: Resolution) -> None:
        self.account = account
        self.scope = scope
        self.resolution = resolution
        self.cost = resolution.cost
        self.lease = _NO_LEASE
        self.basis = self.new_basis(grant_id=0)

    def new_basis(self, *, grant_id: int) -> Basis:
        """A basis for verdicts of this lane."""
        account = self.account
        return Basis(account.standing, self.scope, grant_id, account.k)

    def follow(self) -> Basis:
        """Turn to the lease that the account spends now; returns the basis of its verdicts."""
        lease = self.account.current
        if self.lease is not lease:
            basis = self.new_basis(grant_id=lease.grant.grant_id if lease.grant is not None else 0)
            self.lease = lease
            self.basis = basis
        return self.basis

    def basis_of_current(self) -> Basis:
        """The basis of the account's current lease, without letting the fast path at it."""
        lease = self.account.current
        grant_id = lease.grant.grant_id if lease.grant is not None else 0
        if self.basis.grant_id != grant_id:
            self.basis = self.new_basis(grant_id=grant_id)
        return self.basis

    def basis_alone(self) -> Basis:
        """A basis that names no grant."""
        return self.basis if self.basis.grant_id == 0 else self.new_basis(grant_id=0)


class Waiter:
    """One request that waits for the owner, in a thread or in an event loop.

    `verdict` and `gone` change under the asker's lock: either the asker decides, or the request gives up, never both.
    """

    __slots__ = ("_event", "_future", "cost", "counted", "gone", "lane", "loop", "verdict")

    def __init__(self, lane: Lane, cost: int, loop: asyncio.AbstractEventLoop | None) -> None:
        self.lane = lane
        self.cost = cost
        self.counted = False
        self.gone = False
        self.verdict: Verdict | None = None
        self.loop = loop
        self._event = threading.Event() if loop is None else None
        self._future: asyncio.Future[None] | None = loop.create_future() if loop is not None else None

    def wake(self) -> None:
        """Let the request go on; in a loop's own thread if it waits in a loop."""
        if self._event is not None:
            self._event.set()
        elif self._future is not None and not self._future.done():
            self._future.set_result(None)

    def wait(self, timeout_s: float) -> None:
        """Block this thread until woken, at most `timeout_s`."""
        if self._event is not None:
            self._event.wait(timeout_s)

    async def wait_async(self, timeout_s: float) -> None:
        """Wait in the loop until woken, at most `timeout_s`."""
        if self._future is not None:
            await asyncio.wait((self._future,), timeout=timeout_s)


class Decisions:
    """Numbers decisions without a gap, and hands each to the sink as it is made.

    `fast` says whether lanes may spend without the lock.
    """

    def __init__(self, capture: Callable[[Verdict], None], clock: Clock, *, policy_version: int, fast: bool) -> None:
        self.policy_version = policy_version
        self._capture = capture
        self._now = clock.monotonic_ns
        self._fast = fast
        self._seq = 0

    def basis(self, lane: Lane) -> Basis:
        """What a verdict on the account's current lease stands on; the lane's fast path follows to that lease."""
        return lane.follow() if self._fast else lane.basis_of_current()

    def admit(self, lane: Lane, *, cost: int, left: int, now_ns: int, source: Source) -> Verdict:
        """Record an admission from the account's current lease; the tokens have been spent."""
        code = outcome_code(source, Reason.NONE)
        return self.record(self.basis(lane), now_ns, allowed=True, code=code, cost=cost, remaining=left, wait_ms=0)

    def refuse(self, lane: Lane, *, cost: int, now_ns: int, source: Source) -> Verdict:
        """Record, and count for the owner, a refusal because the limit's tokens are spent."""
        account = lane.account
        account.refuse(cost)
        return self.record(
            self.basis(lane),
            now_ns,
            allowed=False,
            code=outcome_code(source, Reason.SPENT),
            cost=cost,
            remaining=account.current.held,
            wait_ms=account.retry_after_ms(cost, now_ns),
        )

    def record(
        self, basis: Basis, now_ns: int, *, allowed: bool, code: int, cost: int, remaining: int, wait_ms: int
    ) -> Verdict:
        """Number any decision and hand it to the sink; `wait_ms` is 0 for an admission and -1 for never."""
        ready_at_ns = now_ns + min(wait_ms, MAX_RETRY_MS) * 1_000_000 if wait_ms > 0 else NEVER_NS if wait_ms else 0
        seq = self._seq
        self._seq = seq + 1
        verdict = Verdict(seq, now_ns, basis, allowed, code, cost, remaining, ready_at_ns)
        self._capture(verdict)
        return verdict
