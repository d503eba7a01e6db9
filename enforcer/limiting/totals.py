"""Running totals by name, told at most once a second each: what would be too many facts one by one.

Totals, never increments: one that is lost is said again by the next. Reads no clock.
"""

from __future__ import annotations

from collections.abc import Iterator

_EVERY_NS = 1_000_000_000
#: Names that are counted one by one; the rest is counted together, under `OTHERS`.
_MOST = 10_000
OTHERS = "(others)"

#: Caller, scope, limit, policy version; what does not apply is empty.
Key = tuple[str, str, str, int]


class Totals:
    """Of a copy's epoch. Kept under the limiter's lock; as many numbers under each key as are first counted there."""

    def __init__(self) -> None:
        self._totals: dict[Key, list[int]] = {}
        self._news: set[Key] = set()
        self._told_ns = 0

    def count(self, key: Key, *amounts: int) -> None:
        """Add to the totals under this key."""
        if len(self._totals) >= _MOST and key not in self._totals:
            key = (OTHERS, OTHERS, *key[2:])
        totals = self._totals.setdefault(key, [0] * len(amounts))
        for place, amount in enumerate(amounts):
            totals[place] += amount
        self._news.add(key)

    def due(self, now_ns: int, *, everything: bool = False) -> Iterator[tuple[Key, tuple[int, ...]]]:
        """What changed since it was last told, if a second has passed."""
        if not self._news or (not everything and now_ns - self._told_ns < _EVERY_NS):
            return
        self._told_ns = now_ns
        news, self._news = self._news, set()
        for key in news:
            yield key, tuple(self._totals[key])
