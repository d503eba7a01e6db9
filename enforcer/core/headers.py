"""The response headers that tell a client where it stands: `RateLimit-Policy`, `RateLimit`, `Retry-After`.

Beside them the older three, `X-RateLimit-Limit`, `-Remaining` and `-Reset`, for clients that know only those. The first
two are structured fields after draft-ietf-httpapi-ratelimit-headers-11: lists with an item for each limit that applied,
``"name";q=quota;w=window_s`` and ``"name";r=remaining;t=seconds_until_more``. Pure; names no caller, tenant or bucket.
"""

from __future__ import annotations

from collections.abc import Sequence

from enforcer.core.rooms import Room, nearest_room, seconds_up
from enforcer.types import Verdict


def header_fields(verdict: Verdict, rooms: Sequence[Room]) -> list[tuple[bytes, bytes]]:
    """All rate-limit headers of one response, as ASGI wants them.

    Args:
        verdict: on the request.
        rooms: of all limits that applied to it, one at least, as `Limiter.rooms` says.
    """
    if len(rooms) == 1:
        room = rooms[0]
        policy, state = room.notice.policy_field, _state(room)
    else:
        policy = (b"ratelimit-policy", b", ".join([room.notice.policy for room in rooms]))
        state = b", ".join([_state(room) for room in rooms])
    if verdict.allowed:
        return [policy, (b"ratelimit", state)]
    return [policy, (b"ratelimit", state), *retry_after_field(verdict)]


def legacy_fields(verdict: Verdict, rooms: Sequence[Room]) -> list[tuple[bytes, bytes]]:
    """The older three, without `Retry-After`. They can speak of one limit: the one that refused, or will first.

    `X-RateLimit-Reset` is in seconds from now, as `t` of `RateLimit` is; 0 while nothing is spent, and left out where
    no wait helps, or nobody here knows how long.

    Args:
        verdict: on the request.
        rooms: of all limits that applied to it, one at least, as `Limiter.rooms` says.
    """
    room = nearest_room(rooms, verdict)
    burst = room.terms.plan.burst
    fields = [(b"x-ratelimit-limit", b"%d" % burst), (b"x-ratelimit-remaining", b"%d" % room.left)]
    if room.more_in_s or (room.left >= burst and verdict.retry_after_ms >= 0):
        fields.append((b"x-ratelimit-reset", b"%d" % room.more_in_s))
    return fields


def retry_after_field(verdict: Verdict) -> list[tuple[bytes, bytes]]:
    """``Retry-After`` where a wait helps, else nothing."""
    wait_s = retry_after_s(verdict.retry_after_ms)
    return [] if wait_s is None else [(b"retry-after", b"%d" % wait_s)]


def retry_after_s(retry_after_ms: int) -> int | None:
    """``Retry-After`` in whole seconds, never earlier than true; None where no wait helps, or none is needed."""
    return seconds_up(retry_after_ms) if retry_after_ms > 0 else None


def _state(room: Room) -> bytes:
    """The item of ``RateLimit`` for one limit."""
    more_in_s = room.more_in_s
    return room.notice.left_and_more % (room.left, more_in_s) if more_in_s else room.notice.left % room.left
