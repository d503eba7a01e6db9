"""Limits of a policy that nothing could ever reach, or that would never admit: valid field by field, wrong together.

Takes the document as read, however broken. Never resolves a request.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import Any

from enforcer.policies.limits import LimitBy, LimitMode, Location

_SHOWN = 8


def reach_faults(document: Mapping[str, Any], *, always: Sequence[str]) -> Iterator[tuple[Location, str]]:
    """What is wrong, each with the place where it stands; `always` are scopes that need not be declared."""
    scopes = _mapping(document.get("scopes"))
    known = [*scopes, *always]
    for name, limit in _mapping(document.get("limits")).items():
        if not isinstance(limit, Mapping):
            continue
        named = limit.get("scopes")
        for number, scope in enumerate(named if isinstance(named, list) else []):
            if isinstance(scope, str) and scope not in known:
                yield ("limits", name, "scopes", number), _unknown(scope, known)
        if limit.get("by") == LimitBy.SCOPE:
            for scope in _mapping(limit.get("overrides")):
                if scope not in known:
                    yield ("limits", name, "overrides", scope), _unknown(scope, known)
        if limit.get("by") == LimitBy.TENANT and not _has_tenants(document):
            yield (
                ("limits", name, "by"),
                "is 'tenant', and no caller has one: it would never apply; allowed: with tenants.separator, or with "
                "a caller that names its tenant",
            )
        yield from _cost_faults(name, limit, scopes)


def meant_by(scope: str, known: Iterable[str]) -> str:
    """The scope that was probably meant, as a question in brackets; empty where none is near."""
    near = get_close_matches(scope, list(known), n=1)
    return f" (is it {near[0]!r}?)" if near else ""


def _unknown(scope: str, known: Sequence[str]) -> str:
    meant = meant_by(scope, known)
    shown = ", ".join(repr(name) for name in known[:_SHOWN]) + (", …" if len(known) > _SHOWN else "")
    return (
        f"there is no scope {scope!r}{meant}: it would never apply; allowed: a name that stands under scopes ({shown})"
    )


def _has_tenants(document: Mapping[str, Any]) -> bool:
    if _mapping(document.get("tenants")).get("separator") is not None:
        return True
    callers = _mapping(document.get("callers")).values()
    return any(isinstance(rule, Mapping) and rule.get("tenant") is not None for rule in callers)


def _cost_faults(name: str, limit: Mapping[str, Any], scopes: Mapping[str, Any]) -> Iterator[tuple[Location, str]]:
    """Costs that the limit can never hold, whoever calls; not where it is enforced for nobody, or for some alone."""
    field = "burst" if limit.get("burst") is not None else "quota"
    if limit.get("mode") == LimitMode.SHADOW or limit.get("percent", 100) != 100:
        return
    named, overrides = limit.get("scopes"), _mapping(limit.get("overrides"))
    for scope, rule in scopes.items():
        cost = rule.get("cost") if isinstance(rule, Mapping) else None
        if type(cost) is not int or (named and scope not in named):
            continue
        by_scope = limit.get("by") == LimitBy.SCOPE
        amounts = [overrides.get(scope, limit)] if by_scope else [limit, *overrides.values()]
        held = [_capacity(amount) for amount in amounts]
        if all(type(most) is int and most < cost for most in held):
            yield (
                ("limits", name, field),
                f"is {limit.get(field)}, below the cost of scope {scope!r}, which it applies to: such a request could "
                f"never be admitted; allowed: at least {cost}, or other scopes",
            )
            return


def _capacity(amount: object) -> object:
    if not isinstance(amount, Mapping):
        return None
    return amount.get("burst") if amount.get("burst") is not None else amount.get("quota")


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
