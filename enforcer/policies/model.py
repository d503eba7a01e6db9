"""What callers were sold and how a route is charged: the policy as validated, immutable values.

Never reads a file or the clock: `enforcer.policies` loads documents, `enforcer.core.resolution` applies them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from enum import StrEnum
from functools import lru_cache
from typing import Annotated, Any, Self

from pydantic import Field, StringConstraints, model_validator

from enforcer.core.inflight import Priority
from enforcer.core.routes import UNMATCHED_SCOPE
from enforcer.envoy.mapping import EnvoySection
from enforcer.owners.model import OwnersModel
from enforcer.policies.cap import CapRule, cap_fault
from enforcer.policies.limits import (
    LEAST_RATE_PER_S,
    MAX_COST_TOKENS,
    MOST_RATE_PER_S,
    SOFT_SHARE,
    Limit,
    LimitName,
    Location,
    PolicyModel,
    Printable,
    SharedLimit,
    Tenants,
    limit_faults,
)
from enforcer.policies.reach import reach_faults
from enforcer.types import Plan

#: Methods that a scope's route may have. A HEAD request counts as GET where no HEAD route matches.
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")

_SEGMENT = re.compile(r"[^{}\s]+|\{[A-Za-z_][A-Za-z0-9_]*(:path)?\}")

PlanName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$")]


class FailMode(StrEnum):
    """What a route does while the owner is away and this copy holds nothing, not even a grant that has expired."""

    BY_PLAN = "by_plan"
    """Small plans: the full local bucket in each copy. Large plans: the plan divided by the copies."""
    CLOSED = "closed"
    """Refuse. Of what is held, only what has not expired is spent."""
    EMERGENCY = "emergency"
    """The plan divided by the copies, whatever its size; a bucket of at least one token."""
    OPEN_CAPPED = "open_capped"
    """Admit, up to this copy's share of the fleet's ceiling, whoever calls."""


class PlanRule(PolicyModel):
    """A plan as sold: tokens per second, how many may be spent at once, and further limits of each caller."""

    rate_per_s: float = Field(ge=LEAST_RATE_PER_S, le=MOST_RATE_PER_S)
    burst: int = Field(ge=1, le=MAX_COST_TOKENS)
    soft_share: float = Field(default=SOFT_SHARE, ge=0, lt=1)
    limits: dict[LimitName, Limit] = Field(default_factory=dict)


class CallerRule(PolicyModel):
    """What one caller was sold, and whose it is. Where only a plan is to be said, its name alone will do."""

    plan: PlanName
    tenant: Printable | None = None

    @model_validator(mode="before")
    @classmethod
    def _of_a_name(cls, value: object) -> object:
        return {"plan": value} if isinstance(value, str) else value


class Scope(PolicyModel):
    """A class of requests: what each costs, in tokens, what happens while the owner is away, and who goes first."""

    cost: int = Field(default=1, ge=0, le=MAX_COST_TOKENS)
    fail_mode: FailMode | None = Field(default=None, strict=False)
    priority: Priority = Field(default=Priority.NORMAL, strict=False)


class Unnamed(StrEnum):
    """What becomes of callers that the policy does not name."""

    OWN = "own"
    """Each has its own bucket, on the default plan: for a gateway whose callers have all been authenticated."""
    ANONYMOUS = "anonymous"
    """They share the anonymous buckets: names that anyone can make up change neither memory nor anyone's service."""


class Anonymous(PolicyModel):
    """The bounded buckets that all requests without an identity share: ``caller``, and ``caller/0000`` and so on."""

    caller: Printable = "anonymous"
    plan: PlanName | None = None
    buckets: int = Field(default=1, ge=1, le=10_000)


class Fleet(PolicyModel):
    """How many copies run, and how many requests per second the fleet as a whole can serve."""

    copies: int = Field(default=1, ge=1, le=1_000_000)
    ceiling_per_s: float | None = Field(default=None, ge=LEAST_RATE_PER_S, le=MOST_RATE_PER_S)


class Fail(PolicyModel):
    """How copies decide without the owner.

    A plan is large if k × rate_per_s is above large_share × the fleet's ceiling, where k is the copies that the
    caller was last counted on, or all copies if it was not counted. Without a ceiling every plan is small.
    """

    mode: FailMode = Field(default=FailMode.BY_PLAN, strict=False)
    large_share: float = Field(default=1.0, gt=0)


class Timeouts(PolicyModel):
    """How long a request waits for the owner, milliseconds."""

    ask_ms: int = Field(default=50, ge=1, le=10_000)


class Policy(PolicyModel):
    """One version of the whole policy. Build it with `enforcer.load_policy`, or directly in tests."""

    version: int = Field(ge=1, lt=1 << 32)
    plans: dict[PlanName, PlanRule] = Field(min_length=1)
    default_plan: PlanName
    callers: dict[Printable, CallerRule] = Field(default_factory=dict)
    tenants: Tenants = Field(default_factory=Tenants)
    limits: dict[LimitName, SharedLimit] = Field(default_factory=dict)
    scopes: dict[Printable, Scope] = Field(default_factory=dict)
    anonymous: Anonymous = Field(default_factory=Anonymous)
    unnamed: Unnamed = Field(default=Unnamed.OWN, strict=False)
    fleet: Fleet = Field(default_factory=Fleet)
    fail: Fail = Field(default_factory=Fail)
    cap: CapRule | None = None
    timeouts: Timeouts = Field(default_factory=Timeouts)
    envoy: EnvoySection | None = None
    owners: OwnersModel | None = None

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        faults = [message for _, message in reference_faults(self.model_dump(mode="json"))]
        if faults:
            raise ValueError("; ".join(faults))
        return self

    def tenant_of(self, caller: str) -> str | None:
        """Whose caller this is; None if it is nobody's."""
        rule = self.callers.get(caller)
        if rule is not None and rule.tenant is not None:
            return rule.tenant
        separator = self.tenants.separator
        tenant, found, _ = caller.partition(separator) if separator is not None else (caller, "", "")
        return tenant if found and tenant else None

    def plan(self, name: str) -> Plan:
        """The named plan as the enforcer's value, one object for all callers. Raises `KeyError` if there is none."""
        rule = self.plans[name]
        return _one_plan(name, float(rule.rate_per_s), rule.burst)


@lru_cache(maxsize=4_096)
def _one_plan(name: str, rate_per_s: float, burst: int) -> Plan:
    return Plan(name, rate_per_s, burst)


def reference_faults(document: Mapping[str, Any]) -> Iterator[tuple[Location, str]]:
    """What is wrong between fields of a policy document, each with the place where it stands.

    Takes the document as read, however broken, so that these faults are reported together with all others.
    """
    plans = document.get("plans")
    if isinstance(plans, Mapping):
        known = ", ".join(sorted(str(name) for name in plans))
        for place, name in _plan_references(document):
            if isinstance(name, str) and name not in plans:
                yield place, f"there is no plan {name!r}; allowed: {known}"
    for section in ("callers", "scopes"):
        for name in _keys(document, section):
            if not name.isprintable():
                yield (section, name), "has control characters; allowed: printable characters"
    for name in _keys(document, "scopes"):
        fault = scope_fault(name)
        if fault is not None:
            yield ("scopes", name), fault
    yield from limit_faults(document)
    yield from reach_faults(document, always=("default", UNMATCHED_SCOPE))
    yield from _fail_faults(document)
    yield from _cost_faults(document)
    if (fault_of_cap := cap_fault(document)) is not None:
        yield fault_of_cap
    anonymous = document.get("anonymous")
    if isinstance(anonymous, Mapping):
        caller = anonymous.get("caller")
        if isinstance(caller, str) and not caller.isprintable():
            yield ("anonymous", "caller"), "has control characters; allowed: printable characters"


def is_route(scope: str) -> bool:
    """Whether a scope's name is a method and path template such as ``GET /items/{id}``."""
    method, space, path = scope.partition(" ")
    return space != "" and method in METHODS and path.startswith("/")


def scope_fault(scope: str) -> str | None:
    """What is wrong with a scope's name as a route, or None if nothing is, or if it is a plain name.

    A plain name has neither slash nor space: anything else is meant as a route, and would match no request.
    """
    if "/" not in scope and " " not in scope:
        return None
    if scope.startswith("/"):
        return (
            f"is a path without a method; allowed: METHOD /path, as in 'GET {scope}', or a name without slash and space"
        )
    method, space, path = scope.partition(" ")
    if not space or method not in METHODS:
        return (
            f"{method!r} is no method that a route can have; allowed: {', '.join(METHODS)}, then a space and the path, "
            "or a name without slash and space"
        )
    if not path.startswith("/"):
        return f"the path {path!r} does not begin with a slash; allowed: METHOD /path, as in '{method} /{path.strip()}'"
    return _path_fault(path)


def _path_fault(path: str) -> str | None:
    segments = path[1:].split("/")
    for number, segment in enumerate(segments):
        if segment == "" and number == len(segments) - 1:
            continue
        match = _SEGMENT.fullmatch(segment)
        if match is None:
            return f"the path segment {segment!r} is not allowed; allowed: text, {{name}}, or {{name:path}} at the end"
        if match.group(1) is not None and number != len(segments) - 1:
            return f"{segment!r} takes the rest of the path, so it must be the last segment"
    return None


def _cost_faults(document: Mapping[str, Any]) -> Iterator[tuple[Location, str]]:
    """Costs that no plan can ever pay: every such request would be refused, for ever."""
    plans, scopes = document.get("plans"), document.get("scopes")
    if not isinstance(plans, Mapping) or not isinstance(scopes, Mapping):
        return
    bursts = [plan.get("burst") if isinstance(plan, Mapping) else None for plan in plans.values()]
    known = [burst for burst in bursts if type(burst) is int and burst >= 1]
    if not known or len(known) < len(bursts):
        return
    for name, scope in scopes.items():
        cost = scope.get("cost") if isinstance(scope, Mapping) else None
        if type(cost) is int and cost > max(known):
            yield (
                ("scopes", name, "cost"),
                f"is {cost}, above the burst of every plan: no caller could ever make such a request; "
                f"allowed: at most {max(known)}",
            )


def _fail_faults(document: Mapping[str, Any]) -> Iterator[tuple[Location, str]]:
    fleet = document.get("fleet")
    if isinstance(fleet, Mapping) and fleet.get("ceiling_per_s") is not None:
        return
    places: list[tuple[Location, object]] = []
    fail, scopes = document.get("fail"), document.get("scopes")
    if isinstance(fail, Mapping):
        places.append((("fail", "mode"), fail.get("mode")))
    if isinstance(scopes, Mapping):
        for name, scope in scopes.items():
            if isinstance(scope, Mapping):
                places.append((("scopes", name, "fail_mode"), scope.get("fail_mode")))
    for place, mode in places:
        if mode == FailMode.OPEN_CAPPED:
            yield place, "is 'open_capped', which needs fleet.ceiling_per_s: what all copies can serve together"


def _plan_references(document: Mapping[str, Any]) -> Iterator[tuple[Location, object]]:
    yield ("default_plan",), document.get("default_plan")
    callers = document.get("callers")
    if isinstance(callers, Mapping):
        for caller, rule in callers.items():
            if isinstance(rule, Mapping):
                yield ("callers", caller, "plan"), rule.get("plan")
            else:
                yield ("callers", caller), rule
    anonymous = document.get("anonymous")
    if isinstance(anonymous, Mapping):
        yield ("anonymous", "plan"), anonymous.get("plan")


def _keys(document: Mapping[str, Any], section: str) -> list[str]:
    mapping = document.get(section)
    return [key for key in mapping if isinstance(key, str)] if isinstance(mapping, Mapping) else []
