"""What a policy says of one caller and one request, with the place in the policy where each part stands.

Pure. It says what `enforcer.core.resolution` resolves, and nothing of what is left of any bucket.
"""

from __future__ import annotations

import msgspec

from enforcer.core.degrade import fail_rule, fallback
from enforcer.core.resolution import SHADOW, Due, Resolution, charged_as, in_share, plan_name, resolve
from enforcer.core.routes import UNMATCHED_SCOPE, RouteMatcher
from enforcer.policies.limits import Limit, SharedLimit
from enforcer.policies.model import Policy, is_route
from enforcer.policies.reach import meant_by

#: Scopes that need not stand in the policy: where none is given, and where none matches.
_UNDECLARED = ("default", UNMATCHED_SCOPE)


class LimitSays(msgspec.Struct, frozen=True, kw_only=True):
    """One limit that applies.

    Attributes:
        name: of the limit, as verdicts and headers name it.
        enforced: whether it can refuse; otherwise it only says what it would refuse.
        rate_per_s, burst: of a token bucket; null for a quota.
        quota, per, zone: of a calendar quota; null for a bucket.
        bucket: whose it is.
        source: where the policy says how much.
        stage: why it is enforced or not, where that differs between callers or was said; else null.
        warns_at: at so many tokens left or fewer the verdict carries a warning; null for never.
        never: whether the request costs more than it can ever hold.
        without_owner: what one copy does for it while the owner is away, by the fail mode.
    """

    name: str
    enforced: bool
    rate_per_s: float | None
    burst: int | None
    quota: int | None
    per: str | None
    zone: str | None
    bucket: str
    source: str
    stage: str | None
    warns_at: int | None
    never: bool
    without_owner: str


class LeftOut(msgspec.Struct, frozen=True):
    """One limit of the policy that does not apply, and why."""

    name: str
    why: str


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """What applies to one request. Each ``…_source`` is the place in the policy that says so, or what else does.

    `literally` says, of a scope that the policy does not name, what `check` does with it as it stands; else null.
    """

    policy_version: int
    caller: str
    charged_as: str
    tenant: str | None
    tenant_source: str
    plan: str
    plan_source: str
    scope: str
    scope_source: str
    literally: str | None
    cost: int
    cost_source: str
    fail_mode: str
    fail_mode_source: str
    limits: list[LimitSays]
    left_out: list[LeftOut]


def explain_policy(
    policy: Policy, *, caller: str, scope: str, cost: int | None = None, tenant: str | None = None
) -> Explanation:
    """Explain one request.

    Args:
        policy: that is to be explained.
        caller: as a gateway finds it; the policy may not know it.
        scope: a scope's name, or a request such as ``GET /items/7``, whose route is then looked for.
        cost: tokens; None for what the policy says of the scope.
        tenant: whose the caller is to be taken for; None for what the policy says.
    """
    charged = charged_as(policy, caller)
    name, scope_source = _scope(policy, scope)
    found = resolve(policy, caller=charged, scope=name, tenant=tenant)
    rule = policy.scopes.get(name)
    named, plan_source = plan_name(policy, charged)
    tokens = found.cost if cost is None else cost
    its_tenant = policy.tenant_of(charged) if tenant is None else tenant
    own_mode = rule is not None and rule.fail_mode is not None
    own_cost = rule is not None and "cost" in rule.model_fields_set
    return Explanation(
        policy_version=policy.version,
        caller=caller,
        charged_as=charged,
        tenant=its_tenant,
        tenant_source=_tenant_source(policy, charged, tenant),
        plan=named,
        plan_source=plan_source,
        scope=name,
        scope_source=scope_source,
        literally=_literally(policy, scope, name, resolve(policy, caller=charged, scope=scope, tenant=tenant)),
        cost=tokens,
        cost_source="given" if cost is not None else f"scopes.{name!r}.cost" if own_cost else "the default",
        fail_mode=found.fail_mode.value,
        fail_mode_source=f"scopes.{name!r}.fail_mode" if own_mode else "fail.mode",
        limits=[
            *(_says(policy, found, due, tokens, enforced=True) for due in found.dues),
            *(_says(policy, found, due, tokens, enforced=False) for due in found.shadows),
        ],
        left_out=[
            LeftOut(limit_name, _why_not(limit, name))
            for limit_name, limit in policy.limits.items()
            if limit_name not in {_plain(due) for due in (*found.dues, *found.shadows)}
        ],
    )


def _scope(policy: Policy, given: str) -> tuple[str, str]:
    if given in policy.scopes:
        return given, f"scopes.{given!r}"
    if not is_route(given):
        return given, "not among the scopes"
    method, _, path = given.partition(" ")
    found = RouteMatcher(name for name in policy.scopes if is_route(name)).match(method, path.partition("?")[0])
    if found is None:
        return UNMATCHED_SCOPE, f"no route among the scopes matches {given!r}"
    return found, f"scopes.{found!r}, which matches {given!r}"


def _literally(policy: Policy, given: str, name: str, found: Resolution) -> str | None:
    if given in policy.scopes or given in _UNDECLARED:
        return None
    limits = ", ".join(due.terms.limit for due in found.dues)
    told = f"check and POST /check take {given!r} as it stands: cost {found.cost}, limits {limits}"
    hint = "" if name in policy.scopes else meant_by(given, policy.scopes)
    if is_route(given):
        return f"{told}; a middleware counts such a request under {name!r}, as told here{hint}"
    return f"{told}; the policy names no such scope{hint}, and no middleware makes it"


def _tenant_source(policy: Policy, caller: str, given: str | None) -> str:
    if given is not None:
        return "given"
    rule = policy.callers.get(caller)
    if rule is not None and rule.tenant is not None:
        return f"callers.{caller!r}.tenant"
    return "no tenant" if policy.tenant_of(caller) is None else "tenants.separator"


def _plain(due: Due) -> str:
    return due.terms.limit.removesuffix(SHADOW)


def _why_not(limit: SharedLimit, scope: str) -> str:
    if limit.scopes and scope not in limit.scopes:
        return f"only in {', '.join(map(repr, limit.scopes))}"
    return "the caller has no tenant"


def _says(policy: Policy, found: Resolution, due: Due, cost: int, *, enforced: bool) -> LimitSays:
    name, plan = _plain(due), due.terms.plan
    rule: Limit | None = policy.limits.get(name) or policy.plans[found.plan.name].limits.get(name)
    is_quota = due.per is not None
    return LimitSays(
        name=name,
        enforced=enforced,
        rate_per_s=None if is_quota else plan.rate_per_s,
        burst=None if is_quota else plan.burst,
        quota=plan.burst if is_quota else None,
        per=due.per.value if due.per is not None else None,
        zone=due.zone if is_quota else None,
        bucket=due.subject,
        source=f"plans.{plan.name}" if rule is None else due.why,
        stage=None if rule is None else _stage(rule, name, caller=found.dues[0].subject),
        warns_at=int(due.soft_tokens) if due.soft_tokens >= 0 else None,
        never=cost > plan.burst,
        without_owner=_without_owner(policy, found, due) if enforced else "nothing: it does not refuse",
    )


def _stage(rule: Limit, name: str, *, caller: str) -> str | None:
    if rule.mode == "shadow":
        return "in shadow mode"
    if rule.percent >= 100:
        return None
    among = "is" if in_share(caller, name, rule.percent) else "is not"
    return f"enforced for {rule.percent:g} % of the callers: this one {among} among them"


def _without_owner(policy: Policy, found: Resolution, due: Due) -> str:
    kind = fallback(fail_rule(policy), due.terms.plan, found.fail_mode, k=0, per=due.per)
    if kind.capacity <= 0:
        return "refuses what this copy does not hold"
    amount = f"{kind.rate_per_s:g}/s, burst {int(kind.capacity):,}, in each copy"
    if found.fail_mode.value == "open_capped":
        return f"{amount}, for all callers together"
    whole = kind.capacity >= due.terms.plan.burst and kind.rate_per_s >= due.terms.plan.rate_per_s
    return f"the whole limit, {amount}" if whole else f"the limit divided by {policy.fleet.copies} copies: {amount}"
