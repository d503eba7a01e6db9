"""How far back the last refusals are looked for: a month has thirty days to read, and mostly one is enough."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from dashboard.reader import _refusals

_DAY_S = 86_400
_TO_S = 40 * _DAY_S
_ROW = ("acme", 1, "gw-1", 1, 1, "GET /", "rate", "plan", 1.0, 5, "", False, 0, 1, 1, 0, 10, 1, 0, 4)


class Asked:
    """Has so many refusals in the last day and in the days before, and remembers what was asked for."""

    def __init__(self, last_day: int, before: int) -> None:
        self._last_day, self._before = last_day, before
        self.days: list[int] = []

    def __call__(self, name: str, **values: Any) -> Sequence[tuple[Any, ...]]:
        assert name == "caller_refusals"
        days = (values["to_s"] - values["from_s"]) // _DAY_S
        self.days.append(days)
        found = self._last_day + (self._before if days > 1 else 0)
        return [_ROW] * min(found, values["rows"])


@pytest.mark.parametrize(
    ("last_day", "before", "told", "days", "listed"),
    [
        (25, 9, 25, [1], 25),
        (0, 0, 0, [1], 0),
        (2, 0, 0, [1], 2),
        (2, 9, 11, [1, 30], 11),
        (0, 3, 25, [1, 30], 3),
    ],
)
def test_refusals_are_looked_for_until_all_that_are_told_of_are_found(
    last_day: int, before: int, told: int, days: list[int], listed: int
) -> None:
    """None that the totals tell of is left out, nor any that is too new for them."""
    ask = Asked(last_day, before)
    found = _refusals(ask, {"from_s": _TO_S - 30 * _DAY_S, "to_s": _TO_S}, rows=25, told=told)
    assert (days, listed) == (ask.days, len(found))


def test_refusals_of_an_hour_are_asked_for_once() -> None:
    """A span within a day is read whole."""
    ask = Asked(0, 0)
    assert [] == _refusals(ask, {"from_s": _TO_S - 3_600, "to_s": _TO_S}, rows=25, told=25)
    assert [0] == ask.days
