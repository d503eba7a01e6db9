"""Sign-in links: made by whoever holds the secret, opened by the one they are for.

Never stored, never logged: a link is as good as a password until it expires.
"""

from __future__ import annotations

from urllib.parse import quote

from dashboard.config import MIN_SECRET_CHARACTERS
from dashboard.sessions import ROLES, Role, Session, sign_link
from enforcer.errors import InvalidField
from enforcer.limiting.arguments import validate_name


def sign_in_link(base_url: str, secret: str, role: Role = "customer", caller: str | None = None) -> str:
    """An address that signs in whoever opens it.

    Args:
        base_url: where the dashboard is served, such as ``http://127.0.0.1:8321``.
        secret: the dashboard's TALLYGATE_SECRET.
        role: ``customer`` sees the usage of one caller, ``support`` may look up any.
        caller: whose usage a customer sees; only with that role.

    Raises:
        InvalidField: the secret is too short, the role unknown, or the caller missing or out of place.
    """
    if len(secret) < MIN_SECRET_CHARACTERS:
        raise InvalidField("secret", "…", f"at least {MIN_SECRET_CHARACTERS} characters")
    if role not in ROLES:
        raise InvalidField("role", role, " or ".join(ROLES))
    if role == "customer" and not caller:
        raise InvalidField("caller", caller, "the caller whose usage the customer sees")
    if role != "customer" and caller is not None:
        raise InvalidField("caller", caller, f"none for the role {role}")
    if caller is not None:
        validate_name("caller", caller)
    return f"{base_url.rstrip('/')}/sign-in?token={quote(sign_link(secret, Session(role, caller)), safe='')}"
