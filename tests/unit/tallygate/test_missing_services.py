"""A service that is not there: skipped at home, a failure where services are required."""

from __future__ import annotations

import pytest

from tests.services import KafkaService, unavailable


def test_missing_service_is_a_skip_with_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    """At home nobody should have to install Kafka to run the rest."""
    monkeypatch.delenv("REQUIRE_SERVICES", raising=False)
    with pytest.raises(pytest.skip.Exception, match="no Java"):
        unavailable("no Java")


def test_missing_service_is_a_failure_where_it_is_required(monkeypatch: pytest.MonkeyPatch) -> None:
    """A gate that silently skips is no gate."""
    monkeypatch.setenv("REQUIRE_SERVICES", "1")
    with pytest.raises(pytest.fail.Exception, match="REQUIRE_SERVICES=1, but no Java"):
        unavailable("no Java")


def test_broker_given_by_address_has_no_pid(monkeypatch: pytest.MonkeyPatch) -> None:
    """A chaos test must never kill a process that it did not start."""
    monkeypatch.delenv("REQUIRE_SERVICES", raising=False)
    with pytest.raises(pytest.skip.Exception):
        _ = KafkaService("kafka.example:9092", "apache").pid
