"""One question to one server about where things are, on a connection of its own that ends with the answer."""

from __future__ import annotations

from typing import Any, Protocol, cast

from redis.exceptions import RedisError

from enforcer.errors import OwnerUnavailable
from enforcer.owners.replies import cause
from enforcer.owners.servers import checked_address, connection_maker


class _Connection(Protocol):
    """What is used of redis-py's connection."""

    def connect(self) -> None: ...

    def disconnect(self) -> None: ...

    def send_command(self, *command: bytes | str) -> None: ...

    def read_response(self) -> Any: ...


def ask_server(url: str, command: tuple[bytes | str, ...], *, timeout_s: float) -> Any:
    """The server's reply as it came: bytes, numbers, lists, None.

    Raises:
        OwnerUnavailable: no answer in time, or a refusal. Never shows a password.
    """
    address = checked_address(url)
    connection = cast("_Connection", connection_maker(url, address, timeout_s).make_connection())
    try:
        connection.connect()
        connection.send_command(*command)
        return connection.read_response()
    except (RedisError, OSError, ValueError) as error:
        raise OwnerUnavailable(cause(error), where=f"at {address}") from error
    finally:
        connection.disconnect()
