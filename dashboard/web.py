"""What all pages share: the session, the frame that the address names, the templates, the headers, the error pages.

Never reads the record, and never takes a caller from a request.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, cached_property
from importlib import resources
from typing import Any
from urllib.parse import urlencode
from zoneinfo import ZoneInfo

from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from dashboard import formats, sentences
from dashboard.config import DashboardConfig
from dashboard.gate import Gate
from dashboard.sessions import COOKIE, Role, Session, SignInRefused, read_session
from dashboard.spans import DEFAULT_SPAN, DEFAULT_ZONE, SPANS, cut, span_named, zone_named
from dashboard.views import Frame
from enforcer.errors import InvalidField

_CONTENT_POLICY = (
    "default-src 'self'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; object-src 'none'; "
    "base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
_HEADERS = {
    "content-security-policy": _CONTENT_POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}
#: How often a page that could not be read asks again.
RETRY_S = 4
#: Offered in the zone box; any other zone of the IANA list can be typed.
COMMON_ZONES = (
    "UTC", "Africa/Cairo", "Africa/Johannesburg", "Africa/Lagos", "Africa/Nairobi", "America/Bogota", "America/Chicago",
    "America/Denver", "America/Los_Angeles", "America/Mexico_City", "America/New_York", "America/Sao_Paulo",
    "America/Toronto", "Asia/Dubai", "Asia/Hong_Kong", "Asia/Jakarta", "Asia/Karachi", "Asia/Kolkata", "Asia/Seoul",
    "Asia/Shanghai", "Asia/Singapore", "Asia/Tokyo", "Australia/Perth", "Australia/Sydney", "Europe/Amsterdam",
    "Europe/Berlin", "Europe/Istanbul", "Europe/Lisbon", "Europe/London", "Europe/Madrid", "Europe/Moscow",
    "Europe/Paris", "Europe/Rome", "Europe/Stockholm", "Europe/Warsaw", "Europe/Zurich", "Pacific/Auckland",
)  # fmt: skip


class NotSignedIn(Exception):
    """No session, or one that no longer holds; the message may be shown."""


class NotFound(Exception):
    """There is no such page for whoever asks; also the answer to asking for what is another's."""


@dataclass(frozen=True)
class House:
    """What the routes are given: settings, the way to the record, the clock."""

    config: DashboardConfig
    gate: Gate
    now_us: Callable[[], int]

    @cached_property
    def templates(self) -> Environment:
        """The templates: everything escaped, nothing undefined let through."""
        env = Environment(
            loader=PackageLoader("dashboard"),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        env.globals |= {
            "address": address,
            "asset": _asset_address,
            "formats": formats,
            "source_words": sentences.source_words,
            "spans": SPANS,
            "zones": COMMON_ZONES,
        }
        return env

    def page(self, template: str, *, status: int = 200, **values: Any) -> HTMLResponse:
        """Render one template."""
        return HTMLResponse(self.templates.get_template(template).render(**values), status_code=status)


def house_of(request: Request) -> House:
    """The house that serves this request."""
    house: House = request.app.state.house
    return house


def session_of(request: Request, role: Role) -> Session:
    """The session of whoever looks, which must have this role.

    Raises:
        NotSignedIn: there is none, or it has expired.
        NotFound: it has another role; which pages that role has is not told.
    """
    config = house_of(request).config
    cookie = request.cookies.get(COOKIE)
    if cookie is None:
        raise NotSignedIn("You are not signed in.")
    try:
        session = read_session(config.secret, cookie, max_age_s=config.session_hours * 3_600)
    except SignInRefused as refused:
        raise NotSignedIn(str(refused)) from None
    if session.role != role:
        raise NotFound
    return session


def only(request: Request, *names: str) -> None:
    """Refuse an address that carries anything but these parameters.

    A page that ignored what it does not know would also ignore an attempt to ask for another caller.

    Raises:
        NotFound: there is another parameter.
    """
    if set(request.query_params) - set(names):
        raise NotFound


def frame_of(request: Request) -> Frame:
    """What the address asks to see.

    Raises:
        InvalidField: the span or the zone is not one.
    """
    now_us = house_of(request).now_us()
    span = span_named(request.query_params.get("span", DEFAULT_SPAN))
    zone = zone_named(request.query_params.get("zone", DEFAULT_ZONE))
    return Frame(span, zone, now_us, tuple(cut(span, now_s=now_us / 1_000_000, zone=zone)))


def address(path: str, **values: str | None) -> str:
    """A path of ours with parameters; those that are None or empty are left out."""
    kept = {name: value for name, value in values.items() if value}
    return f"{path}?{urlencode(kept)}" if kept else path


def wants_json(request: Request) -> bool:
    """Whether a program asks, not a browser."""
    return request.url.path.endswith(".json")


def zone_of(request: Request) -> ZoneInfo:
    """The viewer's zone for a page that must not fail for it; the usual one if the address names none that we know."""
    try:
        return zone_named(request.query_params.get("zone", DEFAULT_ZONE))
    except InvalidField:
        return zone_named(DEFAULT_ZONE)


def message(request: Request, *, status: int, title: str, text: str, hint: str = "", live: bool = False) -> Response:
    """An error as a page, or as JSON for a program: what is wrong, and what to do.

    A `live` page asks again by itself until it is what was asked for.
    """
    if wants_json(request):
        return JSONResponse({"error": {"status": status, "title": title, "detail": text, "hint": hint}}, status)
    shown = {"title": title, "text": text, "hint": hint, "retry_s": RETRY_S if live else None, "session": None}
    return house_of(request).page("message.html", status=status, **shown)


async def answer_error(request: Request, error: Exception) -> Response:
    """The page for each error that a route may raise."""
    if isinstance(error, NotSignedIn):
        return message(request, status=401, title="Sign in to see this page", text=str(error), hint=_SIGN_IN)
    if isinstance(error, InvalidField):
        title = f"That {error.field} is not one we know"
        return message(request, status=400, title=title, text=f"{error}.", hint=_CORRECT)
    return message(request, status=404, title="There is no such page", text=_NOT_HERE, hint="")


_SIGN_IN = (
    "Pages open with a sign-in link. Customers get theirs from whoever runs the service; operators make one with the "
    "tallygate link command: from a checkout “.venv/bin/tallygate link --role support” or "
    "“.venv/bin/tallygate link --caller NAME”."
)
_CORRECT = "Correct it in the address, or go back."
_NOT_HERE = "Nothing is served at this address for you."


class SecureHeaders:
    """Puts the content policy and its companions on every answer, and keeps pages out of caches."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        # A file asked for by its checksum never changes; one that is not (a module's import) is asked for again.
        named = scope["query_string"].startswith(b"v=")
        keep = ("public, max-age=31536000, immutable" if named else "no-cache") if _is_file(scope) else "no-store"

        async def send_with_headers(event: Message) -> None:
            if event["type"] == "http.response.start":
                added = {**_HEADERS, "cache-control": keep if event["status"] < 400 else "no-store"}.items()
                event["headers"] = [*event.get("headers", []), *((n.encode(), v.encode()) for n, v in added)]
            await send(event)

        await self.app(scope, receive, send_with_headers)


def _is_file(scope: Scope) -> bool:
    return bool(scope["path"].startswith("/static/"))


@cache
def _asset_address(path: str) -> str:
    content = (resources.files("dashboard") / "static" / path).read_bytes()
    return f"/static/{path}?v={hashlib.sha256(content).hexdigest()[:12]}"
