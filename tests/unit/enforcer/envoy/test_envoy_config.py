"""The settings of Envoy's service."""

from __future__ import annotations

import pytest

from enforcer.envoy.config import EnvoyConfig
from enforcer.errors import ConfigError


def test_wrong_addresses_are_named_together() -> None:
    """Whoever mends one should not meet the next; and what is empty is not set."""
    wrong = {"TALLYGATE_ENVOY": "nowhere", "TALLYGATE_ENVOY_METRICS": "127.0.0.1:70000"}
    with pytest.raises(
        ConfigError, match=r"TALLYGATE_ENVOY is 'nowhere'.*; TALLYGATE_ENVOY_METRICS is '127.0.0.1:70000'"
    ):
        EnvoyConfig.from_env(wrong)
    assert EnvoyConfig() == EnvoyConfig.from_env(dict.fromkeys(wrong, ""))
    assert "[::1]:9" == EnvoyConfig.from_env({"TALLYGATE_ENVOY_METRICS": "[::1]:9"}).metrics
