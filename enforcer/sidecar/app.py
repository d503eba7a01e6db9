"""The sidecar as a raw ASGI application: checks, nginx's auth_request, health, metrics and its own description.

A refusal is an answer like any other: `POST /check` says 200. Holds no state beside the limiter.
"""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

from enforcer.core.headers import header_fields
from enforcer.core.routes import UNMATCHED_SCOPE, RouteMatcher
from enforcer.errors import EnforcerError, InvalidField
from enforcer.http.asgi import Receive, Scope, Send
from enforcer.http.lifespan import Lifespan
from enforcer.keying import from_header
from enforcer.keying.request import HEADERS_JOINED
from enforcer.limiting.limiter import Limiter
from enforcer.metrics.checks import measured_by
from enforcer.metrics.metrics import CopyMetrics
from enforcer.metrics.prometheus import PrometheusCollector
from enforcer.policies.model import Policy, is_route
from enforcer.sidecar.models import BatchAnswer, Health, Problem, Readiness, answer_of, read_batch, read_check
from enforcer.sidecar.openapi import openapi

MAX_BODY_BYTES = 65_536
Fields = list[tuple[bytes, bytes]]
Answered = tuple[int, bytes, Fields]

_JSON = (b"content-type", b"application/json")
_encode = msgspec.json.Encoder().encode
_caller = from_header("x-account")
_named_scope = from_header("x-scope")
_method = from_header("x-original-method")
_uri = from_header("x-original-uri")


class TooLarge(Exception):
    """A body beyond the bound."""


class Sidecar:
    """Serves one limiter, which it builds when the server starts and closes when that ends."""

    def __init__(
        self,
        build: Callable[[], Limiter],
        metrics: CopyMetrics,
        *,
        token: str | None = None,
        watched_at: int | None = None,
        is_alone: bool = True,
    ) -> None:
        """Serve what `build` makes.

        Args:
            build: makes the limiter, which is measured by `metrics`.
            metrics: shown at ``/metrics``.
            token: what ``Authorization: Bearer`` must say of those who ask; None: anyone may.
            watched_at: the port where ``/metrics`` is this process's own.
            is_alone: it is so everywhere, because there is no other worker.
        """
        self._lifespan = Lifespan(build, self._use)
        self._token = None if token is None else b"Bearer " + token.encode("ascii")
        self._watched_at = watched_at
        self._is_alone = is_alone
        self._routed: tuple[Policy, RouteMatcher] | None = None
        self._metrics = metrics
        self._checked = measured_by(metrics)
        self._registry = CollectorRegistry()
        self._registry.register(PrometheusCollector(metrics))

    def _use(self, limiter: Limiter) -> None:
        self._limiter = limiter

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one ASGI connection."""
        if scope["type"] == "lifespan":
            await self._lifespan.serve(_no_application, scope, receive, send)
            return
        try:
            status, body, fields = await self._answer(scope, receive)
        except InvalidField as fault:
            status, body, fields = _problem(400, "Bad Request", str(fault), fault.field, fault.allowed)
        except TooLarge:
            status, body, fields = _problem(413, "Content Too Large", f"body; allowed: {MAX_BODY_BYTES:,} bytes")
            fields.append((b"connection", b"close"))
        except EnforcerError as fault:
            status, body, fields = _problem(503, "Service Unavailable", str(fault))
        if status != 204:
            fields.append((b"content-length", b"%d" % len(body)))
        await send({"type": "http.response.start", "status": status, "headers": fields})
        await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else body})

    async def _answer(self, scope: Scope, receive: Receive) -> Answered:
        path = scope["path"]
        allowed = _METHODS.get(path)
        if allowed is None:
            return _problem(404, "Not Found", f"path is {path[:80]!r}; allowed: {', '.join(_METHODS)}")
        if scope["method"] not in allowed:
            problem = _problem(405, "Method Not Allowed", f"method is {scope['method']!r}; allowed: {allowed[0]}")
            problem[2].append((b"allow", ", ".join(allowed).encode()))
            return problem
        if path == "/metrics":
            return self._measures(scope)
        if path in ("/healthz", "/readyz", "/openapi.json"):
            return 200, _encode(self._about(path)), [_JSON]
        if self._token is not None and not _may_ask(scope, self._token):
            status, body, fields = _problem(401, "Unauthorized", "authorization: the sidecar's token is needed")
            return status, body, [*fields, (b"www-authenticate", b"Bearer")]
        return await (self._auth(scope) if path == "/auth" else self._decide(path, receive))

    def _about(self, path: str) -> Any:
        if path == "/openapi.json":
            return openapi()
        if path == "/healthz":
            return Health("alive")
        states = self._metrics.read().values.get("tallygate_degraded", {})
        owners = {name: "away" if away else "there" for (name,), away in states.items()}
        return Readiness("degraded" if self._limiter.degraded else "ready", owners)

    def _measures(self, scope: Scope) -> Answered:
        if not self._is_alone and scope["server"][1] != self._watched_at:
            # Each answer would be another worker's, and counters would seem to fall.
            return _problem(404, "Not Found", "each worker has its own metrics: see TALLYGATE_SIDECAR_METRICS")
        return 200, generate_latest(self._registry), [(b"content-type", CONTENT_TYPE_LATEST.encode("ascii"))]

    async def _decide(self, path: str, receive: Receive) -> Answered:
        limiter, body = self._limiter, await _body(receive)
        if path == "/check":
            check = read_check(body)
            verdict = await self._checked(limiter.acheck(check.caller, check.scope, check.cost))
            return 200, _encode(answer_of(limiter, verdict)), [_JSON]
        checks = read_batch(body)
        verdicts = await asyncio.gather(
            *(self._checked(limiter.acheck(one.caller, one.scope, one.cost)) for one in checks)
        )
        return 200, _encode(BatchAnswer([answer_of(limiter, verdict) for verdict in verdicts])), [_JSON]

    async def _auth(self, scope: Scope) -> Answered:
        """For auth_request, which knows 2xx, 401 and 403: the real status stands in ``x-tallygate-status``."""
        limiter = self._limiter
        policy = limiter.policy
        try:
            # nginx joins what a client has sent twice, as WSGI servers do.
            caller = _caller({"headers": scope["headers"], HEADERS_JOINED: True}) or policy.anonymous.caller
            verdict = await self._checked(limiter.acheck(caller, self._scope_of(policy, scope)))
        except InvalidField as fault:
            _, body, fields = _problem(403, "Bad Request", str(fault), fault.field, fault.allowed)
            return 403, body, [*fields, (b"x-tallygate-status", b"400")]
        fields = header_fields(verdict, limiter.rooms(verdict))
        fields.append((b"x-tallygate-request-id", limiter.request_id(verdict).encode("ascii")))
        if verdict.allowed:
            return 204, b"", fields
        return 403, b"", [*fields, (b"x-tallygate-status", b"429")]

    def _scope_of(self, policy: Policy, scope: Mapping[str, Any]) -> str:
        named = _named_scope(scope)
        if named is not None:
            return named
        routed = self._routed
        if routed is None or routed[0] is not policy:
            routed = self._routed = (policy, RouteMatcher(name for name in policy.scopes if is_route(name)))
        path = (_uri(scope) or "/").partition("?")[0]
        return routed[1].match(_method(scope) or "GET", path) or UNMATCHED_SCOPE


_METHODS: dict[str, tuple[str, ...]] = {
    "/check": ("POST",),
    "/check/batch": ("POST",),
    "/auth": ("GET", "HEAD"),
    "/healthz": ("GET", "HEAD"),
    "/readyz": ("GET", "HEAD"),
    "/metrics": ("GET", "HEAD"),
    "/openapi.json": ("GET", "HEAD"),
}


async def _no_application(_scope: Scope, _receive: Receive, _send: Send) -> None:
    """The sidecar has no lifespan but the limiter's."""


def _may_ask(scope: Scope, wanted: bytes) -> bool:
    given = [value for name, value in scope["headers"] if name == b"authorization"]
    return len(given) == 1 and hmac.compare_digest(given[0], wanted)


async def _body(receive: Receive) -> bytes:
    message = await receive()
    body: bytes = message.get("body", b"")
    while message.get("more_body"):
        if len(body) > MAX_BODY_BYTES:
            raise TooLarge
        message = await receive()
        body += message.get("body", b"")
    if len(body) > MAX_BODY_BYTES:
        raise TooLarge
    return body


def _problem(status: int, title: str, detail: str, field: str | None = None, allowed: str | None = None) -> Answered:
    body = _encode(Problem(title, status, detail, field, allowed))
    return status, body, [(b"content-type", b"application/problem+json")]
