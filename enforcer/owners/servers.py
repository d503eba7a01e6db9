"""Address of one server, and connections to it. Messages never show a user or a password."""

from __future__ import annotations

from urllib.parse import SplitResult, parse_qsl, urlsplit

from redis import ConnectionPool
from redis.backoff import NoBackoff
from redis.exceptions import RedisError
from redis.retry import Retry

from enforcer.errors import ConfigError

_SCHEMES = ("redis", "rediss", "unix")
_FORMS = "redis://[user:password@]host[:port][/db], rediss://… for TLS, or unix:///path/to/socket"

#: What may follow the ``?``: files and rules of TLS, and the database of a socket.
_OPTIONS = ("ssl_", "db")


def checked_address(url: str) -> str:
    """The address without credentials.

    Raises:
        ConfigError: it is not an address of a server.
    """
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise ConfigError(f"owner address is not one; allowed: {_FORMS}") from None
    if parts.scheme not in _SCHEMES:
        shown = parts.scheme if parts.scheme.isalnum() and "@" not in url.split("://", 1)[0] else "(none)"
        raise ConfigError(f"owner address has the scheme {shown!r}; allowed: {_FORMS}")
    _check_options(parts)
    if parts.scheme == "unix":
        if not parts.path:
            raise ConfigError(f"owner address names no socket; allowed: {_FORMS}")
        return f"unix://{parts.path}"
    if not parts.hostname:
        raise ConfigError(f"owner address names no host; allowed: {_FORMS}")
    database = parts.path.strip("/")
    if database and not database.isdecimal():
        raise ConfigError(f"owner address has the database {database!r}; allowed: a number, as in redis://host:6379/0")
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return f"{parts.scheme}://{host}:{port or 6379}/{database or 0}"


def _check_options(parts: SplitResult) -> None:
    for name, _ in parse_qsl(parts.query, keep_blank_values=True):
        if not name.startswith(_OPTIONS):
            raise ConfigError(f"owner address has the option {name!r}; allowed: db, and those that begin with ssl_")


def connection_maker(url: str, address: str, timeout_s: float) -> ConnectionPool:
    """A maker of connections; of its pooling nothing is used."""
    try:
        pool = ConnectionPool.from_url(
            url,
            socket_timeout=timeout_s,
            socket_connect_timeout=timeout_s,
            retry=Retry(NoBackoff(), 0),
            retry_on_error=[],
            health_check_interval=0,
            protocol=2,
            decode_responses=False,
        )
        pool.make_connection()
    except (ValueError, TypeError, OSError, RedisError) as error:
        raise ConfigError(f"owner address {address} has an option that is not allowed: {error}") from None
    return pool
