"""Which plan, limit, cost and fail mode apply to a caller and a scope, and which scope a request belongs to.

Pure: the policy and the names are arguments. Never looks at a request's caller to choose a scope.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

import msgspec

from enforcer.types import Plan

if TYPE_CHECKING:
    from enforcer.policies.model import FailMode, Policy

_PARAMETER = re.compile(r"\{[A-Za-z_][A-Za-z0-9_]*(:path)?\}")
_FALLBACK_METHODS = {"HEAD": "GET"}


class Resolution(msgspec.Struct, frozen=True):
    """What a policy says about one caller in one scope.

    Attributes:
        plan: what the caller was sold: its own plan, or the anonymous one, or the default.
        limit: the limit of that plan which is charged.
        cost: tokens that a request of this scope costs.
        fail_mode: what this copy does without the owner: the scope's mode, or the policy's.
        policy_version: version of the policy that says so.
    """

    plan: Plan
    limit: str
    cost: int
    fail_mode: FailMode
    policy_version: int


def resolve(policy: Policy, *, caller: str, scope: str, limit: str) -> Resolution:
    """Apply the policy to a caller and a scope; both may be unknown to it."""
    name = policy.callers.get(caller)
    if name is None and caller == policy.anonymous.caller:
        name = policy.anonymous.plan
    rule = policy.scopes.get(scope)
    mode = rule.fail_mode if rule is not None and rule.fail_mode is not None else policy.fail.mode
    return Resolution(
        plan=policy.plan(name or policy.default_plan),
        limit=limit,
        cost=rule.cost if rule is not None else 1,
        fail_mode=mode,
        policy_version=policy.version,
    )


class RouteMatcher:
    """Finds the declared route of a request: the most literal template that matches its method and path.

    Templates are ``METHOD /path/{parameter}``; ``{name:path}`` takes the rest of the path. HEAD counts as GET where
    no HEAD route matches.
    """

    __slots__ = ("_methods",)

    def __init__(self, routes: Iterable[str]) -> None:
        by_method: dict[str, list[str]] = {}
        for route in routes:
            method, path = route.split(" ", 1)
            by_method.setdefault(method, []).append(path)
        self._methods: dict[str, tuple[re.Pattern[str], tuple[str, ...]]] = {}
        for method, paths in by_method.items():
            ordered = sorted(paths, key=_literalness)
            pattern = re.compile("|".join(f"({_expression(path)})" for path in ordered))
            self._methods[method] = (pattern, tuple(f"{method} {path}" for path in ordered))

    def match(self, method: str, path: str) -> str | None:
        """The name of the matching route, or None."""
        found = self._methods.get(method)
        if found is not None:
            match = found[0].fullmatch(path)
            # No group stands inside another, so the last group that matched is the template that did.
            if match is not None and match.lastindex is not None:
                return found[1][match.lastindex - 1]
        other = _FALLBACK_METHODS.get(method)
        return self.match(other, path) if other is not None else None


def _expression(path: str) -> str:
    parts: list[str] = []
    at = 0
    for parameter in _PARAMETER.finditer(path):
        parts += [re.escape(path[at : parameter.start()]), "[^/]+" if parameter.group(1) is None else ".*"]
        at = parameter.end()
    return "".join([*parts, re.escape(path[at:])])


def _literalness(path: str) -> tuple[tuple[int, ...], str]:
    """Sorts literal segments before parameters, and those before a parameter that takes the rest."""
    kinds: list[int] = []
    for segment in path[1:].split("/"):
        parameter = _PARAMETER.fullmatch(segment)
        kinds.append(0 if parameter is None else 1 if parameter.group(1) is None else 2)
    return tuple(kinds), path
