"""Settings: all faults at once, no secret in a message."""

from __future__ import annotations

import pytest

from dashboard.config import DashboardConfig
from enforcer.errors import ConfigError

SECRET = "a secret of the tests, long enough"


def test_defaults_are_what_up_serves() -> None:
    """One setting is enough to start: the secret."""
    config = DashboardConfig.from_env({"TALLYGATE_SECRET": SECRET})
    assert ("127.0.0.1", 8321) == (config.host, config.port)
    assert "http://127.0.0.1:18123/tallygate" == config.clickhouse.address
    assert "http://127.0.0.1:8321" == config.base_url


def test_a_missing_secret_says_how_to_make_one() -> None:
    """The first error that a newcomer meets must end in a line to copy."""
    with pytest.raises(
        ConfigError, match=r"TALLYGATE_SECRET is not set; allowed: at least 16 characters, .*token_urlsafe"
    ):
        DashboardConfig.from_env({})


def test_all_faults_are_told_at_once() -> None:
    """Four starts for four faults is three too many."""
    environ = {
        "TALLYGATE_SECRET": "short",
        "TALLYGATE_DASHBOARD": "nowhere",
        "TALLYGATE_CLICKHOUSE": "ftp://u:hidden-password@h",
        "TALLYGATE_SESSION_HOURS": "0",
    }
    with pytest.raises(ConfigError) as caught:
        DashboardConfig.from_env(environ)
    text = str(caught.value)
    assert all(name in text for name in environ)
    assert "hidden-password" not in text
    assert "short" not in text.replace("5 characters long", "")


def test_config_never_shows_its_secrets() -> None:
    """It ends up in a log sooner or later."""
    config = DashboardConfig.from_env(
        {"TALLYGATE_SECRET": SECRET, "TALLYGATE_CLICKHOUSE": "http://u:hidden-password@h:1/d"}
    )
    assert SECRET not in repr(config)
    assert "hidden-password" not in repr(config)


@pytest.mark.parametrize("address", ["[::1]:8321", "0.0.0.0:1", "dash.internal:65535"])
def test_addresses_are_read(address: str) -> None:
    """IPv6 in brackets, names and numbers."""
    host, _, port = address.rpartition(":")
    config = DashboardConfig.from_env({"TALLYGATE_SECRET": SECRET, "TALLYGATE_DASHBOARD": address})
    assert (host.strip("[]"), int(port)) == (config.host, config.port)


@pytest.mark.parametrize(
    ("listens", "opens"),
    [
        ("0.0.0.0:8321", "http://127.0.0.1:8321"),
        ("[::]:8321", "http://[::1]:8321"),
        ("[::1]:8321", "http://[::1]:8321"),
        ("dash.internal:80", "http://dash.internal:80"),
    ],
)
def test_base_url_can_be_opened(listens: str, opens: str) -> None:
    """All addresses is where a container listens, and no place that a browser can go to."""
    config = DashboardConfig.from_env({"TALLYGATE_SECRET": SECRET, "TALLYGATE_DASHBOARD": listens})
    assert opens == config.base_url
