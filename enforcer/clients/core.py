"""Whether a refused request is sent again, and when. Pure: time and randomness are arguments; sends nothing."""

from __future__ import annotations

import math
from dataclasses import dataclass

from enforcer.errors import InvalidField

_TOO_MANY, _UNAVAILABLE = 429, 503
#: Longest refusal that is read to keep its connection, bytes.
_MOST_READ = 65_536


@dataclass(frozen=True, slots=True)
class RetryRules:
    """How patient a client is. Times in seconds; `attempts` counts the first one."""

    attempts: int = 4
    deadline_s: float = 30.0
    base_s: float = 0.1
    most_jitter_s: float = 5.0

    def __post_init__(self) -> None:
        """Raises `InvalidField` if a number is not acceptable."""
        if self.attempts < 1:
            raise InvalidField("attempts", self.attempts, "1 or more; 1 sends nothing again")
        for name in ("deadline_s", "base_s", "most_jitter_s"):
            if not (math.isfinite(getattr(self, name)) and getattr(self, name) >= 0):
                raise InvalidField(name, getattr(self, name), "a number of seconds, 0 or more")


class RetryBudget:
    """At most `floor` + `share` × requests are retries, whatever the server does. One for a whole client."""

    def __init__(self, *, share: float = 0.1, floor: int = 10) -> None:
        """Start full. Raises `InvalidField` if a number is not acceptable."""
        if not 0 <= share <= 1:
            raise InvalidField("share", share, "0 to 1, retries per request")
        if floor < 0:
            raise InvalidField("floor", floor, "0 or more retries")
        self._share = share
        self._floor = float(floor)
        self._tokens = float(floor)

    def request_made(self) -> None:
        """Count one request, not its retries."""
        self._tokens = min(self._floor + 1, self._tokens + self._share)

    def take(self) -> bool:
        """Spend one retry; False if none is left."""
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True


def is_worth_reading(content_length: str) -> bool:
    """Whether a refusal is short enough to be read to its end: a connection with one half read must be closed."""
    return content_length.isdecimal() and int(content_length[:9]) <= _MOST_READ


def wait_s(
    rules: RetryRules,
    budget: RetryBudget,
    *,
    status: int,
    retry_after_s: float | None,
    attempt: int,
    elapsed_s: float,
    chance: float,
) -> float | None:
    """Seconds to wait before the next attempt, never less than `retry_after_s`; None: give up.

    Args:
        rules: the client's patience.
        budget: a retry is taken from it only where one is made.
        status: of the response; only 429 and 503 are tried again, a 429 only with a time to wait for.
        retry_after_s: what the server asked for.
        attempt: how many were made, 1 or more.
        elapsed_s: since the first began; waits end before the deadline.
        chance: uniform in [0, 1), for the jitter.
    """
    if status not in (_TOO_MANY, _UNAVAILABLE) or (status == _TOO_MANY and retry_after_s is None):
        return None
    least = max(0.0, retry_after_s or 0.0)
    left = rules.deadline_s - elapsed_s - least
    if attempt >= rules.attempts or not left > 0 or not budget.take():
        return None
    jitter = min(left, rules.most_jitter_s, rules.base_s * 2.0 ** min(attempt, 32))
    return least + chance * jitter
