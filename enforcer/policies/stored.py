"""A policy that is kept in Redis or Valkey, under one key, for a whole fleet: read, and put there by ``policy push``.

One connection with short timeouts, for one thread, never on the request path. It takes nothing for a policy that was
not pushed: version, digest and document are one hash, written in one step.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from hashlib import blake2b
from importlib.resources import files
from typing import Any, Literal, Protocol, TypeAlias, cast

from redis.exceptions import MovedError, RedisError, ResponseError

from enforcer.errors import ConfigError, OwnerUnavailable, PolicyAway, PolicyError, PolicyFault
from enforcer.owners.asking import ask_server
from enforcer.owners.replies import cause
from enforcer.owners.servers import checked_address, connection_maker
from enforcer.policies.addresses import PolicyAddress
from enforcer.policies.loader import MAX_POLICY_BYTES, parse_policy

_TIMEOUT_S = 0.5
_DIGEST_BYTES = 16
_Word: TypeAlias = bytes | str | int
Command: TypeAlias = tuple[_Word, ...]


def digest_of(document: bytes) -> str:
    """By which two documents are told apart: 32 hexadecimal digits."""
    return blake2b(document, digest_size=_DIGEST_BYTES).hexdigest()


class Server(Protocol):
    """Where commands go."""

    def call(self, *commands: Command) -> list[Any]:
        """The replies, in order; an error reply stands in its place. Raises `OwnerUnavailable`."""
        ...

    def close(self) -> None:
        """End the connection."""
        ...


class StoredPolicy:
    """Implements `PolicySource` on a key of Redis."""

    def __init__(self, address: PolicyAddress, *, server: Server | None = None) -> None:
        """Nothing is sent yet. `server` is for tests; None: the address's own."""
        self.name = address.name
        self._key = address.key
        self._server = PolicyServer(address) if server is None else server

    def mark(self) -> object:
        """See `PolicySource.mark`: the version, the digest and the size; one round trip, however large the policy."""
        found, size = self._call(("HMGET", self._key, "version", "digest"), ("HSTRLEN", self._key, "document"))
        return (*found, size) if isinstance(found, list) else str(found)

    def read(self) -> bytes:
        """See `PolicySource.read`. One that is too large is not fetched."""
        (size,) = self._call(("HSTRLEN", self._key, "document"))
        if isinstance(size, int) and size > MAX_POLICY_BYTES:
            raise self._fault(f"has {size:,} bytes; allowed: at most {MAX_POLICY_BYTES:,}")
        (found,) = self._call(("HMGET", self._key, "digest", "document"))
        match found:
            case ResponseError():
                raise self._fault(f"is no policy ({found}); put one there: tallygate policy push")
            case [None, None]:
                raise self._fault("is empty: there is no policy; put one there: tallygate policy push")
            case [bytes(digest), bytes(document)] if digest_of(document) == digest.decode("ascii", "replace"):
                return document
        raise self._fault("holds a document that is not the one of its digest; put it there by: tallygate policy push")

    def push(self, document: bytes, *, source: str) -> Literal["pushed", "unchanged"]:
        """Put a policy there, in one step, for every gateway that follows this key; `source` is where it is from.

        Returns:
            ``unchanged`` if the same policy was there already, under its version.

        Raises:
            PolicyError: the document has faults, or a higher version is there, or the same with other content.
            PolicyAway: the server does not answer, or does not take it.
        """
        policy = parse_policy(document, source=source)
        script = files("enforcer.policies").joinpath("push.lua").read_bytes()
        try:
            (reply,) = self._call(("EVAL", script, 1, self._key, policy.version, digest_of(document), document))
        except PolicyAway as away:
            raise PolicyAway(self.name, away.cause, what="cannot be pushed") from away
        match reply:
            case [1, *_]:
                return "pushed"
            case [0, *_]:
                return "unchanged"
            case [-1, int(version), *_] if version == policy.version:
                if parse_policy(self.read(), source=self.name) == policy:
                    return "unchanged"
                raise self._fault(f"has version {version} with other content; allowed: a version above {version}")
            case [-1, int(version), *_]:
                raise self._fault(f"has version {version}, above {policy.version}; allowed: a version above {version}")
        raise self._fault(f"took no policy ({reply})")

    def close(self) -> None:
        """See `PolicySource.close`."""
        self._server.close()

    def _call(self, *commands: Command) -> list[Any]:
        try:
            replies = self._server.call(*commands)
        except OwnerUnavailable as away:
            raise PolicyAway(self.name, away.cause) from away
        for reply in replies:
            if isinstance(reply, ResponseError) and not str(reply).startswith("WRONGTYPE"):
                # What the server says of itself, such as that it is loading, says nothing about the policy.
                raise PolicyAway(self.name, cause(reply))
        return replies

    def _fault(self, message: str) -> PolicyError:
        return PolicyError(self.name, [PolicyFault("(key)", None, f"the key {self._key!r} {message}")])


class _Connection(Protocol):
    """What is used of redis-py's connection."""

    def connect(self) -> None: ...

    def disconnect(self) -> None: ...

    def pack_commands(self, commands: Sequence[Command]) -> list[bytes]: ...

    def send_packed_command(self, command: list[bytes], check_health: bool = True) -> None: ...

    def read_response(self) -> Any: ...


class PolicyServer:
    """Implements `Server`: one connection to the node that holds the key, which is looked for whenever it ends."""

    def __init__(self, address: PolicyAddress, *, timeout_s: float = _TIMEOUT_S) -> None:
        """Nothing is sent yet; `timeout_s` bounds each step: connecting, sending, each reply."""
        self._address = address
        self._timeout_s = timeout_s
        self._connection: _Connection | None = None

    def call(self, *commands: Command) -> list[Any]:
        """See `Server.call`."""
        with self._guarded():
            replies = self._talk(commands)
            moved = next((reply for reply in replies if isinstance(reply, MovedError)), None)
            if moved is not None:
                self.close()
                self._connection = self._connect(self._address.url_of(moved.host, moved.port))
                replies = self._talk(commands)
            return replies

    def close(self) -> None:
        """See `Server.close`."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.disconnect()

    def _talk(self, commands: Sequence[Command]) -> list[Any]:
        connection = self._connection
        if connection is None:
            connection = self._connection = self._first_that_answers()
        connection.send_packed_command(connection.pack_commands(commands), check_health=False)
        replies: list[Any] = []
        for _ in commands:
            try:
                replies.append(connection.read_response())
            except ResponseError as refusal:
                replies.append(refusal)
        return replies

    def _first_that_answers(self) -> _Connection:
        last: Exception | None = None
        for url in self._nodes():
            try:
                return self._connect(url)
            except (RedisError, OSError) as error:
                last = error
        raise last if last is not None else OSError("no sentinel names a master")

    def _nodes(self) -> Iterator[str]:
        address = self._address
        if not address.service:
            yield from address.servers
            return
        for sentinel in address.servers:
            try:
                reply = ask_server(
                    sentinel, ("SENTINEL", "GET-MASTER-ADDR-BY-NAME", address.service), timeout_s=self._timeout_s
                )
            except OwnerUnavailable:
                continue
            match reply:
                case [bytes(host), bytes(port)] if port.isdigit():
                    yield address.url_of(host.decode("ascii", "replace"), int(port))

    def _connect(self, url: str) -> _Connection:
        maker = connection_maker(url, checked_address(url), self._timeout_s)
        connection = cast("_Connection", maker.make_connection())
        try:
            connection.connect()
        except BaseException:
            connection.disconnect()
            raise
        return connection

    @contextmanager
    def _guarded(self) -> Iterator[None]:
        """Turn every failure into `OwnerUnavailable`; replies that were not read must never be read, so it ends."""
        try:
            yield
        except (RedisError, OSError, ValueError, ConfigError) as error:
            self.close()
            raise OwnerUnavailable(cause(error), where=f"at {self._address.name}") from error
        except BaseException:
            self.close()
            raise
