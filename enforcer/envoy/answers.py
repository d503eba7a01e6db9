"""What Envoy is told: each descriptor's status, and the headers and body that it hands on to the client.

Never decides. Where a limit does not fit Envoy's units, its number is rounded down: never in the client's favour.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final

import msgspec

from enforcer.core.headers import header_fields
from enforcer.core.rooms import Room, named_room, nearest_room
from enforcer.core.sentences import explain_verdict
from enforcer.envoy.stubs import HeaderValue, RateLimitResponse
from enforcer.limiting.limiter import Limiter
from enforcer.types import Terms, Verdict

OK: Final[int] = RateLimitResponse.OK
OVER_LIMIT: Final[int] = RateLimitResponse.OVER_LIMIT
NOT_CHECKED: Final[int] = RateLimitResponse.UNKNOWN
REQUEST_ID_HEADER: Final = "tallygate-request-id"

_Limit = RateLimitResponse.RateLimit
_UNITS = ((_Limit.SECOND, 1), (_Limit.MINUTE, 60), (_Limit.HOUR, 3_600), (_Limit.DAY, 86_400))
_CALENDAR = {"hour": _Limit.HOUR, "day": _Limit.DAY, "week": _Limit.WEEK, "month": _Limit.MONTH}
_MOST = (1 << 32) - 1
_CLOSE = 1e-9


@lru_cache(maxsize=1_024)
def rate_in_units(rate_per_s: float) -> tuple[int, int]:
    """Whole requests per unit of Envoy: the shortest unit that is exact, else whole requests per second (or per day).

    A rate below one a day is told as one a day: zero would mean that nothing is ever allowed.
    """
    for unit, seconds in _UNITS:
        number = round(rate_per_s * seconds)
        if number >= 1 and abs(rate_per_s * seconds - number) <= _CLOSE * number:
            return min(number, _MOST), unit
    if rate_per_s >= 1:
        return min(math.floor(rate_per_s), _MOST), _Limit.SECOND
    return max(1, math.floor(rate_per_s * 86_400)), _Limit.DAY


def fill_status(status: Any, limiter: Limiter, verdict: Verdict) -> None:
    """Fill a DescriptorStatus from a verdict."""
    terms = verdict.basis.standing.terms
    room = named_room(limiter.rooms(verdict), verdict)
    status.code = OK if verdict.allowed else OVER_LIMIT
    limit = status.current_limit
    limit.name = terms.limit
    limit.requests_per_unit, limit.unit = _told(terms)
    status.limit_remaining = min(room.left, _MOST)
    wait_ms = _until_reset_ms(verdict, room)
    if wait_ms is not None:
        seconds, rest_ms = divmod(wait_ms, 1_000)
        status.duration_until_reset.seconds = seconds
        status.duration_until_reset.nanos = rest_ms * 1_000_000


def add_headers(response: Any, limiter: Limiter, verdict: Verdict) -> None:
    """Add the rate-limit headers of one verdict, and of a refusal its request id and problem details."""
    add = response.response_headers_to_add.append
    for name, value in header_fields(verdict, limiter.rooms(verdict)):
        add(HeaderValue(key=name.decode("ascii"), value=value.decode("ascii")))
    if verdict.allowed:
        return
    request_id = limiter.request_id(verdict)
    add(HeaderValue(key=REQUEST_ID_HEADER, value=request_id))
    add(HeaderValue(key="content-type", value="application/problem+json"))
    response.raw_body = _problem(verdict, request_id)


def shown(verdicts: Sequence[Verdict], limiter: Limiter) -> Verdict:
    """The one verdict whose headers the client gets: the refusal, else the one that is nearest to a refusal."""
    for verdict in verdicts:
        if not verdict.allowed:
            return verdict
    if len(verdicts) == 1:
        return verdicts[0]
    return min(verdicts, key=lambda verdict: nearest_room(limiter.rooms(verdict), verdict).left)


def _told(terms: Terms) -> tuple[int, int]:
    if terms.per:
        return terms.plan.burst, _CALENDAR[terms.per.partition(" ")[0]]
    return rate_in_units(terms.plan.rate_per_s)


def _until_reset_ms(verdict: Verdict, room: Room) -> int | None:
    """Until the same request may be admitted, or a bucket is full again; None where it is not known, or never."""
    if not verdict.allowed:
        return verdict.retry_after_ms if verdict.retry_after_ms > 0 else None
    plan = room.terms.plan
    return math.ceil(max(0, plan.burst - room.left) / plan.rate_per_s * 1_000)


def _problem(verdict: Verdict, request_id: str) -> bytes:
    wait_ms = verdict.retry_after_ms
    return msgspec.json.encode(
        {
            "type": "about:blank",
            "title": "Too Many Requests",
            "status": 429,
            "detail": explain_verdict(verdict),
            "request_id": request_id,
            "retry_after_ms": wait_ms if wait_ms >= 0 else None,
        }
    )
