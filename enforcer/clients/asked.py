"""How long a server asks its client to wait: `Retry-After`, else the `t` of `RateLimit`. Reads no clock."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from datetime import UTC
from email.utils import parsedate_to_datetime

_DIGITS = re.compile(r"[0-9]+")
_QUOTED = re.compile(r'"(?:[^"\\]|\\.)*"')
_MORE_IN = re.compile(r";[ ]*t=([0-9]{1,15})[ ]*(?=[;,]|$)")
#: Digits of a number of seconds that is still taken at its word: 31,688 years.
_MOST_DIGITS = 12


def asked_s(headers: Mapping[str, str], *, now_unix_s: float) -> float | None:
    """Seconds to wait, 0 or more; None if the server names no time: then no wait helps, or it does not know.

    Args:
        headers: of the response, looked up in lower case; lines of one name are joined by commas.
        now_unix_s: the client's wall clock. A `Retry-After` that is a date is measured against the response's own
            `Date` where there is one, because the two clocks differ.
    """
    retry_after = headers.get("retry-after")
    if retry_after is not None:
        seconds = _retry_after_s(retry_after.strip(), _unix_s(headers.get("date", "")), now_unix_s)
        if seconds is not None:
            return seconds
    return _more_in_s(headers.get("ratelimit", ""))


def _retry_after_s(value: str, sent_unix_s: float | None, now_unix_s: float) -> float | None:
    if _DIGITS.fullmatch(value):
        return float(value) if len(value) <= _MOST_DIGITS else math.inf
    until = _unix_s(value)
    if until is None:
        return None
    return max(0.0, until - (sent_unix_s if sent_unix_s is not None else now_unix_s))


def _unix_s(value: str) -> float | None:
    """An HTTP-date in any of its three forms, all of which are in UTC; None if it is none."""
    try:
        moment = parsedate_to_datetime(value)
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        return None


def _more_in_s(field: str) -> float | None:
    """The longest `t` of a `RateLimit` field: until then one of its limits may refuse. Quoted names hold nothing."""
    times = [int(found) for found in _MORE_IN.findall(_QUOTED.sub("", field))]
    return float(max(times)) if times else None
