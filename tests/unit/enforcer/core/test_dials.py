"""Dials with which the rules would not hold are refused, and ε is what they add up to."""

from __future__ import annotations

import math

import pytest

from enforcer.core.dials import DEFAULT_DIALS, LONGEST_US, Dials, epsilon_tokens
from enforcer.errors import InvalidField


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("expiry_us", 0),
        ("k_window_us", 0),
        ("k_floor", 0),
        ("lent_decay_us", -1),
        ("keep_us", LONGEST_US + 1),
        ("overdraft", 1.5),
        ("epsilon", math.nan),
        ("press_span", 0.0),
    ],
)
def test_dial_that_breaks_a_rule_is_refused_by_name(field: str, value: float) -> None:
    """A zero window or a NaN would reach every bucket of the fleet."""
    with pytest.raises(InvalidField, match=field):
        Dials(**{field: value})  # type: ignore[arg-type]  # wrong on purpose


def test_declared_epsilon_is_at_most_one_burst() -> None:
    """What a plan's page says must be what the owner keeps."""
    assert epsilon_tokens(200) == 200
    assert epsilon_tokens(200, Dials(epsilon=0.5, overdraft=0.1)) == 100
    assert epsilon_tokens(200, DEFAULT_DIALS, copies=10, largest_cost=3) == 220
