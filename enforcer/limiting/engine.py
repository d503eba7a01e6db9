"""What stands behind the fast path of a limiter: its parts, how a policy changes, how it ends.

It never decides what `decisions` decides, and never asks an owner: the askers do.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence

from enforcer.clock import Clock, SystemClock
from enforcer.core.account import Account
from enforcer.core.degrade import fail_rule
from enforcer.core.once import Once
from enforcer.errors import EnforcerError
from enforcer.forking import tell_of_forks
from enforcer.identity import CopyIdentity
from enforcer.limiting.arguments import validate_request
from enforcer.limiting.askers import Askers
from enforcer.limiting.directory import Directory
from enforcer.limiting.governing import govern, is_another
from enforcer.limiting.lane import Lane
from enforcer.limiting.life import Life
from enforcer.limiting.reporting import hand
from enforcer.limiting.settling import Deadlines, do_each, too_late
from enforcer.limiting.waiter import Waiter
from enforcer.limiting.waiting import Desk
from enforcer.limiting.waits import Waits
from enforcer.owners.one import OneOwner
from enforcer.owners.port import Owner, Owners
from enforcer.policies.model import Policy
from enforcer.settings import LimiterSettings
from enforcer.sink import PolicyChanged, Sink
from enforcer.types import Reason, Source, Verdict, outcome_code

log = logging.getLogger("enforcer")
_CEILING = outcome_code(Source.CAP, Reason.CEILING)


class Engine(Waits):
    """Everything of a `Limiter` but its fast path.

    Attributes:
        policy: the one in force.
        identity: of this copy in this life.
    """

    def __init__(
        self,
        policy: Policy,
        owner: Owner | Owners,
        sink: Sink,
        identity: CopyIdentity,
        *,
        settings: LimiterSettings | None = None,
        clock: Clock | None = None,
    ) -> None:
        settings = settings or LimiterSettings()
        clock = clock or SystemClock()
        super().__init__(sink.capture, clock, fail_rule(policy), fast=not settings.takes_lock)
        self.policy = policy
        self.identity = identity
        self._owners = OneOwner(owner, name=settings.owner_name) if isinstance(owner, Owner) else owner
        self._sink = sink
        self._clock = clock
        self._settings = settings
        self._timeout_s = policy.timeouts.ask_ms / 1e3
        self._life = Life()
        self._changed = Once()
        self._at_close: list[Callable[[], None]] = []
        self._directory = Directory(policy, max_callers=settings.max_callers, opened=self._take_charge)
        self._lanes = self._directory.lanes
        self._askers = Askers(
            self._owners,
            sink,
            Desk(self._settle, self._decide_alone, self._shadow_answered),
            member=f"{identity.copy_id}/{identity.epoch}",
            clock=clock,
            settings=settings,
            accounts=lambda: self._directory.accounts,
            forget=self._directory.forget,
        )
        self._lock = self._askers.lock
        tell_of_forks(self)
        if settings.threaded:
            self._askers.start()

    @property
    def degraded(self) -> bool:
        """Whether requests without a grant are decided by this copy alone, because the owner is away."""
        return self._askers.alone

    def holding(self) -> tuple[int, int]:
        """How many buckets this copy knows, and tokens that it holds of them, at about this moment; takes no lock."""
        accounts = self._directory.accounts
        return len(accounts), sum(account.held for account in accounts)

    def close(self) -> None:
        """Settle every grant, ship the record, release the owner. Safe to call twice; afterwards `check` raises.

        Requests that wait are decided and recorded first; what is decided later than that is neither.
        """
        with self._lock:
            if self._life.is_over:
                return
            self._life.end()
            self._lanes.clear()
        deadlines = Deadlines(self._now(), self._settings.close_timeout_s)
        do_each(self._at_close, what="what was to be done first")
        try:
            self._askers.close(lambda: self._directory.accounts, deadlines)
        finally:
            self._capture = too_late
            ends = [*(owner.close for owner in self._owners.nodes.values()), self._owners.close]
            do_each(ends, what="the end of an owner's connection")
            self._sink.close(max(0.0, (deadlines.end_ns - self._now()) / 1e9))

    def after_fork(self) -> None:
        """See `Forkable`: what is held is the parent's, and so are the threads, the connections and the record."""
        self._life.end_in_fork()
        self._lock = threading.Lock()
        self._capture = too_late
        self._directory.clear()

    def refuse_for_cap(self, caller: str, scope: str = "default", cost: int | None = None, *, wait_ms: int) -> Verdict:
        """Record that the protection refused a request: nothing is charged, and no owner hears of it.

        Args:
            caller: as `Limiter.check` takes it.
            scope: likewise.
            cost: likewise.
            wait_ms: after which the client may try again, from 1.

        Raises:
            InvalidField, EnforcerError: as `Limiter.check`.
        """
        validate_request(caller, scope, cost)
        with self._lock:
            lane = self._open_lane(caller, scope)
            return self.record(
                lane.basis_alone(),
                self._now(),
                allowed=False,
                code=_CEILING,
                cost=lane.cost if cost is None else cost,
                remaining=lane.account.held,
                wait_ms=wait_ms,
            )

    def apply(self, policy: Policy, *, source: str = "(given)", digest: str = "") -> None:
        """Go by another version of the policy from the next request on.

        Grants that are held stay valid until they expire; the next ask is on the new terms.

        Args:
            policy: already valid; the same one again changes nothing.
            source: where it comes from, for the sink.
            digest: of the document, for the sink.

        Raises:
            PolicyError: its version is not above the one in force, or the owners cannot go by it.
            EnforcerError: the limiter is closed.
        """
        with self._lock:
            self._life.require()
            if not is_another(policy, self.policy):
                return
            govern(self._owners, policy)
            self.policy = policy
            self._timeout_s = policy.timeouts.ask_ms / 1e3
            self._fail_rule = fail_rule(policy)
            self._directory.use(policy)
            self._askers.place_anew()
            hand(self._sink.event, PolicyChanged(policy.version, digest, source, (), self._clock.unix_us()))
        log.info("policy version %d is in force, from %s", policy.version, source, extra={"action": "policy_loaded"})

    def keep_policy(self, *, source: str, digest: str, faults: Sequence[str]) -> None:
        """Take note that a document was refused, or without a digest that none was read: the policy in force stays."""
        with self._lock:
            if self._life.is_over:
                return
            version = self.policy.version
            hand(self._sink.event, PolicyChanged(version, digest, source, tuple(faults), self._clock.unix_us()))
        extra = {"action": "policy_load_error"}
        what = "policy refused" if digest else "no policy could be read"
        log.error("%s, version %d stays in force: %s: %s", what, version, source, "; ".join(faults), extra=extra)

    def at_close(self, act: Callable[[], None]) -> None:
        """Have this done when the limiter closes, before anything else."""
        self._at_close.append(act)

    def _shadow_answered(self, waiter: Waiter, now_ns: int) -> None:
        self._askers.shadow_answered(waiter, now_ns)

    def _take_charge(self, account: Account, now_ns: int) -> None:
        self._askers.open(account, now_ns)

    def _ask_ahead(self, lane: Lane) -> None:
        with self._lock:
            for account in lane.accounts:
                if account.current.left < account.current.low:
                    self._askers.ask_ahead(account)

    def _new_lane(self, caller: str, scope: str) -> Lane:
        try:
            validate_request(caller, scope)
            with self._lock:
                return self._open_lane(caller, scope)
        except EnforcerError as error:
            # Whoever asks has just failed to find one, and that is no part of what is wrong.
            raise error from None
