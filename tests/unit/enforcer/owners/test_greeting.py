"""Whether a server is new enough, by what servers of each age say."""

from __future__ import annotations

import pytest
from redis.exceptions import BusyLoadingError, NoPermissionError, ResponseError

from enforcer.owners.greeting import TooOld, greet

UNKNOWN = ResponseError("unknown command `HELLO`, with args beginning with: `2`, ")


@pytest.mark.parametrize(
    ("hello", "info"),
    [
        ([b"server", b"valkey", b"version", b"9.1.2"], None),
        (NoPermissionError("this user has no permissions to run the 'hello' command"), None),
        (UNKNOWN, b"# Server\r\nredis_version:5.0.14\r\nredis_mode:standalone\r\n"),
    ],
    ids=["answers", "forbids it", "Redis 5"],
)
def test_server_that_runs_the_script_is_taken(hello: object, info: bytes | None) -> None:
    """What is refused at connect is an outage of every caller."""
    greet(lambda *command: {b"HELLO": hello, b"INFO": info}[command[0]])


@pytest.mark.parametrize(
    ("info", "said"),
    [
        (b"# Server\r\nredis_version:4.0.14\r\n", r"Redis 4\.0\.14; allowed: from 5\.0"),
        (b"something else", "says its version"),
        (ResponseError("unknown command 'INFO'"), "says its version"),
    ],
)
def test_older_server_is_refused_by_its_version(info: object, said: str) -> None:
    """It would fail at the first write of the script, in words that nobody understands."""
    with pytest.raises(TooOld, match=said):
        greet(lambda *command: {b"HELLO": UNKNOWN, b"INFO": info}[command[0]])


def test_refusal_of_everything_is_not_about_the_version() -> None:
    """A server that is loading or wants a password says so; nobody looks for its version then."""
    with pytest.raises(ResponseError, match="NOAUTH"):
        greet(lambda *_: ResponseError("NOAUTH HELLO must be called with the client already authenticated"))
    assert not issubclass(BusyLoadingError, ResponseError), "the client raises it by itself"
