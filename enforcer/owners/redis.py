"""The owner on a Redis or Valkey server: asks go out as one pipeline of EVALSHA, answers come back in order.

It never retries an ask on its own (the copy asks again, with a higher number), and it never reads a late answer: a
connection that timed out is dropped. Its messages name the server without credentials.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from hashlib import sha1
from typing import Any, Protocol, cast

from redis.exceptions import NoScriptError, RedisError, ResponseError
from redis.exceptions import TimeoutError as RedisTimeoutError

from enforcer.core.asks import check_ask
from enforcer.core.dials import DEFAULT_DIALS, Dials
from enforcer.errors import ConfigError, OwnerUnavailable
from enforcer.messages import Answer, Ask, AskFault, Moved
from enforcer.owners.greeting import greet
from enforcer.owners.keys import bucket_key
from enforcer.owners.lua import grant_script
from enforcer.owners.lua.frames import pack_ask, pack_terms
from enforcer.owners.patience import Patience
from enforcer.owners.replies import cause, is_of_the_bucket, outcome
from enforcer.owners.servers import checked_address, connection_maker
from enforcer.types import Plan

Command = tuple[bytes, ...]

#: Said before each command to a node that a slot is on its way to; it holds for that one command.
_ARRIVING: Command = (b"ASKING",)

#: Pause in seconds between two looks for the rest of a reply.
_REST_S = 0.0005

#: Of the probe's buckets, which are those of a caller with an empty name: no request can have that.
_PROBE_PLAN = Plan("probe", 1.0, 1)


class _Connection(Protocol):
    """What is used of redis-py's connection."""

    def connect(self) -> None: ...

    def disconnect(self) -> None: ...

    def can_read(self, timeout: float = 0) -> bool: ...

    def pack_commands(self, commands: Sequence[Command]) -> list[bytes]: ...

    def send_packed_command(self, command: list[bytes], check_health: bool = True) -> None: ...

    def read_response(self, *, timeout: float, disconnect_on_error: bool) -> Any: ...


class RedisOwner:
    """Implements `Owner` on one server. One connection, opened at the first use; called from one thread."""

    def __init__(
        self,
        url: str,
        *,
        timeout_s: float | Patience,
        dials: Dials = DEFAULT_DIALS,
        script: str | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Check the address; nothing is sent yet.

        Args:
            url: ``redis://``, ``rediss://`` (TLS; options such as ``ssl_ca_certs`` as query parameters) or
                ``unix://``; user and password of the server's ACL in it.
            timeout_s: longest time from when a call is sent to its last answer; what has arrived by then counts,
                however late this thread comes to read it. Each step of opening a connection, and loading the script,
                may take as long again. A `Patience` may be changed by others while this lives.
            dials: how to lend; the same in all copies.
            script: text of the script; None for ``grant.lua``.
            monotonic: seconds, for the timeout.

        Raises:
            ConfigError: the address is not one, or the timeout is not above 0. Never shows a password.
        """
        self._patience = timeout_s if isinstance(timeout_s, Patience) else Patience(timeout_s)
        if not self._timeout_s > 0:
            raise ConfigError(f"owner timeout is {self._timeout_s!r} s; allowed: above 0")
        self.address = checked_address(url)
        self._url = url
        self._dials = dials
        self._script = (grant_script() if script is None else script).encode("utf-8")
        self._digest = sha1(self._script, usedforsecurity=False).hexdigest().encode("ascii")
        self._monotonic = monotonic
        self._closed = False
        self._probe_bucket = 0
        self._connects_within_s = self._timeout_s
        self._pool = connection_maker(url, self.address, self._timeout_s)
        self._connection: _Connection | None = None

    @property
    def _timeout_s(self) -> float:
        return self._patience.seconds

    def ask(self, asks: Sequence[Ask]) -> list[Answer | AskFault]:
        """See `Owner.ask`.

        Raises:
            OwnerUnavailable: no complete answer in time, or the server refused to run the script.
            InvalidField: an ask is malformed; nothing was sent.
        """
        return self._ask(asks, arriving=False)

    def ask_arriving(self, asks: Sequence[Ask]) -> list[Answer | AskFault]:
        """As `ask`, for buckets in slots of a cluster that are on their way to this server."""
        return self._ask(asks, arriving=True)

    def probe(self) -> None:
        """See `Owner.probe`.

        A server can answer PING and refuse the script, as a replica, for want of memory or of a permission: so this
        runs it. A bucket of the probe's that is spoiled is passed by at the next probe.
        """
        ask = Ask("", f"probe-{self._probe_bucket}", _PROBE_PLAN, "probe/0", 1, (), 0, 0, 0.0, 0, 0.0)
        with self._guarded():
            found = outcome(self._evaluate([self._command(ask)], arriving=False)[0], ask)
            # A node of a cluster that does not hold the probe's bucket has looked at its slots: it serves.
            if isinstance(found, AskFault) and not isinstance(found, Moved):
                self._probe_bucket += 1
                raise ResponseError(found.cause)

    def close(self) -> None:
        """See `Owner.close`."""
        self._closed = True
        self.drop_connection()

    def drop_connection(self) -> None:
        """End the connection, so that no answer still on its way is ever read."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.disconnect()

    def _ask(self, asks: Sequence[Ask], *, arriving: bool) -> list[Answer | AskFault]:
        for ask in asks:
            check_ask(ask)
        if not asks:
            return []
        with self._guarded():
            replies = self._evaluate([self._command(ask) for ask in asks], arriving=arriving)
            return [outcome(reply, ask) for reply, ask in zip(replies, asks, strict=True)]

    def _command(self, ask: Ask) -> Command:
        return (
            b"EVALSHA",
            self._digest,
            b"1",
            bucket_key(ask.caller, ask.limit),
            pack_terms(ask.plan, self._dials),
            ask.member.encode("ascii"),
            pack_ask(ask),
        )

    def _evaluate(self, commands: list[Command], *, arriving: bool) -> list[Any]:
        """Run the script for each; load it where the server does not know it. Those had no effect: sent again.

        Returns:
            For each what the script replied, or the error that it met in its bucket.

        Raises:
            RedisError: the server refuses, so that no ask would be answered.
        """
        self._connect()
        step = 2 if arriving else 1
        sent = [word for command in commands for word in ((_ARRIVING, command) if arriving else (command,))]
        replies = self._talk(sent)
        missing = [place for place, reply in enumerate(replies) if isinstance(reply, NoScriptError)]
        if missing:
            again = [word for place in missing for word in sent[place + 1 - step : place + 1]]
            loaded, *rest = self._talk([(b"SCRIPT", b"LOAD", self._script), *again])
            if isinstance(loaded, ResponseError):
                raise loaded
            for place, reply in zip(missing, rest[step - 1 :: step], strict=True):
                replies[place] = reply
        for reply in replies:
            if isinstance(reply, ResponseError) and not is_of_the_bucket(reply):
                raise reply
        return replies[step - 1 :: step]

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
            raise OwnerUnavailable(cause(error), where=f"at {self.address}") from error
        except BaseException:
            self.drop_connection()
            raise

    def _connect(self) -> None:
        """Have a connection on which nothing is left to read; a new one to a server that is new enough."""
        if self._closed:
            raise OwnerUnavailable("it is closed", where=f"at {self.address}")
        if self._connection is not None and not _is_clear(self._connection):
            self.drop_connection()
        if self._connection is None:
            timeout_s = self._timeout_s
            if timeout_s != self._connects_within_s:
                self._connects_within_s = timeout_s
                self._pool = connection_maker(self._url, self.address, timeout_s)
            connection = self._connection = cast("_Connection", self._pool.make_connection())
            connection.connect()
            greet(lambda *command: self._talk([command])[0])

    def _talk(self, commands: list[Command]) -> list[Any]:
        """Send all, read all; an error reply stands in its place. The connection is in step after it, or dropped."""
        connection = self._connection
        if connection is None:
            raise OwnerUnavailable("it was closed meanwhile", where=f"at {self.address}")
        connection.send_packed_command(connection.pack_commands(commands), check_health=False)
        # Only from here: a thread of a busy process can be kept from sending for longer than the whole timeout.
        deadline = self._monotonic() + self._timeout_s
        return [self._reply(connection, deadline) for _ in commands]

    def _reply(self, connection: _Connection, deadline: float) -> Any:
        """The next reply, an error as its value. All of it must be there by the deadline, not only its next byte.

        Nor does it count when this thread comes to read it: the owner is late only if a look after the deadline finds
        the reply incomplete.
        """
        while True:
            if self._connection is not connection:
                # It would open itself again.
                raise OwnerUnavailable("it was closed meanwhile", where=f"at {self.address}")
            left_s = deadline - self._monotonic()
            if not connection.can_read(timeout=max(0.0, left_s)) and left_s > 0:
                continue
            try:
                return connection.read_response(timeout=0, disconnect_on_error=False)
            except ResponseError as refusal:
                return refusal
            except RedisTimeoutError:
                if left_s <= 0:
                    raise TimeoutError(f"no complete answer within {self._timeout_s:g} s") from None
            # Part of it is there, which is why `can_read` would not wait for the rest.
            time.sleep(_REST_S)


def _is_clear(connection: _Connection) -> bool:
    """Whether it is open and nothing was said on it that nobody asked for: the next answer is to the next ask.

    Servers and what is before them end connections that were idle for long; that is no reason to decide alone.
    """
    try:
        return not connection.can_read()
    except (RedisError, OSError):
        return False
