"""Which limits, cost and fail mode apply to a caller and a scope, and why.

Pure: the policy and the names are arguments. The most specific rule sets an amount; all limits that apply must admit.
"""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import blake2b
from typing import TYPE_CHECKING

import msgspec

from enforcer.core.anonymous import is_shared, shared_name
from enforcer.types import Plan, Terms

if TYPE_CHECKING:
    from enforcer.policies.limits import Amount, Limit, Per, SharedLimit
    from enforcer.policies.model import FailMode, Policy

#: The plan's own limit: its rate and burst.
LIMIT_RATE = "rate"
#: Whose bucket a limit for everyone is.
EVERYONE = "(everyone)"
_NOMINAL_S = {"hour": 3_600, "day": 86_400, "week": 604_800, "month": 2_592_000}
#: What a limit in shadow mode is called at the owner: it must not move the counter of one that is enforced.
SHADOW = "~shadow"


class Due(msgspec.Struct, frozen=True):
    """One limit that a request is charged to.

    Attributes:
        subject: whose bucket it is.
        terms: what the bucket is held to, as verdicts name it.
        per, zone: the calendar of a quota; None and empty for a token bucket.
        soft_tokens: at so many tokens left or fewer the caller is warned; negative for never.
        why: where the policy says so.
    """

    subject: str
    terms: Terms
    per: Per | None
    zone: str
    soft_tokens: float
    why: str


class Resolution(msgspec.Struct, frozen=True):
    """What a policy says about one caller in one scope.

    Attributes:
        dues: the limits that must all admit; the first is the rate of the caller's plan.
        shadows: those that only say what they would refuse.
        cost: tokens that a request of this scope costs.
        fail_mode: what this copy does without the owner: the scope's mode, or the policy's.
        policy_version: version of the policy that says so.
    """

    dues: tuple[Due, ...]
    shadows: tuple[Due, ...]
    cost: int
    fail_mode: FailMode
    policy_version: int

    @property
    def plan(self) -> Plan:
        """What the caller was sold."""
        return self.dues[0].terms.plan


def resolve(policy: Policy, *, caller: str, scope: str, tenant: str | None = None) -> Resolution:
    """Apply the policy to a caller and a scope; both may be unknown to it. `tenant` stands in for the policy's own."""
    rule = policy.scopes.get(scope)
    dues: list[Due] = []
    shadows: list[Due] = []
    for limit, due in _limits(policy, caller, scope, tenant):
        enforced = limit is None or (limit.mode == "enforce" and in_share(caller, due.terms.limit, limit.percent))
        if enforced:
            dues.append(due)
        else:
            terms = msgspec.structs.replace(due.terms, limit=due.terms.limit + SHADOW)
            shadows.append(msgspec.structs.replace(due, terms=terms))
    return Resolution(
        dues=tuple(dues),
        shadows=tuple(shadows),
        cost=rule.cost if rule is not None else 1,
        fail_mode=rule.fail_mode if rule is not None and rule.fail_mode is not None else policy.fail.mode,
        policy_version=policy.version,
    )


def in_share(caller: str, limit: str, percent: float) -> bool:
    """Whether the caller is among those `percent` for whom the limit is enforced: always the same ones."""
    if percent >= 100:
        return True
    digest = blake2b(f"{limit}\0{caller}".encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "little") < percent / 100 * (1 << 64)


def charged_as(policy: Policy, caller: str) -> str:
    """Under which name the policy has a caller charged."""
    anonymous = policy.anonymous
    if policy.unnamed.value == "own" or caller in policy.callers:
        return caller
    if is_shared(caller, anonymous.caller):
        return caller
    return shared_name(anonymous.caller, caller, anonymous.buckets)


def due_of(policy: Policy, subject: str, limit: str) -> Due | None:
    """What a bucket that is known already is held to now; None if the policy has no such limit any more.

    Args:
        policy: in force from now on.
        subject: whose bucket it is.
        limit: as the owner knows it, so with what marks one in shadow mode.
    """
    name = limit.removesuffix(SHADOW)
    shared = policy.limits.get(name)
    if shared is not None:
        due = _shared_due(policy, name, shared, subject)
    else:
        found = next((due for _, due in _plan_limits(policy, subject) if due.terms.limit == name), None)
        if found is None:
            return None
        due = found
    terms = msgspec.structs.replace(due.terms, limit=limit)
    return msgspec.structs.replace(due, terms=terms)


def _plan_limits(policy: Policy, caller: str) -> Iterator[tuple[Limit | None, Due]]:
    name, why = plan_name(policy, caller)
    plan = policy.plan(name)
    rule = policy.plans[name]
    soft = _soft_tokens(plan.burst, rule.soft_share)
    yield None, Due(caller, Terms(LIMIT_RATE, plan, policy.version), None, "", soft, why)
    for limit_name, limit in rule.limits.items():
        yield (
            limit,
            _due(
                policy.version,
                caller,
                limit_name,
                limit=limit,
                amount=limit,
                plan_name=name,
                why=f"plans.{name}.limits.{limit_name}",
            ),
        )


def _limits(policy: Policy, caller: str, scope: str, tenant: str | None) -> Iterator[tuple[Limit | None, Due]]:
    yield from _plan_limits(policy, caller)
    for limit_name, shared in policy.limits.items():
        if shared.scopes and scope not in shared.scopes:
            continue
        subject = _subject(policy, shared, caller, scope, tenant)
        if subject is not None:
            yield shared, _shared_due(policy, limit_name, shared, subject)


def _shared_due(policy: Policy, name: str, shared: SharedLimit, subject: str) -> Due:
    amount = shared.overrides.get(subject)
    why = f"limits.{name}" + (f".overrides.{subject!r}" if amount is not None else "")
    return _due(policy.version, subject, name, limit=shared, amount=amount or shared, plan_name=name, why=why)


def _due(version: int, subject: str, name: str, *, limit: Limit, amount: Amount, plan_name: str, why: str) -> Due:
    soft = _soft_tokens(amount.capacity, limit.soft_share)
    if amount.per is None:
        plan = Plan(plan_name, float(amount.rate_per_s or 0), amount.capacity)
        return Due(subject, Terms(name, plan, version), None, "", soft, why)
    plan = Plan(plan_name, amount.capacity / _NOMINAL_S[amount.per.value], amount.capacity)
    calendar = amount.per.value if amount.zone == "UTC" else f"{amount.per.value} {amount.zone}"
    return Due(subject, Terms(name, plan, version, calendar), amount.per, amount.zone, soft, why)


def plan_name(policy: Policy, caller: str) -> tuple[str, str]:
    """Which plan a caller is on, and where the policy says so."""
    rule = policy.callers.get(caller)
    if rule is not None:
        return rule.plan, f"callers.{caller!r}"
    anonymous = policy.anonymous
    if anonymous.plan is not None and is_shared(caller, anonymous.caller):
        return anonymous.plan, "anonymous.plan"
    return policy.default_plan, "default_plan"


def _subject(policy: Policy, limit: SharedLimit, caller: str, scope: str, tenant: str | None) -> str | None:
    """Whose bucket of a shared limit the request is charged to; None if it has none."""
    match limit.by.value:
        case "caller":
            return caller
        case "tenant":
            return policy.tenant_of(caller) if tenant is None else tenant
        case "scope":
            return scope
        case _:
            return EVERYONE


def _soft_tokens(capacity: int, share: float) -> float:
    return capacity - share * capacity if share > 0 else -1.0
