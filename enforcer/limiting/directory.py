"""Every caller that a copy knows at the moment, and the lanes that lead to it. Bounded: made-up callers share buckets.

Kept under the limiter's lock, but for `lanes`, which the fast path reads. Never asks the owner.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from enforcer.core.account import Account
from enforcer.core.resolution import LIMIT_RATE, SHADOW, Due, charged_as, due_of, resolve
from enforcer.core.routes import UNMATCHED_SCOPE
from enforcer.limiting.lane import Lane
from enforcer.policies.limits import LimitBy
from enforcer.policies.model import Policy
from enforcer.types import Terms

#: Scopes come from templates, so they are few; made-up ones must not stay for ever.
_MOST_SCOPES = 10_000
#: Lanes of one account; beyond so many, scopes that the policy does not name are counted as unmatched.
_MOST_LANES = 256


class Directory:
    """Lanes by (caller, scope), accounts by (subject, limit).

    `opened` is called with each new account, before anything else is done with it.
    """

    def __init__(self, policy: Policy, *, max_callers: int, opened: Callable[[Account, int], None]) -> None:
        self.lanes: dict[tuple[str, str], Lane] = {}
        self._accounts: dict[tuple[str, str], Account] = {}
        self._scopes: dict[str, str] = {}
        self._terms: dict[Terms, Terms] = {}
        self._policy = policy
        self._named_scopes = _named_scopes(policy)
        self._max_callers = max_callers
        self._opened = opened

    @property
    def accounts(self) -> list[Account]:
        """All accounts."""
        return list(self._accounts.values())

    def known(self, subject: str, limit: str) -> Account | None:
        """The account of one bucket, whatever the policy says of it now; None if it was forgotten, or never was."""
        return self._accounts.get((subject, limit))

    def use(self, policy: Policy) -> None:
        """Go by another policy from now on. Accounts stay, with what they hold; every lane is resolved anew.

        So are the accounts that the owner may be asked for before anybody opens their lane: on the terms of before it
        would cut a bucket to a burst that is no longer sold.
        """
        self._policy = policy
        self._named_scopes = _named_scopes(policy)
        self._terms.clear()
        self.lanes.clear()
        for account in self._accounts.values():
            account.lanes.clear()
            if account.queued or account.holds_grant or account.finals or account.owed:
                due = due_of(policy, account.caller, account.limit)
                if due is not None:
                    self._hold_to(account, due)

    def clear(self) -> None:
        """Know nobody."""
        self.lanes.clear()
        self._accounts.clear()

    def open(self, caller: str, scope: str, now_ns: int) -> Lane:
        """The lane of a caller and scope.

        A caller that shares a bucket with others, because the policy does not name it or because there are
        `max_callers` buckets, gets their lane, and is recorded under their name.
        """
        # A subclass of str would be kept as the name of all later, plain ones, and the record takes only plain text.
        caller, scope = self._charged_as(str.__str__(caller)), str.__str__(scope)
        lane = self.lanes.get((caller, scope))
        if lane is not None:
            return lane
        resolution = resolve(self._policy, caller=caller, scope=scope)
        own = self._accounts.get((caller, LIMIT_RATE))
        if own is not None and len(own.lanes) >= _MOST_LANES and scope not in self._named_scopes:
            scope = UNMATCHED_SCOPE
            if (lane := self.lanes.get((caller, scope))) is not None:
                return lane
            resolution = resolve(self._policy, caller=caller, scope=scope)
        scope = self._one_text(scope)
        accounts = tuple(self._account(due, now_ns) for due in resolution.dues)
        shadows = tuple(self._account(due, now_ns) for due in resolution.shadows)
        lane = self.lanes[caller, scope] = Lane(caller, scope, resolution, accounts=accounts, shadows=shadows)
        for account in (*accounts, *shadows):
            account.lanes.add((caller, scope))
        return lane

    def in_shadow(self, lane: Lane, now_ns: int) -> list[Account]:
        """Accounts of all limits of a lane that only say what they would refuse, also of those that it is held to."""
        accounts = list(lane.shadows)
        for due in lane.resolution.dues:
            terms = msgspec.structs.replace(due.terms, limit=due.terms.limit + SHADOW)
            accounts.append(self._account(msgspec.structs.replace(due, terms=terms), now_ns))
        return accounts

    def forget(self, account: Account) -> None:
        """Drop an account and the lanes that lead to it; whoever still holds one of them must open it again."""
        account.evicted = True
        where = (account.caller, account.limit)
        if self._accounts.get(where) is account:
            del self._accounts[where]
        for key in tuple(account.lanes):
            lane = self.lanes.pop(key, None)
            # Of the lane's other accounts too: a shared one would remember all who ever came.
            for other in (account, *lane.accounts, *lane.shadows) if lane is not None else (account,):
                other.lanes.discard(key)

    def _charged_as(self, caller: str) -> str:
        policy = self._policy
        if caller in policy.callers or (caller, LIMIT_RATE) in self._accounts:
            return caller
        name = charged_as(policy, caller)
        if name == caller and len(self._accounts) >= self._max_callers:
            return policy.anonymous.caller
        return name

    def _account(self, due: Due, now_ns: int) -> Account:
        key = (due.subject, due.terms.limit)
        account = self._accounts.get(key)
        if account is None:
            account = Account(self._shared(due), now_ns=now_ns)
            self._opened(account, now_ns)
            self._accounts[key] = account
        else:
            self._hold_to(account, due)
        return account

    def _hold_to(self, account: Account, due: Due) -> None:
        due = self._shared(due)
        if account.due != due:
            account.turn_to(due)

    def _shared(self, due: Due) -> Due:
        """The same, with terms that are one object for all who have them."""
        terms = self._terms.setdefault(due.terms, due.terms)
        return due if terms is due.terms else msgspec.structs.replace(due, terms=terms)

    def _one_text(self, scope: str) -> str:
        """The same object for the same scope, whatever string the request came with."""
        if len(self._scopes) > _MOST_SCOPES:
            self._scopes.clear()
        return self._scopes.setdefault(scope, scope)


def _named_scopes(policy: Policy) -> frozenset[str]:
    """Scopes that the policy knows by name: under another one their requests would escape their limits."""
    named = set(policy.scopes)
    for limit in policy.limits.values():
        named.update(limit.scopes)
        if limit.by is LimitBy.SCOPE:
            named.update(limit.overrides)
    return frozenset(named)
