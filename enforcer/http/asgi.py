"""Raw ASGI middleware: asks the limiter before the application runs, and tells the client where it stands.

Refusals are answered here as JSON problem details, and the application never sees them. Only HTTP requests are
limited; everything else passes through. It holds no state of its own beside the limiter.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any, TypeAlias

from enforcer.cap.cap import NO_SLOT
from enforcer.cap.guard import CapGuard
from enforcer.errors import ConfigError, InvalidField
from enforcer.forking import tell_of_forks
from enforcer.http.answers import (
    PROBLEM_MEDIA_TYPE,
    Fields,
    HeaderStyle,
    PolicyRoutes,
    bad_request_body,
    fields_in_style,
    identify_by_account,
    refused_body,
    require_arguments,
)
from enforcer.http.lifespan import Lifespan
from enforcer.keying import Identify
from enforcer.limiting.limiter import Limiter
from enforcer.metrics.checks import measured_by, unmeasured
from enforcer.metrics.metrics import Metrics
from enforcer.process import PerProcess
from enforcer.types import Source, Verdict

Scope: TypeAlias = MutableMapping[str, Any]
Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
App: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]
ScopeOf: TypeAlias = Callable[[Mapping[str, Any]], str]


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
        identify: Identify = identify_by_account,
        scope_of: ScopeOf | None = None,
        headers: HeaderStyle = "draft",
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
            headers: which rate-limit headers stand on responses.
            cap: the protection, by the policy's ``cap``: a request that finds no room gets a 503. None: there is none.
            metrics: told how long one check in sixteen took. None: nothing is.

        Raises:
            ConfigError: `headers` names no style, or another argument is not of its type.
        """
        require_arguments(limiter, identify, scope_of)
        self._app = app
        self._identify = identify
        self._scope_of = scope_of
        self._fields = fields_in_style(headers)
        self._routes = PolicyRoutes()
        self._cap = cap
        self._checked = unmeasured if metrics is None else measured_by(metrics)
        self._limiter: Limiter | None = None
        self._find: Callable[[], Limiter] | None = None
        self._lifespan: Lifespan | None = None
        if isinstance(limiter, Limiter):
            self._find = PerProcess.of(limiter)
        else:
            self._lifespan = Lifespan(limiter, self._use)
        tell_of_forks(self)

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
            policy = limiter.policy
            caller = policy.anonymous.caller if caller is None else caller
            if self._scope_of is not None:
                name = self._scope_of(scope)
            else:
                name = _resolved_route(scope) or self._routes.scope_of(policy, scope["method"], scope["path"])
            entered = NO_SLOT if self._cap is None else self._cap.enter(limiter, caller, name)
            verdict = (
                entered
                if isinstance(entered, Verdict)
                else await entered.checked(self._checked(limiter.acheck(caller, name)))
            )
        except InvalidField as fault:
            await _send_problem(send, 400, [], bad_request_body(fault))
            return
        fields = self._fields(limiter, verdict)
        if isinstance(entered, Verdict) or not verdict.allowed:
            status = 503 if verdict.source is Source.CAP else 429
            await _send_problem(send, status, fields, refused_body(limiter, verdict))
            return

        async def send_with_fields(message: Message) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message.get("headers", ()), *fields]}
            await send(message)

        with entered:
            await self._app(scope, receive, send_with_fields)

    def after_fork(self) -> None:
        """See `Forkable`: the parent's limiter decides nothing here."""
        self._limiter = None

    def _use(self, limiter: Limiter) -> None:
        self._limiter = limiter

    def _limiter_late(self) -> Limiter:
        """For the first request of a process, and for servers that run without a lifespan: there is none yet."""
        if self._lifespan is not None:
            self._lifespan.start_late()
        elif self._find is not None:
            self._use(self._find())
        if self._limiter is None:
            raise ConfigError("the middleware was given no limiter")
        return self._limiter


def _resolved_route(scope: Mapping[str, Any]) -> str | None:
    """The route template that a framework has resolved, where the middleware stands behind its router."""
    route = scope.get("route")
    if route is None:
        return None
    template = getattr(route, "path_format", None) or getattr(route, "path", None)
    return f"{scope['method']} {template}" if isinstance(template, str) else None


async def _send_problem(send: Send, status: int, fields: Fields, body: bytes) -> None:
    media_type = PROBLEM_MEDIA_TYPE.encode("ascii")
    headers = [(b"content-type", media_type), (b"content-length", b"%d" % len(body)), *fields]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
