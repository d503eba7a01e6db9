"""WSGI middleware: asks the limiter before the application runs, and tells the client where it stands.

Refusals are answered here as JSON problem details, and the application never sees them. The application's own response
passes through as it is, with headers added: it is neither read nor buffered. With a cap it is held in an iterable that
knows when it is finished, so a server cannot send it by ``wsgi.file_wrapper``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

from enforcer.cap.cap import NO_SLOT
from enforcer.cap.closing import held
from enforcer.cap.guard import CapGuard
from enforcer.errors import InvalidField
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
from enforcer.keying import Identify, of_environ
from enforcer.limiting.limiter import Limiter
from enforcer.metrics.checks import measured_check
from enforcer.metrics.metrics import Metrics
from enforcer.process import PerProcess
from enforcer.types import Source, Verdict
from enforcer.wiring import check_build

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment

#: The scope of a request, found in its WSGI environment.
EnvironScope: TypeAlias = Callable[[Mapping[str, Any]], str]


class RateLimitWSGIMiddleware:
    """Limits a WSGI application, under any number of threads.

    Given a limiter, it uses it in this process and leaves closing to you. Given a callable, and in a fork also given a
    limiter, it builds one at the first request of each process and closes it when that ends; see `PerProcess.of`.
    """

    def __init__(
        self,
        app: WSGIApplication,
        limiter: Limiter | Callable[[], Limiter],
        *,
        identify: Identify = identify_by_account,
        scope_of: EnvironScope | None = None,
        headers: HeaderStyle = "draft",
        cap: CapGuard | None = None,
        metrics: Metrics | None = None,
    ) -> None:
        """Wrap `app`.

        Args:
            app: the application.
            limiter: the limiter of this process, or what builds it in the process that serves.
            identify: finds the caller's id; None from it means the policy's anonymous caller. It is given the request
                as `of_environ` shows it, and may raise `InvalidField`, which the client gets as a 400.
            scope_of: the request's scope by its environment, never made of the raw path; None: the policy's route that
                matches, else ``(unmatched)``.
            headers: which rate-limit headers stand on responses.
            cap: the protection, by the policy's ``cap``: a request that finds no room gets a 503. None: there is none.
            metrics: told how long one check in sixteen took. None: nothing is.

        Raises:
            ConfigError: `headers` names no style, or another argument is not of its type; or, with `build_limiter` or a
                `functools.partial` of it, what that would raise in the process that serves: see `check_build`.
            PolicyError: likewise.
        """
        require_arguments(limiter, identify, scope_of)
        check_build(limiter)
        self._app = app
        self._limiter = PerProcess.of(limiter)
        self._identify = identify
        self._scope_of = scope_of
        self._fields = fields_in_style(headers)
        self._routes = PolicyRoutes()
        self._cap = cap
        self._check = Limiter.check if metrics is None else measured_check(metrics)

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        """Serve one request."""
        limiter = self._limiter()
        try:
            request = of_environ(environ)
            caller = self._identify(request)
            policy = limiter.policy
            if self._scope_of is not None:
                scope = self._scope_of(environ)
            else:
                scope = self._routes.scope_of(policy, request["method"], request["path"])
            caller = policy.anonymous.caller if caller is None else caller
            entered = NO_SLOT if self._cap is None else self._cap.enter(limiter, caller, scope)
            verdict = (
                entered if isinstance(entered, Verdict) else entered.checked_by(self._check, limiter, caller, scope)
            )
        except InvalidField as fault:
            return _problem(environ, start_response, "400 Bad Request", [], bad_request_body(fault))
        if isinstance(entered, Verdict) or not verdict.allowed:
            status = "503 Service Unavailable" if verdict.source is Source.CAP else "429 Too Many Requests"
            fields = self._fields(limiter, verdict)
            return _problem(environ, start_response, status, fields, refused_body(limiter, verdict))
        if self._cap is None:
            return self._app(environ, self._starting(start_response, limiter, verdict))
        return held(lambda: self._app(environ, self._starting(start_response, limiter, verdict)), entered)

    def _starting(self, start_response: StartResponse, limiter: Limiter, verdict: Verdict) -> StartResponse:
        """Starts the response with the limiter's headers added."""
        added = _text(self._fields(limiter, verdict))

        def start_with_fields(status: str, headers: list[tuple[str, str]], exc_info: Any = None, /) -> Any:
            # A server may tell a second start by its third argument being there at all.
            if exc_info is None:
                return start_response(status, [*headers, *added])
            return start_response(status, [*headers, *added], exc_info)

        return start_with_fields


def _problem(
    environ: Mapping[str, Any], start_response: StartResponse, status: str, fields: Fields, body: bytes
) -> list[bytes]:
    headers = [("content-type", PROBLEM_MEDIA_TYPE), ("content-length", str(len(body))), *_text(fields)]
    start_response(status, headers)
    # Not every server takes the body off the answer to a HEAD.
    return [] if environ["REQUEST_METHOD"] == "HEAD" else [body]


def _text(fields: Fields) -> list[tuple[str, str]]:
    return [(name.decode("ascii"), value.decode("ascii")) for name, value in fields]
