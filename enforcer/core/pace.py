"""A copy's own smoothed spending for one caller: what its stock is sized by. Pure: the time is an argument."""

from __future__ import annotations

import math

#: How fast it forgets.
_TAU_S = 1.0


class Pace:
    """An average over time that forgets exponentially, weighted by how long each span lasted."""

    __slots__ = ("_at_ns", "_known", "_weighted_s", "_weighted_spent")

    def __init__(self) -> None:
        self._at_ns = 0
        self._known = 0
        self._weighted_s = 0.0
        self._weighted_spent = 0.0

    @property
    def rate_per_s(self) -> float:
        """Tokens per second; 0 before the second observation."""
        return self._weighted_spent / self._weighted_s if self._weighted_s > 0 else 0.0

    def observe(self, spent: int, now_ns: int) -> None:
        """Take in the total spent so far; `now_ns` is the copy's monotonic clock."""
        if self._at_ns:
            elapsed_s = max(now_ns - self._at_ns, 1_000) / 1e9
            keep = math.exp(-elapsed_s / _TAU_S)
            self._weighted_spent = self._weighted_spent * keep + (spent - self._known)
            self._weighted_s = self._weighted_s * keep + elapsed_s
        self._known = spent
        self._at_ns = now_ns
