"""How a plan's rate is told in Envoy's units."""

from __future__ import annotations

import pytest

from enforcer.envoy.answers import rate_in_units
from enforcer.envoy.config import EnvoyConfig
from enforcer.envoy.stubs import RateLimitResponse
from enforcer.errors import ConfigError
from tests.unit.enforcer.envoy.calls import ask, call, descriptor, envoy_policy
from tests.unit.enforcer.harness import Fleet

UNIT = RateLimitResponse.RateLimit


@pytest.mark.parametrize(
    ("rate_per_s", "told"),
    [
        (100.0, (100, UNIT.SECOND)),
        (0.5, (30, UNIT.MINUTE)),
        (1 / 3, (20, UNIT.MINUTE)),
        (100 / 3600, (100, UNIT.HOUR)),
        (5 / 86_400, (5, UNIT.DAY)),
        (2.5, (150, UNIT.MINUTE)),
        (10.123456789, (10, UNIT.SECOND)),
        (0.123456789, (10_666, UNIT.DAY)),
        (1e-9, (1, UNIT.DAY)),
        (1e9, (1_000_000_000, UNIT.SECOND)),
    ],
)
def test_rate_is_told_exactly_or_rounded_down(rate_per_s: float, told: tuple[int, int]) -> None:
    """Never more than the caller has; nought would mean that nothing is ever allowed."""
    assert told == rate_in_units(rate_per_s)


async def test_calendar_quota_is_told_in_its_own_period() -> None:
    """1,000 a day is not what a rate of so much a second says."""
    plans = {"standard": {"rate_per_s": 100, "burst": 200, "limits": {"daily": {"quota": 20, "per": "day"}}}}
    fleet = Fleet(envoy_policy(plans=plans))
    message = call(descriptor(account="acme", class_="read"), hits=21)
    (status,) = (await ask(fleet, message)).statuses
    assert ("daily", 20, UNIT.DAY) == (
        status.current_limit.name,
        status.current_limit.requests_per_unit,
        status.current_limit.unit,
    )


@pytest.mark.parametrize("address", ["localhost", ":1", "127.0.0.1:65536", "127.0.0.1:x", "a b:1"])
def test_wrong_address_is_named(address: str) -> None:
    """A typing error is found at the start."""
    with pytest.raises(ConfigError, match=r"TALLYGATE_ENVOY is .*allowed: host:port"):
        EnvoyConfig.from_env({"TALLYGATE_ENVOY": address})


def test_address_may_be_ipv6() -> None:
    """As gRPC takes it."""
    assert "[::1]:0" == EnvoyConfig.from_env({"TALLYGATE_ENVOY": "[::1]:0"}).address
