"""In and out: a signed link becomes a session cookie, and signing out removes it. Stores nothing."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from dashboard.sessions import COOKIE, Session, SignInRefused, read_link, read_session, sign_session
from dashboard.web import NotFound, NotSignedIn, house_of

_HOME = {"customer": "/usage", "support": "/support"}


async def sign_in(request: Request) -> Response:
    """``GET /sign-in?token=…``: take the link, set the cookie, go to the page of the role."""
    config = house_of(request).config
    try:
        session = read_link(config.secret, request.query_params.get("token", ""), max_age_s=config.link_hours * 3_600)
    except SignInRefused as refused:
        raise NotSignedIn(f"{refused} Ask for a new one.") from None
    answer = RedirectResponse(_HOME[session.role], status_code=303)
    answer.set_cookie(
        COOKIE,
        sign_session(config.secret, session),
        max_age=config.session_hours * 3_600,
        path="/",
        secure=request.url.scheme == "https",
        httponly=True,
        samesite="lax",
    )
    return answer


async def sign_out(request: Request) -> Response:
    """``POST /sign-out``: forget the session; another site cannot press this button."""
    if request.headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
        raise NotFound
    answer = RedirectResponse("/signed-out", status_code=303)
    answer.delete_cookie(COOKIE, path="/", httponly=True, samesite="lax", secure=request.url.scheme == "https")
    return answer


async def signed_out(request: Request) -> Response:
    """``GET /signed-out``."""
    return house_of(request).page(
        "message.html",
        title="You are signed out",
        text="Open a sign-in link to come back.",
        hint="",
        retry_s=None,
        session=None,
    )


async def home(request: Request) -> Response:
    """``GET /``: the page of whoever is signed in."""
    config = house_of(request).config
    try:
        session: Session = read_session(
            config.secret, request.cookies.get(COOKIE, ""), max_age_s=config.session_hours * 3_600
        )
    except SignInRefused:
        raise NotSignedIn("You are not signed in.") from None
    return RedirectResponse(_HOME[session.role], status_code=303)
