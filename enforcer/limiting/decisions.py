"""How a request is decided off the fast path: all of its limits admit, or none is charged. Every decision is numbered.

It spends what is held and says whom to ask; it never asks, and never waits. Everything is called with the lock held.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from enforcer.clock import Clock
from enforcer.core.account import Account
from enforcer.core.degrade import FailRule, Fallback, LocalBucket, fallback
from enforcer.limiting.lane import Lane
from enforcer.policies.model import FailMode
from enforcer.types import MAX_RETRY_MS, NEVER_NS, Basis, Reason, Source, Verdict, outcome_code

#: What a client is told where nobody can know when the owner will be back.
_OWNER_AWAY_RETRY_MS = 1_000
_NEVER = outcome_code(Source.LOCAL, Reason.NEVER)


class Case:
    """One request that is to be decided: whose and which, its tokens, the copy's monotonic clock, and who decides."""

    __slots__ = ("cost", "lane", "late", "now_ns", "source")

    def __init__(self, lane: Lane, cost: int, now_ns: int, source: Source) -> None:
        self.lane = lane
        self.cost = cost
        self.now_ns = now_ns
        self.source = source
        # Whether what is held may be spent past its expiry while its owner is away.
        self.late = lane.resolution.fail_mode is not FailMode.CLOSED


class Owning(Protocol):
    """What decisions need to know of the owners."""

    def is_away(self, account: Account, now_ns: int) -> bool:
        """Whether this account's owner cannot be asked now."""
        ...

    def ask_ahead(self, account: Account) -> None:
        """Have the next grant asked for, if that is not under way."""
        ...

    def ask_in_shadow(self, lane: Lane, account: Account, cost: int) -> None:
        """Find out what a limit that does not refuse would say."""
        ...


class Decisions:
    """Numbers decisions without a gap, and hands each to the sink as it is made.

    `fast` says whether lanes may spend without the lock.
    """

    def __init__(self, capture: Callable[[Verdict], None], clock: Clock, rule: FailRule, *, fast: bool) -> None:
        self._capture = capture
        self._now = clock.monotonic_ns
        self._fail_rule = rule
        self._fast = fast
        self._seq = 0
        self._open_capped: dict[Fallback, LocalBucket] = {}

    def decide(self, owning: Owning, case: Case, *, final: bool) -> Verdict | list[Account]:
        """Decide, or say which accounts' owners must be asked first.

        Args:
            owning: what is known of the owners.
            case: the request; its source is who decides if it can be decided from what is held.
            final: nobody can be asked any more; this copy decides alone about what it does not hold.
        """
        lane, cost, now_ns = case.lane, case.cost, case.now_ns
        for number, account in enumerate(lane.accounts):
            account.touched_ns = now_ns
            account.level()
            if cost > account.plan.burst:
                account.refuse(cost)
                basis, held = lane.basis_without_grant(number), account.held
                return self.record(basis, now_ns, allowed=False, code=_NEVER, cost=cost, remaining=held, wait_ms=-1)
        while True:
            spent: list[int] = []
            short: list[Account] = []
            alone: list[Account] = []
            for number, account in enumerate(lane.accounts):
                away = owning.is_away(account, now_ns)
                if account.covers(cost, now_ns, past_expiry=away and case.late):
                    continue
                if now_ns < account.refused_until_ns(cost, alone=away or final):
                    spent.append(number)
                else:
                    (alone if away or final else short).append(account)
            if spent:
                # Of several it is the one with the longest wait: before that the others' ends help nobody. Also if it
                # is one that would be asked again by now.
                told = [lane.accounts.index(one) for one in short if now_ns < one.current.ready_at_ns]
                return self.refuse(case, max(spent + told, key=lambda one: lane.accounts[one].retry_at_ns(cost)))
            if short:
                return short
            verdict = self._take(owning, case, alone)
            if verdict is not None:
                return verdict

    def refuse(self, case: Case, number: int) -> Verdict:
        """Record, and count for the owner, a refusal because the tokens of the limit with this number are spent."""
        lane, cost, now_ns = case.lane, case.cost, case.now_ns
        account = lane.accounts[number]
        account.refuse(cost)
        basis = lane.basis_refused(number) if self._fast or not lane.is_plain else lane.basis_of_current()
        return self.record(
            basis,
            now_ns,
            allowed=False,
            code=outcome_code(case.source, Reason.SPENT),
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

    def _take(self, owning: Owning, case: Case, alone: Sequence[Account]) -> Verdict | None:
        """Spend everywhere, or nowhere: None if the fast path took tokens of one of them in between."""
        cost = case.cost
        paid: list[Account] = []
        left: int | None = None
        for account in case.lane.accounts if cost else ():
            if account in alone:
                continue
            past_expiry = case.late and owning.is_away(account, case.now_ns)
            tokens = account.spend(cost, case.now_ns, past_expiry=past_expiry)
            if tokens < 0:
                _give_back(paid, cost)
                return None
            paid.append(account)
            left = tokens if left is None else min(left, tokens)
        if alone:
            outcome = self._take_alone(case, alone)
            if isinstance(outcome, Verdict):
                _give_back(paid, cost)
                return outcome
            left = outcome if left is None else min(left, outcome)
        if left is None:
            left = min(account.current.held for account in case.lane.accounts)
        return self._admit(owning, case, paid, left)

    def _admit(self, owning: Owning, case: Case, paid: list[Account], left: int) -> Verdict:
        lane, source = case.lane, case.source
        if case.cost and len(paid) < len(lane.accounts):
            basis = lane.basis_paid(paid)
            source = Source.DEGRADED
        else:
            basis = lane.follow() if self._fast else lane.basis_of_current()
        for account in paid:
            if case.now_ns >= account.current.until_ns:
                source = Source.DEGRADED
            if account.current.left < account.current.low:
                owning.ask_ahead(account)
        code = outcome_code(source, Reason.NONE)
        verdict = self.record(basis, case.now_ns, allowed=True, code=code, cost=case.cost, remaining=left, wait_ms=0)
        for shadow in lane.shadows:
            owning.ask_in_shadow(lane, shadow, case.cost)
        return verdict

    def _take_alone(self, case: Case, alone: Sequence[Account]) -> Verdict | int:
        """Take from this copy's own buckets, by the route's fail mode; the refusal, or the least that is left."""
        mode, cost = case.lane.resolution.fail_mode, case.cost
        taken: list[LocalBucket] = []
        refused: list[tuple[int, Account, Fallback, LocalBucket]] = []
        for account in alone:
            account.refuse(cost)
            kind = fallback(self._fail_rule, account.plan, mode, k=account.k, per=account.due.per)
            if mode is FailMode.OPEN_CAPPED:
                bucket = self._open_capped.setdefault(kind, LocalBucket(case.now_ns, kind))
            else:
                bucket = account.local_bucket(kind, case.now_ns)
            if bucket in taken:
                continue
            wait_ms = bucket.take(kind, cost, case.now_ns)
            if wait_ms == 0:
                taken.append(bucket)
            else:
                refused.append((wait_ms if wait_ms is not None else _OWNER_AWAY_RETRY_MS, account, kind, bucket))
        if not refused:
            return min(bucket.remaining for bucket in taken)
        for one in taken:
            one.put_back(cost)
        wait_ms, account, kind, bucket = max(refused, key=lambda refusal: refusal[0])
        return self.record(
            case.lane.basis_without_grant(case.lane.accounts.index(account)),
            case.now_ns,
            allowed=False,
            code=outcome_code(Source.DEGRADED, kind.reason),
            cost=cost,
            remaining=bucket.remaining,
            wait_ms=wait_ms,
        )


def _give_back(paid: Sequence[Account], cost: int) -> None:
    for account in paid:
        account.unspend(cost)
