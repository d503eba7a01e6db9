"""The owner on a Redis or Valkey server: asks go out as one pipeline of EVALSHA, answers come back in order.

It never retries an ask on its own (the copy asks again, with a higher number), and it never reads a late answer: a
connection that timed out is dropped. Its messages name the server without credentials.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from hashlib import sha1
from typing import Any, Protocol, cast
from urllib.parse import SplitResult, parse_qsl, urlsplit

from redis import ConnectionPool
from redis.backoff import NoBackoff
from redis.exceptions import NoScriptError, RedisError, ResponseError
from redis.retry import Retry

from enforcer.core.asks import check_ask
from enforcer.core.dials import DEFAULT_DIALS, Dials
from enforcer.errors import ConfigError, OwnerUnavailable
from enforcer.owners.keys import bucket_key
from enforcer.owners.lua import grant_script
from enforcer.owners.lua.frames import pack_ask, pack_terms, unpack_answer
from enforcer.types import Answer, Ask, AskFault, Plan

_SCHEMES = ("redis", "rediss", "unix")
_FORMS = "redis://[user:password@]host[:port][/db], rediss://… for TLS, or unix:///path/to/socket"


#: What may follow the ``?``: files and rules of TLS, and the database of a socket.
_OPTIONS = ("ssl_", "db")

#: Of the probe's buckets, which are those of a caller with an empty name: no request can have that.
_PROBE_PLAN = Plan("probe", 1.0, 1)

#: What a server says of itself, also from within a script. Anything else that a script meets is in its bucket.
_OF_THE_SERVER = re.compile(
    r"\b(BUSY|CLUSTERDOWN|LOADING|MASTERDOWN|MISCONF|NOAUTH|NOPERM|NOREPLICAS|OOM|READONLY|TRYAGAIN)\b"
)
_IN_A_SCRIPT = ("user_script", "Error running script")


class _Connection(Protocol):
    """What is used of redis-py's connection."""

    def connect(self) -> None: ...

    def disconnect(self) -> None: ...

    def pack_commands(self, commands: Sequence[tuple[bytes, ...]]) -> list[bytes]: ...

    def send_packed_command(self, command: list[bytes], check_health: bool = True) -> None: ...

    def read_response(self, *, timeout: float) -> Any: ...


class RedisOwner:
    """Implements `Owner` on one server. One connection, opened at the first use; called from one thread."""

    def __init__(
        self,
        url: str,
        *,
        timeout_s: float,
        dials: Dials = DEFAULT_DIALS,
        script: str | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Check the address; nothing is sent yet.

        Args:
            url: ``redis://``, ``rediss://`` (TLS; options such as ``ssl_ca_certs`` as query parameters) or
                ``unix://``; user and password of the server's ACL in it.
            timeout_s: longest time for one call, from its start to the last answer; opening the connection may take
                as long again.
            dials: how to lend; the same in all copies.
            script: text of the script; None for ``grant.lua``.
            monotonic: seconds, for the timeout.

        Raises:
            ConfigError: the address is not one, or the timeout is not above 0. Never shows a password.
        """
        if not timeout_s > 0:
            raise ConfigError(f"owner timeout is {timeout_s!r} s; allowed: above 0")
        self.address = _checked_address(url)
        self._timeout_s = timeout_s
        self._dials = dials
        self._script = (grant_script() if script is None else script).encode("utf-8")
        self._digest = sha1(self._script, usedforsecurity=False).hexdigest().encode("ascii")
        self._monotonic = monotonic
        self._closed = False
        self._probe_bucket = 0
        self._pool = _pool(url, self.address, timeout_s)
        self._connection: _Connection | None = None

    def ask(self, asks: Sequence[Ask]) -> list[Answer | AskFault]:
        """See `Owner.ask`.

        Raises:
            OwnerUnavailable: no complete answer in time, or the server refused to run the script.
            InvalidField: an ask is malformed; nothing was sent.
        """
        for ask in asks:
            check_ask(ask)
        if not asks:
            return []
        with self._guarded():
            return [_outcome(reply) for reply in self._evaluate([self._command(ask) for ask in asks])]

    def probe(self) -> None:
        """See `Owner.probe`.

        A server can answer PING and refuse the script, as a replica, for want of memory or of a permission: so this
        runs it. A bucket of the probe's that is spoiled is passed by at the next probe.
        """
        ask = Ask("", f"probe-{self._probe_bucket}", _PROBE_PLAN, "probe/0", 1, (), 0, 0, 0.0, 0, 0.0)
        with self._guarded():
            outcome = _outcome(self._evaluate([self._command(ask)])[0])
            if isinstance(outcome, AskFault):
                self._probe_bucket += 1
                raise ResponseError(outcome.cause)

    def close(self) -> None:
        """See `Owner.close`."""
        self._closed = True
        self.drop_connection()

    def drop_connection(self) -> None:
        """End the connection, so that no answer still on its way is ever read."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.disconnect()

    def _command(self, ask: Ask) -> tuple[bytes, ...]:
        return (
            b"EVALSHA",
            self._digest,
            b"1",
            bucket_key(ask.caller, ask.limit),
            pack_terms(ask.plan, self._dials),
            ask.member.encode("ascii"),
            pack_ask(ask),
        )

    def _evaluate(self, commands: list[tuple[bytes, ...]]) -> list[Any]:
        """Run the script for each; load it where the server does not know it. Those had no effect: sent again.

        Returns:
            For each what the script replied, or the error that it met in its bucket.

        Raises:
            RedisError: the server refuses, so that no ask would be answered.
        """
        deadline = self._monotonic() + self._timeout_s
        replies = self._talk(commands, deadline)
        missing = [place for place, reply in enumerate(replies) if isinstance(reply, NoScriptError)]
        if missing:
            again = [(b"SCRIPT", b"LOAD", self._script), *(commands[place] for place in missing)]
            loaded, *rest = self._talk(again, deadline)
            if isinstance(loaded, ResponseError):
                raise loaded
            for place, reply in zip(missing, rest, strict=True):
                replies[place] = reply
        for reply in replies:
            if isinstance(reply, ResponseError) and not _is_of_the_bucket(reply):
                raise reply
        return replies

    @contextmanager
    def _guarded(self) -> Iterator[None]:
        """Turn every failure of server or network into `OwnerUnavailable`.

        On any way out but the good one the connection is dropped, also when the call is interrupted: answers that
        were not read then must never be read.
        """
        try:
            yield
        except (RedisError, OSError, ValueError) as error:
            self.drop_connection()
            raise OwnerUnavailable(_cause(error), where=f"at {self.address}") from error
        except BaseException:
            self.drop_connection()
            raise

    def _talk(self, commands: list[tuple[bytes, ...]], deadline: float) -> list[Any]:
        """Send all, read all; an error reply stands in its place. The connection is in step after it, or dropped."""
        if self._closed:
            raise OwnerUnavailable("it is closed", where=f"at {self.address}")
        connection = self._connection
        if connection is None:
            connection = self._connection = cast("_Connection", self._pool.make_connection())
            connection.connect()
        connection.send_packed_command(connection.pack_commands(commands), check_health=False)
        replies: list[Any] = []
        for _ in commands:
            left_s = deadline - self._monotonic()
            if left_s <= 0:
                raise TimeoutError(f"no complete answer within {self._timeout_s:g} s")
            try:
                replies.append(connection.read_response(timeout=left_s))
            except ResponseError as refusal:
                replies.append(refusal)
        return replies


def _is_of_the_bucket(error: ResponseError) -> bool:
    """Whether the script ran and met something in its bucket, rather than the server refusing to run it."""
    said = str(error)
    # The client has classes for what servers say of themselves; older servers say it within the script's message.
    if type(error) is not ResponseError or _OF_THE_SERVER.search(said):
        return False
    return said.startswith("WRONGTYPE") or any(words in said for words in _IN_A_SCRIPT)


def _outcome(reply: object) -> Answer | AskFault:
    if isinstance(reply, bytes):
        try:
            return unpack_answer(reply)
        except ValueError as error:
            return AskFault(str(error))
    return AskFault(str(reply) if isinstance(reply, ResponseError) else f"a reply of type {type(reply).__name__}")


def _cause(error: Exception) -> str:
    """What went wrong, without the address: the client repeats it in its own errors, so the system's are taken."""
    said = "it refused" if isinstance(error, ResponseError) else "no answer"
    below = error.__cause__ or error.__context__
    if isinstance(error, RedisError) and isinstance(below, OSError):
        error = below
    return f"{said}: {type(error).__name__}: {error}"


def _checked_address(url: str) -> str:
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


def _pool(url: str, address: str, timeout_s: float) -> ConnectionPool:
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
