"""How long the owner on Redis waits for a server, on a connection and a clock that the test moves."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence

import pytest
from redis.exceptions import TimeoutError as RedisTimeoutError

from enforcer.errors import OwnerUnavailable
from enforcer.messages import Answer, Ask
from enforcer.owners.redis import RedisOwner
from enforcer.types import Plan

TIMEOUT_S = 0.05
_ASK = Ask("acme", "rate", Plan("standard", 100.0, 200), "copy/1", 1, (), 0, 0, 0.0, 0, 0.0)
_ANSWER = struct.pack("<11d", 0, 0, 0, 0, 0, 1, 0, 1, 0, 0, 0)


class _Connection:
    """Moves the clock at each step by what `takes_s` says, and answers as `replies` does."""

    def __init__(self, takes_s: dict[str, float], reply: Callable[[], object]) -> None:
        self.now_s = 100.0
        self.looks = 0
        self.is_open = False
        self._takes_s, self._reply = takes_s, reply

    def _pass(self, step: str) -> None:
        self.now_s += self._takes_s.get(step, 0.0)

    def connect(self) -> None:
        self._pass("connect")
        self.is_open = True

    def disconnect(self) -> None:
        self.is_open = False

    def can_read(self, timeout: float = -1) -> bool:
        if timeout >= 0:
            self._pass("wait")
        return timeout >= 0

    def pack_commands(self, commands: Sequence[tuple[bytes, ...]]) -> list[bytes]:
        return [command[0] for command in commands]

    def send_packed_command(self, command: list[bytes], check_health: bool = True) -> None:
        self._pass("send")
        self._sent = command[0]

    def read_response(self, *, timeout: float, disconnect_on_error: bool) -> object:
        assert (timeout, disconnect_on_error) == (0, False), "the wait is bounded elsewhere, and once"
        if self._sent == b"HELLO":
            return []
        self.looks += 1
        self._pass("look")
        return self._reply()

    def make_connection(self) -> _Connection:
        return self


def _owner(connection: _Connection) -> RedisOwner:
    owner = RedisOwner("redis://127.0.0.1:1/0", timeout_s=TIMEOUT_S, monotonic=lambda: connection.now_s)
    owner._pool = connection  # type: ignore[assignment]  # it makes nothing but itself
    return owner


@pytest.mark.parametrize("step", ["connect", "send", "wait", "look"])
def test_a_thread_that_was_kept_from_running_still_takes_the_reply_that_is_there(step: str) -> None:
    """In a gateway that computes, it gets its turn too late at any step: that is no outage of a healthy owner."""
    connection = _Connection({step: 20 * TIMEOUT_S}, lambda: _ANSWER)
    owner = _owner(connection)
    assert isinstance(owner.ask([_ASK])[0], Answer)
    assert connection.is_open


def test_the_rest_of_a_reply_may_be_found_by_a_last_look() -> None:
    """This thread was kept from running between the two halves of a reply: both were there in time."""
    halves: list[object] = [RedisTimeoutError(), _ANSWER]

    def half() -> object:
        found = halves.pop(0)
        if isinstance(found, Exception):
            raise found
        return found

    owner = _owner(_Connection({"look": 20 * TIMEOUT_S}, half))
    assert isinstance(owner.ask([_ASK])[0], Answer)


def test_a_handshake_longer_than_the_timeout_leaves_the_connection_for_the_ask() -> None:
    """Password, database, greeting: some round trips each, and a connection dropped at its end is never one."""
    connection = _Connection({"connect": 1.2 * TIMEOUT_S, "wait": 0.9 * TIMEOUT_S}, lambda: _ANSWER)
    owner = _owner(connection)
    owner.probe()
    owner.probe()
    assert connection.is_open


def test_a_reply_that_drips_has_one_deadline_for_all_of_it() -> None:
    """A byte in time is no answer in time: the asker would be stuck for as long as the owner likes."""

    def never_whole() -> object:
        raise RedisTimeoutError

    connection = _Connection({"look": TIMEOUT_S / 5}, never_whole)
    owner = _owner(connection)
    with pytest.raises(OwnerUnavailable, match=r"no complete answer within 0\.05 s"):
        owner.ask([_ASK])
    assert connection.looks in (6, 7), "the last one after the deadline"
    assert not connection.is_open


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError])
def test_an_interrupted_call_leaves_no_answer_for_the_next(error: type[BaseException]) -> None:
    """What the server still says on that connection belongs to nobody."""

    def fail() -> object:
        raise error

    connection = _Connection({}, fail)
    with pytest.raises((KeyboardInterrupt, OwnerUnavailable)):
        _owner(connection).ask([_ASK])
    assert not connection.is_open
