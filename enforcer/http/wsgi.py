"""WSGI middleware: asks the limiter before the application runs, and tells the client where it stands.

Refusals are answered here as JSON problem details, and the application never sees them. The application's own response
passes through as it is, with headers added: it is neither read nor buffered.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

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
)
from enforcer.keying import Identify
from enforcer.limiting.limiter import Limiter
from enforcer.process import PerProcess

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment

#: The scope of a request, found in its WSGI environment.
EnvironScope: TypeAlias = Callable[[Mapping[str, Any]], str]

_UNPREFIXED = {"CONTENT_TYPE": b"content-type", "CONTENT_LENGTH": b"content-length"}


class RateLimitWSGIMiddleware:
    """Limits a WSGI application, under any number of threads.

    Given a limiter, it uses it and leaves closing to you. Given a callable, it calls that at the first request of each
    process, so after any fork, and closes what it built when the process ends.
    """

    def __init__(
        self,
        app: WSGIApplication,
        limiter: Limiter | Callable[[], Limiter],
        *,
        identify: Identify = identify_by_account,
        scope_of: EnvironScope | None = None,
        headers: HeaderStyle = "draft",
    ) -> None:
        """Wrap `app`.

        Args:
            app: the application.
            limiter: the limiter of this process, or what builds it in the process that serves.
            identify: finds the caller's id; None from it means the policy's anonymous caller. It is given the request
                as an ASGI scope has it (``method``, ``path``, ``headers``), and may raise `InvalidField`, which the
                client gets as a 400.
            scope_of: the request's scope by its environment, never made of the raw path; None: the policy's route that
                matches, else ``(unmatched)``.
            headers: which rate-limit headers stand on responses.

        Raises:
            ConfigError: `headers` names no style.
        """
        self._app = app
        self._limiter = PerProcess.of(limiter)
        self._identify = identify
        self._scope_of = scope_of
        self._fields = fields_in_style(headers)
        self._routes = PolicyRoutes()

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        """Serve one request."""
        limiter = self._limiter()
        try:
            request = _request(environ)
            caller = self._identify(request)
            policy = limiter.policy
            if self._scope_of is not None:
                scope = self._scope_of(environ)
            else:
                scope = self._routes.scope_of(policy, request["method"], request["path"])
            verdict = limiter.check(policy.anonymous.caller if caller is None else caller, scope)
        except InvalidField as fault:
            return _problem(environ, start_response, "400 Bad Request", [], bad_request_body(fault))
        fields = self._fields(limiter, verdict)
        if not verdict.allowed:
            body = refused_body(limiter, verdict)
            return _problem(environ, start_response, "429 Too Many Requests", fields, body)
        added = _text(fields)

        def start_with_fields(status: str, headers: list[tuple[str, str]], exc_info: Any = None, /) -> Any:
            # A server may tell a second start by its third argument being there at all.
            if exc_info is None:
                return start_response(status, [*headers, *added])
            return start_response(status, [*headers, *added], exc_info)

        return self._app(environ, start_with_fields)


def _request(environ: Mapping[str, Any]) -> dict[str, Any]:
    """The parts of an ASGI scope that say who is calling what."""
    headers = [
        (_UNPREFIXED.get(name) or name[5:].replace("_", "-").lower().encode("latin-1"), value.encode("latin-1"))
        for name, value in environ.items()
        if name[:5] == "HTTP_" or (name in _UNPREFIXED and value)
    ]
    # WSGI carries the path's bytes as Latin-1; an ASGI scope has them as UTF-8.
    path = f"{environ.get('SCRIPT_NAME', '')}{environ.get('PATH_INFO', '')}".encode("latin-1").decode(
        "utf-8", "replace"
    )
    return {"type": "http", "method": environ["REQUEST_METHOD"], "path": path or "/", "headers": headers}


def _problem(
    environ: Mapping[str, Any], start_response: StartResponse, status: str, fields: Fields, body: bytes
) -> list[bytes]:
    headers = [("content-type", PROBLEM_MEDIA_TYPE), ("content-length", str(len(body))), *_text(fields)]
    start_response(status, headers)
    # Not every server takes the body off the answer to a HEAD.
    return [] if environ["REQUEST_METHOD"] == "HEAD" else [body]


def _text(fields: Fields) -> list[tuple[str, str]]:
    return [(name.decode("ascii"), value.decode("ascii")) for name, value in fields]
