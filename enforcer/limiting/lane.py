"""The limiter's handle on one (caller, scope): which buckets its requests are charged to, and what verdicts stand on.

Several lanes may lead to one account. Nothing here asks the owner.
"""

from __future__ import annotations

from collections.abc import Sequence

from enforcer.core.account import Account
from enforcer.core.lease import Lease
from enforcer.core.resolution import Resolution
from enforcer.types import Basis, Charge, Standing

_NO_LEASE = Lease(None, until_ns=0)


class Lane:
    """What the fast path needs for one (caller, scope), and what is behind it.

    `lease` and `basis` always change together, without a call in between. A lane with more than one limit has no lease
    for the fast path: its requests are decided under the lock.

    Attributes:
        caller, scope: whose requests, and which.
        account: the bucket of the caller's plan; the first of `accounts`.
        accounts: all that must admit.
        shadows: those that only say what they would refuse.
        resolution: what the policy says, and its cost for a request.
    """

    __slots__ = (
        "_leases", "account", "accounts", "basis", "caller", "cost", "is_plain", "lease", "resolution", "scope",
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
        self._leases: tuple[Lease, ...] = ()
        self.basis = self._basis_of(_grant_id(_NO_LEASE))

    def follow(self) -> Basis:
        """Turn to the lease that the account spends now; returns the basis of its verdicts."""
        if not self.is_plain:
            return self.basis_of_current()
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
            return self.follow()
        account = self.accounts[number]
        return Basis(self.standings[number], self.scope, 0, account.k, (), self._is_soft())

    def basis_without_grant(self, number: int) -> Basis:
        """The same where no grant could have helped: it names none."""
        return self.basis_alone() if number == 0 else self.basis_refused(number)

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
