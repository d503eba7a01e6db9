"""What is left of each limit of a request, as a client is told it. Pure; nothing here is estimated in its favour.

A limit in shadow mode never has one: a client must not pace itself by a limit that does not refuse.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

import msgspec

from enforcer.types import Source, Terms, Verdict

#: Largest integer of a structured field.
MOST = 999_999_999_999_999
#: The longest period of each calendar: a quota over less would promise more than was sold.
_LONGEST_S = {"hour": 3_600, "day": 86_400, "week": 604_800, "month": 31 * 86_400}


class Notice(msgspec.Struct, frozen=True, gc=False):
    """What is the same in every answer about one limit.

    Attributes:
        terms: the limit, and what it is held to.
        policy: its item in `RateLimit-Policy`, and the header of a response that has no other.
        left, left_and_more: its item in `RateLimit`, to be filled with tokens, and with seconds.
        more_in_s: seconds in which a bucket gains one token, rounded up; 0 for a quota: it gains none before its turn.
    """

    terms: Terms
    policy: bytes
    policy_field: tuple[bytes, bytes]
    left: bytes
    left_and_more: bytes
    more_in_s: int


class Room(msgspec.Struct, frozen=True, gc=False):
    """What is left of one limit.

    Attributes:
        notice: what is always the same about it.
        left: tokens that may be expected to be left, from 0.
        more_in_s: seconds until there are more, never too few; 0 where nothing is missing, no wait helps, or nobody
            here knows.
    """

    notice: Notice
    left: int
    more_in_s: int

    @property
    def terms(self) -> Terms:
        """The limit, and what it is held to."""
        return self.notice.terms


@lru_cache(maxsize=4_096)
def notice_of(terms: Terms) -> Notice:
    """The notice of a limit. Terms name the policy's version, so that another policy has notices of its own."""
    name = quoted(terms.limit)
    policy = f"{name};q={terms.plan.burst};w={_window_s(terms)}".encode("ascii")
    left = name.replace("%", "%%").encode("ascii") + b";r=%d"
    more_in_s = 0 if terms.per else whole_seconds(1 / terms.plan.rate_per_s)
    return Notice(terms, policy, (b"ratelimit-policy", policy), left, left + b";t=%d", more_in_s)


def room_of_verdict(verdict: Verdict) -> Room:
    """What the verdict itself says of the limit that it names."""
    notice = notice_of(verdict.basis.standing.terms)
    left = max(0, verdict.remaining)
    if not verdict.allowed:
        return Room(notice, left, seconds_up(max(0, verdict.retry_after_ms)))
    return Room(notice, left, notice.more_in_s if left < notice.terms.plan.burst else 0)


def named_room(rooms: Sequence[Room], verdict: Verdict) -> Room:
    """The one of the limit that the verdict names."""
    limit = verdict.basis.standing.terms.limit
    return next((room for room in rooms if room.notice.terms.limit == limit), rooms[0])


def nearest_room(rooms: Sequence[Room], verdict: Verdict) -> Room:
    """The one whose limit refused, or will first: a request costs every limit the same, so it has the fewest left."""
    if not (verdict.allowed or verdict.source is Source.CAP):
        return named_room(rooms, verdict)
    return min(rooms, key=lambda room: (room.left, -room.more_in_s))


def quoted(name: str) -> str:
    """A string of a structured field: quoted ASCII."""
    shown = "".join(character if " " <= character <= "~" else "?" for character in name)
    return '"' + shown.replace("\\", "\\\\").replace('"', '\\"') + '"'


def whole_seconds(seconds: float) -> int:
    """Rounded up, and no larger than a structured field can say."""
    return min(MOST, math.ceil(seconds))


def seconds_up(milliseconds: int) -> int:
    """Whole seconds, never less than true."""
    return -(-milliseconds // 1_000)


def _window_s(terms: Terms) -> int:
    """Seconds in which the whole of a limit comes back."""
    if terms.per:
        return _LONGEST_S[terms.per.partition(" ")[0]]
    return whole_seconds(terms.plan.burst / terms.plan.rate_per_s)
