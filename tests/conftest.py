"""What all tests share: Hypothesis profiles, an environment without the developer's own settings, the engines."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile

import hypothesis
import pytest

from tests.services import (
    apache_broker,
    clickhouse_dsn,
    database_dsn,
    embedded_broker,
    engines,
    fresh_valkey,
    kafka_broker,
    valkey_url,
)

__all__ = [
    "apache_broker",
    "clickhouse_dsn",
    "database_dsn",
    "embedded_broker",
    "engines",
    "fresh_valkey",
    "kafka_broker",
    "valkey_url",
]

_SERVICE_FIXTURES = frozenset(__all__)

# No deadline: the machine may be busy, and a slow example is not a wrong one.
hypothesis.settings.register_profile("dev", deadline=None, max_examples=50)
hypothesis.settings.register_profile("ci", deadline=None, max_examples=200, print_blob=True)
hypothesis.settings.load_profile("ci" if os.environ.get("CI") else "dev")

for _name in [name for name in os.environ if name.startswith("TALLYGATE_") and not name.startswith("TALLYGATE_TEST_")]:
    del os.environ[_name]
# A process that a test kills would leave its record to those of later tests: whoever wants a spool says where.
os.environ["TALLYGATE_SPOOL_DIR"] = ""
# Nor does one that is started without any setting write into the developer's home.
os.environ["XDG_STATE_HOME"] = tempfile.mkdtemp(prefix="tallygate-tests-state-")
atexit.register(shutil.rmtree, os.environ["XDG_STATE_HOME"], ignore_errors=True)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark every test that uses an engine, so that ``-m "not services"`` runs without any."""
    for item in items:
        if _SERVICE_FIXTURES & set(getattr(item, "fixturenames", ())):
            item.add_marker("services")
