"""Ends the place of a leader that has left its group while the group was being formed.

The embedded broker forgets such a member and goes on naming it as the leader, and all others wait for what it will
never deal out. What it does put out of a group is a member that gives no sign of life for a session. So the leader is
made a member again, in its name, which then stays silent. Apache Kafka refuses it: it takes no member that it does not
know.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Sequence
from contextlib import suppress
from logging import Logger

from aggregator.group.view import GroupView

_JOIN_GROUP, _VERSION, _CORRELATION = 11, 2, 1
_CLIENT = "tallygate"
#: The assignors of both clients. The group has settled on one; a request that does not name it is refused.
_PROTOCOLS = ("range", "roundrobin", "faust")
#: A request is taken at once; its answer comes when the group is formed, and tells nothing.
_TAKEN_S = 1.0


def end_leader(bootstrap: str, group: str, leader: str, topics: Sequence[str], *, session_timeout_ms: int) -> None:
    """Have the group's leader, which is not a member any more, put out of it once a session has passed.

    Args:
        bootstrap: ``host:port``, several separated by commas; the first is asked.
        group: its id.
        leader: the name of the member.
        topics: what the group reads.
        session_timeout_ms: the group's.

    Raises:
        OSError: the broker cannot be reached.
    """
    host, _, port = bootstrap.split(",", maxsplit=1)[0].strip().rpartition(":")
    request = join_request(group, leader, topics, session_timeout_ms=session_timeout_ms)
    with socket.create_connection((host, int(port)), timeout=_TAKEN_S) as connection:
        connection.sendall(request)
        with suppress(TimeoutError):
            connection.recv(1)


def put_out(view: GroupView, leader: str, topics: Sequence[str], *, session_timeout_ms: int, log: Logger) -> None:
    """The same of a group that is looked at, told in the log; a broker that cannot be reached is told there, too."""
    log.warning("the group %s waits for its leader %s, which is gone: ending its place", view.group, leader)
    try:
        end_leader(view.bootstrap, view.group, leader, topics, session_timeout_ms=session_timeout_ms)
    except OSError as error:
        log.warning("the place of that leader could not be ended: %s", error)


def join_request(group: str, member: str, topics: Sequence[str], *, session_timeout_ms: int) -> bytes:
    """The bytes of a JoinGroup request, version 2, in the name of that member."""
    subscription = struct.pack(">hi", 0, len(topics)) + b"".join(_text(topic) for topic in topics) + _bytes(b"")
    body = (
        struct.pack(">hhi", _JOIN_GROUP, _VERSION, _CORRELATION)
        + _text(_CLIENT)
        + _text(group)
        + struct.pack(">ii", session_timeout_ms, session_timeout_ms)
        + _text(member)
        + _text("consumer")
        + struct.pack(">i", len(_PROTOCOLS))
        + b"".join(_text(protocol) + _bytes(subscription) for protocol in _PROTOCOLS)
    )
    return _bytes(body)


def _text(value: str) -> bytes:
    raw = value.encode()
    return struct.pack(">h", len(raw)) + raw


def _bytes(value: bytes) -> bytes:
    return struct.pack(">i", len(value)) + value
