"""Every caller that a copy knows at the moment, and the lanes that lead to it. Bounded: made-up callers share one.

Kept under the asker's lock, but for `lanes`, which the fast path reads. Never asks the owner.
"""

from __future__ import annotations

from enforcer.core.account import Account
from enforcer.core.resolution import Resolution, resolve
from enforcer.errors import InvalidField
from enforcer.limiting.lane import Lane
from enforcer.policies.model import LIMIT_RATE, MAX_NAME_LENGTH, Policy
from enforcer.types import Terms

#: Scopes come from templates, so they are few; made-up ones must not stay for ever.
_MOST_SCOPES = 10_000


class Directory:
    """Lanes by (caller, scope), accounts by (caller, limit)."""

    def __init__(self, policy: Policy, *, max_callers: int) -> None:
        self.lanes: dict[tuple[str, str], Lane] = {}
        self._accounts: dict[tuple[str, str], Account] = {}
        self._scopes: dict[str, str] = {}
        self._terms: dict[str, Terms] = {}
        self._policy = policy
        self._max_callers = max_callers

    @property
    def accounts(self) -> list[Account]:
        """All accounts."""
        return list(self._accounts.values())

    def open(self, caller: str, scope: str, now_ns: int) -> tuple[Lane, bool]:
        """The lane of a caller and scope; also whether its account is new.

        A new caller beyond `max_callers` gets the lane of the anonymous caller, and is recorded under its name.
        """
        # A subclass of str would be kept as the name of all later, plain ones, and the record takes only plain text.
        caller, scope = str.__str__(caller), str.__str__(scope)
        key = (caller, LIMIT_RATE)
        if key not in self._accounts and len(self._accounts) >= self._max_callers:
            caller = self._policy.anonymous.caller
            key = (caller, LIMIT_RATE)
        lane = self.lanes.get((caller, scope))
        if lane is not None:
            return lane, False
        resolution = resolve(self._policy, caller=caller, scope=scope, limit=LIMIT_RATE)
        account = self._accounts.get(key)
        is_new = account is None
        if account is None:
            account = self._accounts[key] = Account(caller, self._terms_of(resolution), now_ns=now_ns)
        lane = self.lanes[caller, scope] = Lane(account, self._one_text(scope), resolution)
        account.scopes.append(scope)
        return lane, is_new

    def _terms_of(self, resolution: Resolution) -> Terms:
        plan = resolution.plan
        terms = self._terms.get(plan.name)
        if terms is None:
            terms = self._terms[plan.name] = Terms(resolution.limit, plan, resolution.policy_version)
        return terms

    def _one_text(self, scope: str) -> str:
        """The same object for the same scope, whatever string the request came with."""
        if len(self._scopes) > _MOST_SCOPES:
            self._scopes.clear()
        return self._scopes.setdefault(scope, scope)

    def forget(self, account: Account) -> None:
        """Drop an account and its lanes; whoever still holds one of them must open it again."""
        account.evicted = True
        del self._accounts[account.caller, account.limit]
        for scope in account.scopes:
            self.lanes.pop((account.caller, scope), None)


def validate_name(field: str, value: object) -> None:
    """Raise `InvalidField` unless a caller or a scope can be called so: text of 1 to 256 printable characters."""
    if not isinstance(value, str) or not 0 < len(value) <= MAX_NAME_LENGTH or not value.isprintable():
        raise InvalidField(field, value, f"text of 1 to {MAX_NAME_LENGTH} printable characters")
