"""An owner that comes and goes: what docs/epsilon.md says of it."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from tests.unit.enforcer.harness import Fleet, make_policy

_COPIES, _RATE, _BURST = 4, 100, 200
_STEP_S = 0.005


def _bursts_beyond_the_plan(is_away: Callable[[float], bool], seconds: float) -> float:
    fleet = Fleet(make_policy(rate_per_s=_RATE, burst=_BURST, fleet={"copies": _COPIES}), copies=_COPIES)
    admitted, steps = 0, round(seconds / _STEP_S)
    for step in range(steps):
        fleet.owner.away = "away" if is_away(step * _STEP_S) else None
        admitted += sum(copy.limiter.check("acme").allowed for copy in fleet.copies for _ in range(4))
        fleet.advance(_STEP_S, step_s=_STEP_S)
    return (admitted - _BURST - _RATE * seconds) / _BURST


def _lossy() -> Callable[[float], bool]:
    chance = random.Random(1)
    return lambda _: chance.random() < 0.1


@pytest.mark.parametrize(
    ("is_away", "seconds", "bursts"),
    [
        (lambda _: False, 10.0, 0.0),
        (lambda at_s: int(at_s / 0.3) % 2 == 1, 10.0, 17.4),
        (lambda _: True, 10.0, 18.0),
        (_lossy(), 8.0, 3.8),
    ],
    ids=["there", "flapping", "away", "lossy"],
)
def test_an_owner_that_comes_and_goes_adds_what_the_page_says(
    is_away: Callable[[float], bool], seconds: float, bursts: float
) -> None:
    """Who sizes a service by the bound of a healthy owner is surprised on the day of the outage."""
    beyond = _bursts_beyond_the_plan(is_away, seconds)
    assert beyond == pytest.approx(bursts, abs=0.5)
    assert beyond <= (_COPIES * (_BURST + _RATE * seconds) + 2 * _BURST - _BURST) / _BURST, "both rows of the page"


def test_a_quota_that_is_used_up_is_given_once_more_by_copies_that_never_heard() -> None:
    """The one place where a quota is no hard bound: it must be known before it is sold."""
    quota = {"rate_per_s": 100, "burst": 50, "limits": {"day": {"quota": 10, "per": "day"}}}
    fleet = Fleet(make_policy(plans={"standard": quota}, fleet={"copies": 2}), copies=2)
    assert 10 == sum(fleet.limiter.check("acme").allowed for _ in range(12))
    fleet.owner.away = "away"
    assert 5 == sum(fleet.copies[1].limiter.check("acme").allowed for _ in range(20)), "the share of one copy"
    assert 0 == sum(fleet.limiter.check("acme").allowed for _ in range(20)), "it has heard that all is used"
