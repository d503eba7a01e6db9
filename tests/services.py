"""Real engines for tests: an address in the environment, a container, a process of our own, or a skip with its reason.

With ``REQUIRE_SERVICES=1`` a skip is a failure. Imported by ``tests/conftest.py``; every engine starts at its first
use, once a session, on a random port of 127.0.0.1, and is started again if a test has killed it.

Fixtures: ``valkey_url`` (session) · ``fresh_valkey`` (own server per test) · ``kafka_broker`` (both kinds, no topics
and no groups at the start of a test) · ``apache_broker``, ``embedded_broker`` (one kind) · ``clickhouse_dsn``
(session) · ``database_dsn`` (a new database per test).
"""

from __future__ import annotations

import os
import urllib.parse
import urllib.request
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn, TypeVar

import pytest

from tallygate.engines.apache_kafka import start_apache_kafka
from tallygate.engines.clickhouse import ClickHouse, start_clickhouse
from tallygate.engines.errors import EngineError, EngineMissing
from tallygate.engines.kafka import BrokerKind, KafkaBroker
from tallygate.engines.process import Child
from tallygate.engines.tansu import start_tansu
from tallygate.engines.valkey import Valkey, start_valkey
from tests import containers
from tests.kafka_cleaning import clear_broker
from tests.processes import freeze, is_running, kill, thaw, wait_until

__all__ = [
    "KafkaService",
    "apache_broker",
    "clickhouse_dsn",
    "database_dsn",
    "embedded_broker",
    "engines",
    "freeze",
    "fresh_valkey",
    "is_running",
    "kafka_broker",
    "kill",
    "thaw",
    "valkey_url",
    "wait_until",
]

EngineT = TypeVar("EngineT")


@dataclass(frozen=True, slots=True)
class KafkaService:
    """A broker that a test may use as its own."""

    bootstrap: str
    kind: BrokerKind
    process_id: int | None = None

    @property
    def pid(self) -> int:
        """The broker's process id; a broker that we did not start has none, and the test is skipped."""
        if self.process_id is None:
            unavailable("this test ends or freezes the broker, and so needs one that it started itself")
        return self.process_id


def unavailable(reason: str) -> NoReturn:
    """Skip the test, or fail it where services are required."""
    if os.environ.get("REQUIRE_SERVICES") == "1":
        pytest.fail(f"REQUIRE_SERVICES=1, but {reason}", pytrace=False)
    pytest.skip(reason)


class Engines:
    """The engines of one test session, each started at its first use."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._valkey: Valkey | None = None
        self._apache: KafkaBroker | None = None
        self._clickhouse: ClickHouse | None = None
        self._apache_starts = 0

    def valkey(self) -> str:
        """A URL of the shared Valkey."""
        given = os.environ.get("TALLYGATE_TEST_OWNER_URL") or containers.valkey_url()
        if given:
            return given
        if self._valkey is None or _ended(self._valkey.child):
            self._valkey = _or_skip(lambda: start_valkey(log_dir=self._fresh("valkey")))
        return self._valkey.url

    def apache_kafka(self) -> KafkaService:
        """The shared Apache Kafka."""
        given = os.environ.get("TALLYGATE_TEST_KAFKA") or containers.kafka_bootstrap()
        if given:
            return KafkaService(given, "apache")
        if self._apache is None or _ended(self._apache.child):
            self._apache = _or_skip(lambda: start_apache_kafka(self._fresh("kafka")))
        return KafkaService(self._apache.bootstrap, "apache", self._apache.pid)

    def clickhouse(self) -> str:
        """The DSN of the shared ClickHouse, database ``default``."""
        given = os.environ.get("TALLYGATE_TEST_CLICKHOUSE") or containers.clickhouse_dsn()
        if given:
            return given
        if self._clickhouse is None or _ended(self._clickhouse.child):
            self._clickhouse = _or_skip(lambda: start_clickhouse(self._fresh("clickhouse")))
        return self._clickhouse.dsn_for("default")

    def stop(self) -> None:
        """End whatever was started."""
        for engine in (self._valkey, self._apache, self._clickhouse):
            if engine is not None:
                engine.stop()

    def _fresh(self, name: str) -> Path:
        folder = self._folder / f"{name}-{uuid.uuid4().hex[:6]}"
        folder.mkdir(parents=True)
        return folder


def _ended(child: Child) -> bool:
    """Whether a test has ended the engine; its process is then reaped by asking."""
    return child.exit_code() is not None


def _or_skip(start: Callable[[], EngineT]) -> EngineT:
    try:
        return start()
    except EngineMissing as error:
        unavailable(str(error))
    except EngineError as error:
        pytest.fail(str(error), pytrace=False)


@pytest.fixture(scope="session")
def engines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engines]:
    """All engines of the session."""
    running = Engines(tmp_path_factory.mktemp("engines"))
    yield running
    running.stop()


@pytest.fixture(scope="session")
def valkey_url(engines: Engines) -> str:
    """A Valkey or Redis shared by the session: use keys of your own."""
    return engines.valkey()


@pytest.fixture
def fresh_valkey(tmp_path: Path) -> Iterator[Valkey]:
    """A Valkey of the test's own, empty, which it may freeze or kill."""
    server = _or_skip(lambda: start_valkey(log_dir=tmp_path))
    yield server
    server.stop()


@pytest.fixture(params=["apache", "embedded"])
def kafka_broker(request: pytest.FixtureRequest) -> KafkaService:
    """A broker without topics and groups; the test runs once on Apache Kafka and once on the embedded one."""
    service: KafkaService = request.getfixturevalue(f"{request.param}_broker")
    return service


@pytest.fixture
def apache_broker(engines: Engines) -> KafkaService:
    """Apache Kafka without topics and groups."""
    service = engines.apache_kafka()
    clear_broker(service.bootstrap)
    return service


@pytest.fixture
def embedded_broker(tmp_path: Path) -> Iterator[KafkaService]:
    """An embedded broker of the test's own."""
    broker = _or_skip(lambda: start_tansu(log_dir=tmp_path))
    yield KafkaService(broker.bootstrap, "embedded", broker.pid)
    broker.stop()


@pytest.fixture(scope="session")
def clickhouse_dsn(engines: Engines) -> str:
    """A ClickHouse shared by the session; its DSN names the database ``default``."""
    return engines.clickhouse()


@pytest.fixture
def database_dsn(engines: Engines) -> Iterator[str]:
    """The DSN of a new, empty database, dropped after the test."""
    server = urllib.parse.urlsplit(engines.clickhouse())
    name = f"test_{uuid.uuid4().hex[:12]}"
    _command(server, f"CREATE DATABASE {name} ENGINE = Atomic")
    yield server._replace(path=f"/{name}").geturl()
    # A test may have killed the server, and with it the database.
    if _answers(server):
        _command(server, f"DROP DATABASE IF EXISTS {name} SYNC")


def _command(server: urllib.parse.SplitResult, statement: str) -> None:
    request = urllib.request.Request(_base_url(server), data=statement.encode(), method="POST")
    if server.username:
        request.add_header("X-ClickHouse-User", urllib.parse.unquote(server.username))
        request.add_header("X-ClickHouse-Key", urllib.parse.unquote(server.password or ""))
    with urllib.request.urlopen(request, timeout=30) as response:
        response.read()


def _answers(server: urllib.parse.SplitResult) -> bool:
    try:
        with urllib.request.urlopen(f"{_base_url(server)}ping", timeout=5) as response:
            return bool(response.status == 200)
    except OSError:
        return False


def _base_url(server: urllib.parse.SplitResult) -> str:
    return f"{server.scheme}://{server.hostname}:{server.port}/"
