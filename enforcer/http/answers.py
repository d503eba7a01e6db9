"""What every way in over HTTP answers alike: the scope of a request, the headers, the bodies of a 429 and a 400.

Knows no protocol between server and application, and never sends anything.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, TypeAlias, get_args

import msgspec

from enforcer.core.headers import header_fields, legacy_fields, retry_after_field
from enforcer.core.routes import UNMATCHED_SCOPE, RouteMatcher
from enforcer.core.sentences import explain_verdict, terms_fields
from enforcer.errors import ConfigError, InvalidField
from enforcer.keying import from_header
from enforcer.limiting.limiter import Limiter
from enforcer.policies.model import Policy, is_route
from enforcer.types import Reason, Source, Verdict

#: Which rate-limit headers stand on responses. `Retry-After` stands on every refusal that a wait helps, also with none.
HeaderStyle: TypeAlias = Literal["draft", "legacy", "both", "none"]
Fields: TypeAlias = list[tuple[bytes, bytes]]

PROBLEM_MEDIA_TYPE = "application/problem+json"
_PROBLEM_TYPES = "https://iana.org/assignments/http-problem-types#"
_OWNER_AWAY = (Reason.EMERGENCY, Reason.CLOSED, Reason.CEILING)

identify_by_account = from_header("x-account")


class PolicyRoutes:
    """Finds the policy's route of a request, of whichever policy is in force by then."""

    __slots__ = ("_held",)

    def __init__(self) -> None:
        self._held: tuple[Policy, RouteMatcher] | None = None

    def scope_of(self, policy: Policy, method: str, path: str) -> str:
        """The name of the matching route, else ``(unmatched)``; never made of the path."""
        held = self._held
        if held is None or held[0] is not policy:
            # Stored as one, so another thread never sees one policy's routes under the other's name.
            held = self._held = (policy, RouteMatcher(name for name in policy.scopes if is_route(name)))
        return held[1].match(method, path) or UNMATCHED_SCOPE


def fields_in_style(style: HeaderStyle) -> Callable[[Limiter, Verdict], Fields]:
    """What makes the headers of one response.

    Raises:
        ConfigError: there is no such style.
    """
    if style not in get_args(HeaderStyle):
        raise ConfigError(f"headers is {style!r}; allowed: {', '.join(get_args(HeaderStyle))}")
    return {"draft": _draft, "legacy": _legacy, "both": _both, "none": _none}[style]


def require_arguments(limiter: object, identify: object, scope_of: object) -> None:
    """Check what a middleware is given, when it is made rather than at each request.

    Raises:
        ConfigError: one is not what a middleware can use.
    """
    if not isinstance(limiter, Limiter) and not callable(limiter):
        raise ConfigError(f"limiter is a {type(limiter).__name__}; allowed: a Limiter, or a callable that builds it")
    if not callable(identify):
        raise ConfigError(f"identify is {identify!r}; allowed: a callable, such as from_header('x-account')")
    if scope_of is not None and not callable(scope_of):
        raise ConfigError(f"scope_of is {scope_of!r}; allowed: a callable, or None for the policy's routes")


def refused_body(limiter: Limiter, verdict: Verdict) -> bytes:
    """The body of a 429 (a 503 by the cap), problem details; `retry_after_ms` is null where no wait helps."""
    terms, reason = verdict.basis.standing.terms, verdict.reason
    kind = "temporary-reduced-capacity" if reason in _OWNER_AWAY else "quota-exceeded"
    wait_ms = verdict.retry_after_ms
    by_cap = verdict.source is Source.CAP
    problem: dict[str, Any] = {
        "type": _PROBLEM_TYPES + kind,
        "title": "Service Unavailable" if by_cap else "Too Many Requests",
        "detail": explain_verdict(verdict),
        "request_id": limiter.request_id(verdict),
        "retry_after_ms": wait_ms if wait_ms >= 0 else None,
        "limit": {"name": terms.limit, "plan": terms.plan.name, **terms_fields(terms)},
        "violated-policies": [terms.limit],
        "status": 503 if by_cap else 429,
    }
    return msgspec.json.encode(problem)


def bad_request_body(fault: InvalidField) -> bytes:
    """The body of a 400: which field of the request cannot be used."""
    return msgspec.json.encode({"type": "about:blank", "title": "Bad Request", "detail": str(fault), "status": 400})


def _draft(limiter: Limiter, verdict: Verdict) -> Fields:
    return header_fields(verdict, limiter.rooms(verdict))


def _legacy(limiter: Limiter, verdict: Verdict) -> Fields:
    return legacy_fields(verdict, limiter.rooms(verdict)) + retry_after_field(verdict)


def _both(limiter: Limiter, verdict: Verdict) -> Fields:
    rooms = limiter.rooms(verdict)
    return header_fields(verdict, rooms) + legacy_fields(verdict, rooms)


def _none(_limiter: Limiter, verdict: Verdict) -> Fields:
    return retry_after_field(verdict)
