"""Raw ASGI middleware: asks the limiter before the application runs, and tells the client where it stands.

Refusals are answered here as JSON problem details, and the application never sees them. Only HTTP requests are
limited; everything else passes through. It holds no state of its own beside the limiter.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any, TypeAlias

import msgspec

from enforcer.cap.cap import NO_SLOT
from enforcer.cap.guard import CapGuard
from enforcer.core.headers import header_fields
from enforcer.core.routes import RouteMatcher
from enforcer.core.sentences import explain_refusal
from enforcer.errors import ConfigError, InvalidField
from enforcer.http.lifespan import Lifespan
from enforcer.keying import Identify, from_header
from enforcer.limiting.limiter import Limiter
from enforcer.metrics.checks import measured_by, unmeasured
from enforcer.metrics.metrics import Metrics
from enforcer.policies.model import UNMATCHED_SCOPE, Policy, is_route
from enforcer.types import Reason, Source, Verdict

Scope: TypeAlias = MutableMapping[str, Any]
Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
App: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]
ScopeOf: TypeAlias = Callable[[Mapping[str, Any]], str]

_PROBLEM_TYPES = "https://iana.org/assignments/http-problem-types#"
_OWNER_AWAY = (Reason.EMERGENCY, Reason.CLOSED, Reason.CEILING)
_identify_by_account = from_header("x-account")


class RateLimitMiddleware:
    """Limits an ASGI application.

    Given a limiter, it uses it and leaves closing to you. Given a callable, it calls that when the server starts up
    and closes the limiter when it shuts down.
    """

    def __init__(
        self,
        app: App,
        limiter: Limiter | Callable[[], Limiter],
        *,
        identify: Identify = _identify_by_account,
        scope_of: ScopeOf | None = None,
        cap: CapGuard | None = None,
        metrics: Metrics | None = None,
    ) -> None:
        """Wrap `app`.

        Args:
            app: the application.
            limiter: the limiter, or what builds it in the process that serves.
            identify: finds the caller's id; None from it means the policy's anonymous caller. It may raise
                `InvalidField`, which the client gets as a 400.
            scope_of: the request's scope, never made of the raw path; None: the route template that a framework has
                resolved, else the policy's route that matches, else ``(unmatched)``.
            cap: the protection, by the policy's ``cap``: a request that finds no room gets a 503. None: there is none.
            metrics: told how long one check in sixteen took. None: nothing is.
        """
        self._app = app
        self._identify = identify
        self._given_scope_of = scope_of
        self._cap = cap
        self._checked = unmeasured if metrics is None else measured_by(metrics)
        self._limiter: Limiter | None = None
        self._lifespan: Lifespan | None = None
        if isinstance(limiter, Limiter):
            self._use(limiter)
        else:
            self._lifespan = Lifespan(limiter, self._use)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one ASGI connection."""
        if scope["type"] != "http":
            if scope["type"] == "lifespan" and self._lifespan is not None:
                await self._lifespan.serve(self._app, scope, receive, send)
            else:
                await self._app(scope, receive, send)
            return
        limiter = self._limiter or self._limiter_late()
        try:
            caller = self._identify(scope)
            caller = limiter.policy.anonymous.caller if caller is None else caller
            name = self._scope_of(scope)
            entered = NO_SLOT if self._cap is None else self._cap.enter(limiter, caller, name)
            verdict = (
                entered
                if isinstance(entered, Verdict)
                else await entered.checked(self._checked(limiter.acheck(caller, name)))
            )
        except InvalidField as fault:
            await _send_problem(send, 400, [], {"type": "about:blank", "title": "Bad Request", "detail": str(fault)})
            return
        fields = header_fields(verdict, room=limiter.room(verdict))
        if isinstance(entered, Verdict) or not verdict.allowed:
            await _send_problem(send, 503 if verdict.source is Source.CAP else 429, fields, _refusal(limiter, verdict))
            return

        async def send_with_fields(message: Message) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message.get("headers", ()), *fields]}
            await send(message)

        with entered:
            await self._app(scope, receive, send_with_fields)

    def _use(self, limiter: Limiter) -> None:
        self._scope_of = self._given_scope_of or scope_from_route(limiter.policy)
        self._limiter = limiter

    def _limiter_late(self) -> Limiter:
        """For servers that run without a lifespan: the first request finds no limiter yet."""
        if self._lifespan is not None:
            self._lifespan.start_late()
        if self._limiter is None:
            raise ConfigError("the middleware was given no limiter")
        return self._limiter


def scope_from_route(policy: Policy) -> ScopeOf:
    """The scope of a request: the framework's route template, else the policy's matching route, else (unmatched)."""
    matcher = RouteMatcher(name for name in policy.scopes if is_route(name))

    def scope_of(scope: Mapping[str, Any]) -> str:
        route = scope.get("route")
        if route is not None:
            template = getattr(route, "path_format", None) or getattr(route, "path", None)
            if isinstance(template, str):
                return f"{scope['method']} {template}"
        return matcher.match(scope["method"], scope["path"]) or UNMATCHED_SCOPE

    return scope_of


def _refusal(limiter: Limiter, verdict: Verdict) -> dict[str, Any]:
    """The body of a 429 or a 503; `retry_after_ms` is null where no wait helps."""
    terms, reason = verdict.basis.standing.terms, verdict.reason
    plan = terms.plan
    kind = "temporary-reduced-capacity" if reason in _OWNER_AWAY else "quota-exceeded"
    wait_ms = verdict.retry_after_ms
    return {
        "type": _PROBLEM_TYPES + kind,
        "title": "Service Unavailable" if verdict.source is Source.CAP else "Too Many Requests",
        "detail": explain_refusal(
            reason=reason, cost=verdict.cost, rate_per_s=plan.rate_per_s, burst=plan.burst, retry_after_ms=wait_ms
        ),
        "request_id": limiter.request_id(verdict),
        "retry_after_ms": wait_ms if wait_ms >= 0 else None,
        "limit": {"name": terms.limit, "plan": plan.name, "rate_per_s": plan.rate_per_s, "burst": plan.burst},
        "violated-policies": [terms.limit],
    }


async def _send_problem(send: Send, status: int, fields: list[tuple[bytes, bytes]], problem: dict[str, Any]) -> None:
    body = msgspec.json.encode({**problem, "status": status})
    headers = [(b"content-type", b"application/problem+json"), (b"content-length", b"%d" % len(body)), *fields]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
