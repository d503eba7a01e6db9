"""Apache Kafka in KRaft mode on one node, from its Maven artifacts on the installed Java.

``python -m tallygate.engines.apache_kafka install`` fetches the jars once into the user's cache; starting never
downloads anything. For tests, benchmarks and ``tallygate up --broker kafka``; not a way to run Kafka in production.
"""

from __future__ import annotations

import base64
import secrets
import subprocess
import sys
from pathlib import Path

from tallygate.engines.errors import EngineError, EngineFailed, EngineMissing
from tallygate.engines.kafka import HOST, KafkaBroker, answers_kafka
from tallygate.engines.kafka_jars import KAFKA_VERSION, find_program, install_jars, jars_dir
from tallygate.engines.ports import claim_port, free_port
from tallygate.engines.process import Command, spawn

#: The largest batch that the broker takes. A block of 2,000 decisions is far below it.
MESSAGE_MAX_BYTES = 8 * 1024 * 1024
_HEAP_MB = 256
_FORMAT_ATTEMPTS = 5
_FORMAT_TIMEOUT_S = 60

_LOG4J = """\
<?xml version="1.0" encoding="UTF-8"?>
<Configuration status="WARN">
  <Appenders>
    <Console name="out"><PatternLayout pattern="%d{ISO8601} %-5p %c{1}: %m%n"/></Console>
  </Appenders>
  <Loggers>
    <Root level="WARN"><AppenderRef ref="out"/></Root>
  </Loggers>
</Configuration>
"""


def start_apache_kafka(
    data_dir: Path, port: int = 0, *, setting: str = "TALLYGATE_KAFKA", timeout_s: float = 60.0
) -> KafkaBroker:
    """Start a broker on 127.0.0.1 with its log under ``data_dir``; port 0 takes a free one.

    A folder that a broker used before is opened again, also after a kill.

    Raises:
        PortTaken: the port is in use.
        EngineMissing: no Java, or the jars are not installed; says what to run.
        EngineFailed: it ended or did not answer in time.
    """
    java = find_program("java", "Apache Kafka needs Java 17 or newer")
    jars = jars_dir()
    if not jars.is_dir():
        raise EngineMissing(
            f"Apache Kafka {KAFKA_VERSION} is not installed: run `python -m tallygate.engines.apache_kafka install`"
        )
    chosen = claim_port(port, purpose="Apache Kafka", setting=setting, host=HOST)
    data_dir.mkdir(parents=True, exist_ok=True)
    config, log4j = data_dir / "server.properties", data_dir / "log4j2.xml"
    config.write_text(_properties(data_dir, chosen, _controller_port(chosen)))
    log4j.write_text(_LOG4J)
    options = [f"-Dlog4j2.configurationFile={log4j}", "-XX:+UseSerialGC", f"-Xmx{_HEAP_MB}m", "-cp", f"{jars}/*"]
    if not (data_dir / "log" / "meta.properties").exists():
        _format([java, *options], config)
    # Out of memory must end the process, or it would linger without answering.
    argv = [java, "-XX:+ExitOnOutOfMemoryError", *options, "kafka.Kafka", str(config)]
    child = spawn(Command("Apache Kafka", argv, data_dir / "kafka.out"))
    child.wait_ready(lambda: answers_kafka(HOST, chosen), timeout_s=timeout_s)
    return KafkaBroker(child, chosen, "apache")


def _controller_port(broker_port: int) -> int:
    while True:
        port = free_port(HOST)
        if port != broker_port:
            return port


def _properties(data_dir: Path, broker_port: int, controller_port: int) -> str:
    settings = {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.voters": f"1@{HOST}:{controller_port}",
        "controller.listener.names": "CONTROLLER",
        "listeners": f"PLAINTEXT://{HOST}:{broker_port},CONTROLLER://{HOST}:{controller_port}",
        "advertised.listeners": f"PLAINTEXT://{HOST}:{broker_port}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": "PLAINTEXT",
        "log.dirs": str(data_dir / "log"),
        "auto.create.topics.enable": "false",
        "message.max.bytes": str(MESSAGE_MAX_BYTES),
        "replica.fetch.max.bytes": str(MESSAGE_MAX_BYTES),
        "offsets.topic.num.partitions": "4",
        "offsets.topic.replication.factor": "1",
        "transaction.state.log.num.partitions": "4",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "share.coordinator.state.topic.num.partitions": "4",
        "share.coordinator.state.topic.replication.factor": "1",
        "share.coordinator.state.topic.min.isr": "1",
        # One node and a few consumers: nobody else is coming, so a group need not wait before it starts.
        "group.initial.rebalance.delay.ms": "0",
        "group.min.session.timeout.ms": "1000",
        "log.segment.bytes": str(256 * 1024 * 1024),
    }
    return "".join(f"{key}={value}\n" for key, value in settings.items())


def _format(java: list[str], config: Path) -> None:
    """Prepare the log folder.

    Raises:
        EngineFailed: the tool refused; carries what it said.
    """
    said = ""
    for _ in range(_FORMAT_ATTEMPTS):
        # One id in 64 starts with "-", which the tool takes for an option: draw again until one passes.
        cluster_id = base64.urlsafe_b64encode(secrets.token_bytes(16)).decode().rstrip("=")
        argv = [*java, "kafka.tools.StorageTool", "format", "-t", cluster_id, "-c", str(config)]
        try:
            done = subprocess.run(
                argv, capture_output=True, text=True, check=False, timeout=_FORMAT_TIMEOUT_S, stdin=subprocess.DEVNULL
            )
        except subprocess.TimeoutExpired as error:
            raise EngineFailed(f"formatting Kafka's log folder took more than {_FORMAT_TIMEOUT_S} s") from error
        if done.returncode == 0:
            return
        said = (done.stderr or done.stdout).strip()
    raise EngineFailed(f"Kafka's log folder {config.parent} could not be formatted:\n{said}")


def main(argv: list[str] | None = None) -> int:
    """``install``: fetch the jars if they are not there. Returns the exit code."""
    words = sys.argv[1:] if argv is None else argv
    if words != ["install"]:
        sys.stderr.write("usage: python -m tallygate.engines.apache_kafka install\n")
        return 2
    try:
        fetched = install_jars()
    except EngineError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    state = "installed" if fetched else "already installed"
    sys.stdout.write(f"Apache Kafka {KAFKA_VERSION} {state} in {jars_dir().parent}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
