"""The limiter's handle on one (caller, scope): which buckets its requests are charged to, and what verdicts stand on.

Several lanes may lead to one account. Nothing here asks the owner.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from enforcer.core.account import Account
from enforcer.core.lease import Lease
from enforcer.core.resolution import Resolution
from enforcer.types import Basis, Charge, Standing

_NO_LEASE = Lease(None, until_ns=0)
#: Most buckets of one request that the fast path can spend from; more are spent from under the lock.
_MOST_LEGS = 4


def _endless() -> Lease:
    lease = Lease(None, until_ns=1 << 63)
    lease.left = 1 << 62
    return lease


#: Stands where a request has fewer limits than the fast path has room for: it never refuses.
_ENDLESS = _endless()


class Legs(msgspec.Struct, frozen=True, gc=False):
    """What the fast path needs of a request with several limits, to be swapped in one store.

    Attributes:
        leases: what is spent of each bucket: those that must admit, those in shadow, and endless ones up to four.
        enforced: how many of them must admit.
        basis: what an admission stands on.
        refusals: what a refusal by each of the enforced stands on.
    """

    leases: tuple[Lease, Lease, Lease, Lease]
    enforced: int
    basis: Basis
    refusals: tuple[Basis, ...]


class Lane:
    """What the fast path needs for one (caller, scope), and what is behind it.

    `lease` and `basis` always change together, without a call in between. A lane with more than one limit has no lease
    but `legs`.

    Attributes:
        caller, scope: whose requests, and which.
        legs: of a lane that is not plain, once all its buckets were spent from; None if it has too many.
        account: the bucket of the caller's plan; the first of `accounts`.
        accounts: all that must admit.
        shadows: those that only say what they would refuse.
        resolution: what the policy says, and its cost for a request.
    """

    __slots__ = (
        "_leases", "account", "accounts", "basis", "caller", "cost", "is_plain", "lease", "legs", "resolution", "scope",
        "shadows", "standings",
    )  # fmt: skip

    def __init__(
        self,
        caller: str,
        scope: str,
        resolution: Resolution,
        accounts: tuple[Account, ...],
        shadows: tuple[Account, ...],
    ) -> None:
        self.caller = caller
        self.scope = scope
        self.resolution = resolution
        self.cost = resolution.cost
        self.accounts = accounts
        self.account = accounts[0]
        self.shadows = shadows
        self.is_plain = len(accounts) == 1 and not shadows
        self.standings = tuple(
            account.standing if account.caller == caller else Standing(caller, account.standing.terms)
            for account in accounts
        )
        self.lease = _NO_LEASE
        self.legs: Legs | None = None
        self._leases: tuple[Lease, ...] = ()
        self.basis = self._basis_of(_grant_id(_NO_LEASE))

    def follow(self) -> Basis:
        """Turn to the lease that the account spends now; returns the basis of its verdicts."""
        if not self.is_plain:
            return self._follow_all()
        lease = self.account.current
        if self.lease is not lease:
            basis = self._basis_of(_grant_id(lease))
            self.lease = lease
            self.basis = basis
        return self.basis

    def basis_of_current(self) -> Basis:
        """The basis of what the accounts spend now, without letting the fast path at it."""
        if len(self.accounts) == 1:
            grant_id = _grant_id(self.account.current)
            if self.basis.grant_id != grant_id:
                self.basis = self._basis_of(grant_id)
            return self.basis
        leases = tuple(account.current for account in self.accounts)
        if leases != self._leases:
            self._leases = leases
            self.basis = self._basis_of(_grant_id(leases[0]), tuple(_grant_id(lease) for lease in leases[1:]))
        return self.basis

    def basis_alone(self) -> Basis:
        """A basis that names no grant."""
        if self.basis.grant_id == 0 and not self.basis.also:
            return self.basis
        return self._basis_of(0)

    def basis_paid(self, paid: Sequence[Account]) -> Basis:
        """A basis that names the grants of these accounts only; the others were decided without their owner."""
        if not paid:
            return self.basis_alone()
        also = tuple(
            Charge(account.caller, account.limit, _grant_id(account.current))
            for account in self.accounts[1:]
            if account in paid
        )
        first = _grant_id(self.account.current) if self.account in paid else 0
        return Basis(self.standings[0], self.scope, first, self.account.k, also, self._is_soft())

    def basis_refused(self, number: int) -> Basis:
        """What a refusal by the limit with this number stands on: it names that limit, and spends nothing."""
        if len(self.accounts) == 1:
            return self.basis_of_current() if self.shadows else self.follow()
        account = self.accounts[number]
        return Basis(self.standings[number], self.scope, 0, account.k, (), self._is_soft())

    def basis_without_grant(self, number: int) -> Basis:
        """The same where no grant could have helped: it names none."""
        return self.basis_alone() if number == 0 else self.basis_refused(number)

    def _follow_all(self) -> Basis:
        leases = tuple(account.current for account in (*self.accounts, *self.shadows))
        if self.legs is not None and self.legs.leases[: len(leases)] == leases:
            return self.legs.basis
        basis = self.basis_of_current()
        if len(leases) <= _MOST_LEGS:
            first, second, third, fourth = leases + (_ENDLESS,) * (_MOST_LEGS - len(leases))
            enforced = len(self.accounts)
            refusals = (basis,) if enforced == 1 else tuple(self.basis_refused(number) for number in range(enforced))
            self.legs = Legs((first, second, third, fourth), enforced, basis, refusals)
        return basis

    def _basis_of(self, grant_id: int, others: tuple[int, ...] = ()) -> Basis:
        also = tuple(
            Charge(account.caller, account.limit, other)
            for account, other in zip(self.accounts[1:], others, strict=False)
        )
        return Basis(self.standings[0], self.scope, grant_id, self.account.k, also, self._is_soft())

    def _is_soft(self) -> bool:
        return any(account.soft for account in self.accounts)


def _grant_id(lease: Lease) -> int:
    return lease.grant.grant_id if lease.grant is not None else 0
