"""The response headers that tell a client where it stands: `RateLimit-Policy`, `RateLimit`, `Retry-After`.

Beside them the older three, `X-RateLimit-Limit`, `-Remaining` and `-Reset`, for clients that know only those. The first
two as structured fields, after draft-ietf-httpapi-ratelimit-headers: ``"name";q=quota;w=window_s`` and
``"name";r=remaining;t=seconds_until_more``. Pure; nothing here is ever estimated in the client's favour.
"""

from __future__ import annotations

import math
from functools import lru_cache

from enforcer.types import Plan, Verdict

#: Largest integer of a structured field.
_MOST = 999_999_999_999_999


def policy_field(limit: str, plan: Plan) -> str:
    """``RateLimit-Policy``: the burst, over the seconds in which it refills (rounded up)."""
    return f"{_text(limit)};q={plan.burst};w={_seconds(plan.burst / plan.rate_per_s)}"


def state_field(limit: str, remaining: int, *, more_in_s: int | None) -> str:
    """``RateLimit``: what is left, and in how many seconds there is more; None to leave that out."""
    more = f";t={more_in_s}" if more_in_s is not None else ""
    return f"{_text(limit)};r={max(0, remaining)}{more}"


def retry_after_s(retry_after_ms: int) -> int | None:
    """``Retry-After`` in whole seconds, never earlier than true; None where no wait helps, or none is needed."""
    return -(-retry_after_ms // 1_000) if retry_after_ms > 0 else None


def header_fields(verdict: Verdict, *, room: int) -> list[tuple[bytes, bytes]]:
    """All rate-limit headers of one response, as ASGI wants them.

    Args:
        verdict: on the request.
        room: tokens that the caller may expect to have left.
    """
    terms = verdict.basis.standing.terms
    policy, state, more_in_s = _constants(terms.limit, terms.plan)
    if verdict.allowed:
        # A quota does not fill up little by little: it starts anew, and when that is only the owner's calendar says.
        more = b";t=%d" % more_in_s if room < terms.plan.burst and not terms.per else b""
        return [(b"ratelimit-policy", policy), (b"ratelimit", b"%b;r=%d%b" % (state, max(0, room), more))]
    line = state_field(terms.limit, room, more_in_s=retry_after_s(verdict.retry_after_ms)).encode("ascii")
    return [(b"ratelimit-policy", policy), (b"ratelimit", line), *retry_after_field(verdict)]


def legacy_fields(verdict: Verdict, *, room: int) -> list[tuple[bytes, bytes]]:
    """The older three, without `Retry-After`.

    `X-RateLimit-Reset` is in seconds from now, as `t` of `RateLimit` is; 0 while nothing is spent, and left out where
    no wait helps.

    Args:
        verdict: on the request.
        room: tokens that the caller may expect to have left.
    """
    plan = verdict.basis.standing.terms.plan
    fields = [(b"x-ratelimit-limit", b"%d" % plan.burst), (b"x-ratelimit-remaining", b"%d" % max(0, room))]
    if not verdict.allowed:
        reset_s = retry_after_s(verdict.retry_after_ms)
    else:
        reset_s = _seconds(1 / plan.rate_per_s) if room < plan.burst else 0
    return fields if reset_s is None else [*fields, (b"x-ratelimit-reset", b"%d" % reset_s)]


def retry_after_field(verdict: Verdict) -> list[tuple[bytes, bytes]]:
    """``Retry-After`` where a wait helps, else nothing."""
    wait_s = retry_after_s(verdict.retry_after_ms)
    return [] if wait_s is None else [(b"retry-after", b"%d" % wait_s)]


@lru_cache(maxsize=1_024)
def _constants(limit: str, plan: Plan) -> tuple[bytes, bytes, int]:
    """What is the same on every response of a plan: its policy, its limit's name, the seconds to one more token."""
    return policy_field(limit, plan).encode("ascii"), _text(limit).encode("ascii"), _seconds(1 / plan.rate_per_s)


def _text(name: str) -> str:
    """A string of a structured field: quoted ASCII."""
    shown = "".join(character if " " <= character <= "~" else "?" for character in name)
    return '"' + shown.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _seconds(seconds: float) -> int:
    return min(_MOST, math.ceil(seconds))
