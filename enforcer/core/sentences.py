"""Why a request was refused, in one sentence: the same text on page, in CSV, in the API and in the 429 body.

Pure. Never names a caller, a copy or an owner: it is read by customers.
"""

from __future__ import annotations

import math
from typing import Any

from enforcer.errors import InvalidField
from enforcer.types import MAX_RECORDED_MS, Reason, Terms, Verdict

_AWAY = "this server held no share of your limit and the limiter could not be reached"


def explain_refusal(
    *,
    reason: Reason,
    cost: int,
    rate_per_s: float,
    burst: int,
    retry_after_ms: int,
    at: str | None = None,
    per: str = "",
) -> str:
    """The sentence for one refusal.

    Args:
        reason: why; any but `Reason.NONE`.
        cost: tokens that the request asked for.
        rate_per_s: what the plan refills per second.
        burst: the most that the limit ever holds.
        retry_after_ms: when the same request may be admitted, milliseconds after the refusal; -1 for never,
            `MAX_RECORDED_MS` for then or later.
        per: the calendar of a quota, such as ``day`` or ``month Europe/Berlin``; empty for a token bucket.
        at: time of day of the refusal, as it is to be shown; None to leave it out.

    Raises:
        InvalidField: the reason is `Reason.NONE`; there is no refusal to explain.
    """
    refused = "Refused" if at is None else f"Refused at {at}"
    if reason is Reason.SPENT and per:
        period, _, zone = per.partition(" ")
        begins = f"; it starts anew {_duration(retry_after_ms)} later" if retry_after_ms > 0 else ""
        return f"{refused}: the quota of {burst:,} per {period} was used up{begins} ({zone or 'UTC'})."
    if reason is Reason.SPENT:
        return f"{refused}: the burst of {burst:,} was spent{_then(cost, rate_per_s, retry_after_ms)}."
    if reason is Reason.NEVER:
        return (
            f"{refused}: this request costs {cost:,}, more than the limit can ever hold ({burst:,}). "
            "It will never be admitted; ask for a larger plan or split the request."
        )
    if reason is Reason.EMERGENCY:
        return (
            f"{refused}: {_AWAY}, so it used its emergency budget (your plan divided by the number of servers), "
            f"which was spent{_then(cost, rate_per_s, retry_after_ms)}."
        )
    if reason is Reason.CLOSED:
        return f"{refused}: {_AWAY}; this endpoint stays closed until it can be reached again."
    if reason is Reason.CEILING:
        why = "this server had as much to do as it can take"
        return f"{refused} to protect the service ({why}), not because of your plan."
    raise InvalidField("reason", reason, "a reason of a refusal")


def explain_verdict(verdict: Verdict) -> str:
    """The sentence for a verdict that refused. Raises `InvalidField` if it did not."""
    terms = verdict.basis.standing.terms
    return explain_refusal(
        reason=verdict.reason,
        cost=verdict.cost,
        rate_per_s=terms.plan.rate_per_s,
        burst=terms.plan.burst,
        retry_after_ms=verdict.retry_after_ms,
        per=terms.per,
    )


def terms_fields(terms: Terms) -> dict[str, Any]:
    """What a limit is held to, as it was sold: `rate_per_s` and `burst`, or of a calendar quota `quota` and `per`."""
    plan = terms.plan
    return (
        {"quota": plan.burst, "per": terms.per} if terms.per else {"rate_per_s": plan.rate_per_s, "burst": plan.burst}
    )


def _then(cost: int, rate_per_s: float, retry_after_ms: int) -> str:
    if retry_after_ms <= 0:
        return f"; it refills at {rate_per_s:,g} per second"
    which = "the next request" if cost == 1 else f"a request that costs {cost:,}"
    return f"; {which} would have been admitted {_duration(retry_after_ms)} later"


def _duration(milliseconds: int) -> str:
    """Never shorter than true: rounded up where it is rounded."""
    seconds = milliseconds / 1e3
    if seconds < 120:
        return f"{seconds:.3f}".rstrip("0").rstrip(".") + " s"
    if seconds < 7_200:
        return f"{math.ceil(seconds / 60):,} min"
    hours = f"{math.ceil(seconds / 3_600):,} h"
    return f"{hours} or more" if milliseconds == MAX_RECORDED_MS else hours
