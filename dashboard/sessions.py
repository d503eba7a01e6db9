"""Who is looking: the role and the caller, signed into a link and then into a cookie.

The only place where a caller's name comes from for a customer's page. Keeps no state: a session is its signature and
its age. Never reads a caller from an address or a body.
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias, get_args

import msgspec
from itsdangerous import BadSignature, SignatureExpired, URLSafeTimedSerializer

Role: TypeAlias = Literal["customer", "support"]
ROLES: tuple[Role, ...] = get_args(Role)

COOKIE = "tallygate_session"
_LINK_SALT = "tallygate.sign-in"
_SESSION_SALT = "tallygate.session"


class Session(msgspec.Struct, frozen=True):
    """Who is looking. `caller` is set for a customer and for no one else."""

    role: Role
    caller: str | None


class SignInRefused(Exception):
    """The link or the cookie does not sign anyone in; the message says why and may be shown."""


def sign_link(secret: str, session: Session) -> str:
    """The token of a sign-in link."""
    return _dumps(secret, _LINK_SALT, session)


def read_link(secret: str, token: str, *, max_age_s: int) -> Session:
    """Who a link signs in.

    Raises:
        SignInRefused: it is not ours, was altered, or is too old.
    """
    return _loads(secret, _LINK_SALT, token, max_age_s, "This sign-in link")


def sign_session(secret: str, session: Session) -> str:
    """The value of the session cookie."""
    return _dumps(secret, _SESSION_SALT, session)


def read_session(secret: str, cookie: str, *, max_age_s: int) -> Session:
    """Who a cookie stands for.

    Raises:
        SignInRefused: it is not ours, was altered, or is too old.
    """
    return _loads(secret, _SESSION_SALT, cookie, max_age_s, "Your session")


def _dumps(secret: str, salt: str, session: Session) -> str:
    token: str = _serializer(secret, salt).dumps([session.role, session.caller])
    return token


def _loads(secret: str, salt: str, text: str, max_age_s: int, what: str) -> Session:
    try:
        value: Any = _serializer(secret, salt).loads(text, max_age=max_age_s)
    except SignatureExpired:
        raise SignInRefused(f"{what} has expired.") from None
    except BadSignature:
        raise SignInRefused(f"{what} is not valid.") from None
    try:
        role, caller = value
        session = msgspec.convert({"role": role, "caller": caller}, Session)
    except (TypeError, ValueError, msgspec.ValidationError):
        raise SignInRefused(f"{what} is not valid.") from None
    if (session.role == "customer") != bool(session.caller):
        raise SignInRefused(f"{what} is not valid.")
    return session


def _serializer(secret: str, salt: str) -> URLSafeTimedSerializer:
    return URLSafeTimedSerializer(secret, salt=salt)
