"""Who may ask: optional users with a password, some of them read-only.

Without a file there is ``default``, without a password, as on a fresh server.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tallygate.engines.front.errors import Code, FrontError, refusal


@dataclass(frozen=True, slots=True)
class User:
    """One user; ``readonly`` ones can change neither data nor settings within a statement."""

    name: str
    password_sha256: str = field(repr=False)
    readonly: bool = False

    @classmethod
    def with_password(cls, name: str, password: str, *, readonly: bool = False) -> User:
        """A user whose password is kept as its hash only."""
        return cls(name, hashlib.sha256(password.encode()).hexdigest(), readonly)


class UserBook:
    """The users of one front."""

    def __init__(self, users: Iterable[User] = ()) -> None:
        listed = list(users) or [User.with_password("default", "")]
        self._users = {user.name: user for user in listed}

    @classmethod
    def read(cls, path: Path | None) -> UserBook:
        """Read the file that ``write_users`` wrote; None gives the open ``default`` user."""
        if path is None:
            return cls()
        return cls(User(**entry) for entry in json.loads(path.read_text()))

    def authenticate(self, headers: Mapping[str, str], parameters: Mapping[str, str]) -> User:
        """The user that the request names, by Basic auth, ClickHouse's headers or its URL parameters.

        Raises:
            FrontError: 516, the same for an unknown name and a wrong password.
        """
        name, password = _credentials(headers, parameters)
        user = self._users.get(name)
        given = hashlib.sha256(password.encode()).hexdigest()
        # Compared in any case, so that the time taken does not tell which names exist.
        same = hmac.compare_digest(given, user.password_sha256 if user else given[::-1])
        if user is None or not same:
            raise _wrong(name)
        return user


def write_users(path: Path, users: Iterable[User]) -> None:
    """Write users where ``UserBook.read`` finds them; readable by the owner only."""
    path.touch(mode=0o600)
    entries = [{"name": u.name, "password_sha256": u.password_sha256, "readonly": u.readonly} for u in users]
    path.write_text(json.dumps(entries))


def _credentials(headers: Mapping[str, str], parameters: Mapping[str, str]) -> tuple[str, str]:
    authorization = headers.get("authorization", "")
    if authorization:
        kind, _, token = authorization.partition(" ")
        if kind.lower() != "basic":
            raise refusal(Code.AUTHENTICATION_FAILED, f"Authorization {kind!r} is not supported, only Basic.")
        try:
            name, _, password = base64.b64decode(token, validate=True).decode().partition(":")
        except (binascii.Error, UnicodeDecodeError) as error:
            raise refusal(Code.AUTHENTICATION_FAILED, "The Authorization header is not valid Basic.") from error
        return name or "default", password
    if "x-clickhouse-user" in headers:
        return headers["x-clickhouse-user"], headers.get("x-clickhouse-key", "")
    return parameters.get("user") or "default", parameters.get("password", "")


def _wrong(name: str) -> FrontError:
    return refusal(
        Code.AUTHENTICATION_FAILED,
        f"{name}: Authentication failed: password is incorrect, or there is no user with such name.",
    )
