"""Engines in containers, for machines where a Docker engine answers and the image is there; None everywhere else.

Nothing is ever pulled: a test run must not depend on a registry.
"""

from __future__ import annotations

import atexit
import functools
import shutil
import subprocess
import urllib.request

from tallygate.engines.kafka import answers_kafka
from tallygate.engines.ports import free_port
from tallygate.engines.process import accepts_connections
from tests.processes import wait_until

VALKEY_IMAGE = "valkey/valkey:9.1.2-alpine"
KAFKA_IMAGE = "apache/kafka:4.3.1"
CLICKHOUSE_IMAGE = "clickhouse/clickhouse-server:26.9"
_HOST = "127.0.0.1"
_READY_S = 60.0


@functools.cache
def valkey_url() -> str | None:
    """A Redis URL."""
    port = _start(VALKEY_IMAGE, 6379, free_port(), {})
    if port is None:
        return None
    wait_until(lambda: accepts_connections(_HOST, port), _READY_S, what="Valkey in a container")
    return f"redis://{_HOST}:{port}/0"


@functools.cache
def kafka_bootstrap() -> str | None:
    """A bootstrap address of Apache Kafka."""
    port = free_port()
    settings = {
        "KAFKA_NODE_ID": "1",
        "KAFKA_PROCESS_ROLES": "broker,controller",
        "KAFKA_LISTENERS": "PLAINTEXT://0.0.0.0:9092,CONTROLLER://127.0.0.1:9093",
        "KAFKA_ADVERTISED_LISTENERS": f"PLAINTEXT://{_HOST}:{port}",
        "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "KAFKA_CONTROLLER_LISTENER_NAMES": "CONTROLLER",
        "KAFKA_CONTROLLER_QUORUM_VOTERS": "1@127.0.0.1:9093",
        "KAFKA_OFFSETS_TOPIC_REPLICATION_FACTOR": "1",
        "KAFKA_TRANSACTION_STATE_LOG_REPLICATION_FACTOR": "1",
        "KAFKA_TRANSACTION_STATE_LOG_MIN_ISR": "1",
        "KAFKA_GROUP_INITIAL_REBALANCE_DELAY_MS": "0",
        "KAFKA_GROUP_MIN_SESSION_TIMEOUT_MS": "1000",
        "KAFKA_AUTO_CREATE_TOPICS_ENABLE": "false",
    }
    if _start(KAFKA_IMAGE, 9092, port, settings) is None:
        return None
    wait_until(lambda: answers_kafka(_HOST, port), _READY_S, what="Kafka in a container")
    return f"{_HOST}:{port}"


@functools.cache
def clickhouse_dsn() -> str | None:
    """A ClickHouse DSN of the database ``default``."""
    port = _start(CLICKHOUSE_IMAGE, 8123, free_port(), {"CLICKHOUSE_SKIP_USER_SETUP": "1"})
    if port is None:
        return None
    wait_until(lambda: _pings(port), _READY_S, what="ClickHouse in a container")
    return f"http://{_HOST}:{port}/default"


def _start(image: str, inner_port: int, port: int, environ: dict[str, str]) -> int | None:
    if not _image_is_here(image):
        return None
    from testcontainers.core.config import testcontainers_config  # noqa: PLC0415  slow to import, and seldom of use
    from testcontainers.core.container import DockerContainer  # noqa: PLC0415  the same

    # The reaper is an image of its own, which would have to be pulled.
    testcontainers_config.ryuk_disabled = True

    container = DockerContainer(image).with_bind_ports(inner_port, port)
    for key, value in environ.items():
        container.with_env(key, value)
    container.start()
    atexit.register(container.stop)
    return port


@functools.cache
def _image_is_here(image: str) -> bool:
    docker = shutil.which("docker")
    if docker is None:
        return False
    asked = subprocess.run([docker, "image", "inspect", image], capture_output=True, timeout=10, check=False)
    return asked.returncode == 0


def _pings(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://{_HOST}:{port}/ping", timeout=2) as response:
            return bool(response.status == 200)
    except OSError:
        return False
