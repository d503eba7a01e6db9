"""Address of one server, and connections to it. Messages never show a user or a password."""

from __future__ import annotations

import codecs
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import SplitResult, parse_qsl, urlsplit

from redis import ConnectionPool
from redis.backoff import NoBackoff
from redis.exceptions import RedisError
from redis.retry import Retry

from enforcer.errors import ConfigError

# Every connection to a host looks this up, and the first look-up imports it. A thread must not be the one: a process
# that is forked in the middle of an import never gets its lock, and waits for it at its own first look-up for ever.
codecs.lookup("idna")

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
    except ValueError:
        raise ConfigError(f"owner address is not one; allowed: {_FORMS}") from None
    port = _port(parts)
    if parts.scheme not in _SCHEMES:
        shown = parts.scheme if parts.scheme.isalnum() and "@" not in url.split("://", 1)[0] else "(none)"
        raise ConfigError(f"owner address has the scheme {shown!r}; allowed: {_FORMS}")
    refuse_at(parts.query, parts.fragment, "" if parts.scheme == "unix" else parts.path)
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


def _port(parts: SplitResult) -> int | None:
    try:
        return parts.port
    except ValueError:
        # What ended the host too early may be a password, and then so is this.
        refuse_at(parts.query, parts.fragment, parts.path)
        given = parts.netloc.rpartition(":")[2]
        shown = f"the port {given}" if given.isdecimal() else "a port that is no number"
        raise ConfigError(f"owner address has {shown}; allowed: 0 to 65535, in {_FORMS}") from None


def refuse_at(*behind_the_host: str) -> None:
    """Raise `ConfigError` for an ``@`` there: a password has ended the host too early, and would be shown in part."""
    if any("@" in part for part in behind_the_host):
        raise ConfigError(
            "owner address has an @ behind its host; allowed: /, ?, # and @ of a user or password as %2F, %3F, %23 and "
            "%40, and @ elsewhere as %40"
        )


def _check_options(parts: SplitResult) -> None:
    for name, _ in parse_qsl(parts.query, keep_blank_values=True):
        if not name.startswith(_OPTIONS):
            raise ConfigError(f"owner address has the option {name!r}; allowed: db, and those that begin with ssl_")


def check_files(url: str) -> None:
    """Read the files that the options of TLS name, as each connection will.

    Raises:
        ConfigError: one cannot be read, is none of its kind, or key and certificate do not belong together.
    """
    parts = urlsplit(url)
    options = dict(parse_qsl(parts.query))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    for name in ("ssl_ca_certs", "ssl_ca_path"):
        if name in options:
            with _naming(name, options[name]):
                context.load_verify_locations(**{"cafile" if name == "ssl_ca_certs" else "capath": options[name]})
    certificate, key = options.get("ssl_certfile"), options.get("ssl_keyfile")
    if key is not None and certificate is None:
        raise ConfigError("owner address has ssl_keyfile and no ssl_certfile; allowed: both, or the certificate alone")
    if certificate is not None:
        what = " with ssl_keyfile ".join(filter(None, (certificate, key)))
        with _naming("ssl_certfile", what):
            context.load_cert_chain(certificate, key, password=lambda: options.get("ssl_password", ""))


@contextmanager
def _naming(option: str, value: str) -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError) as error:
        said = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise ConfigError(
            f"owner address has {option} {value}: {said}; allowed: files in PEM form that can be read"
        ) from None


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
