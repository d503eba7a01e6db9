"""What both brokers have in common: the handle, and the question whether one answers. Starts nothing."""

from __future__ import annotations

import socket
import struct
from dataclasses import dataclass
from typing import Literal

from tallygate.engines.process import Child

HOST = "127.0.0.1"

#: ``apache`` is Apache Kafka in KRaft mode; ``embedded`` is the single binary that keeps its log in memory.
BrokerKind = Literal["apache", "embedded"]

_API_VERSIONS = 18
_MAX_ANSWER_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class KafkaBroker:
    """A running broker."""

    child: Child
    port: int
    kind: BrokerKind

    @property
    def bootstrap(self) -> str:
        """``host:port``, as ``TALLYGATE_KAFKA`` takes it."""
        return f"{HOST}:{self.port}"

    @property
    def pid(self) -> int:
        """The broker's process id."""
        return self.child.pid

    def stop(self) -> None:
        """End the broker; safe to call twice."""
        # The embedded broker would wait seconds for its clients to leave, and has nothing to save.
        self.child.stop(timeout_s=10.0 if self.kind == "apache" else 0.2)


def answers_kafka(host: str, port: int) -> bool:
    """Whether a broker there answers an ApiVersions request within a second."""
    request = struct.pack(">hhih", _API_VERSIONS, 0, 1, -1)
    try:
        with socket.create_connection((host, port), timeout=1) as connection:
            connection.sendall(struct.pack(">i", len(request)) + request)
            head = connection.recv(8, socket.MSG_WAITALL)
    except OSError:
        return False
    if len(head) < 8:
        return False
    size: int
    correlation_id: int
    size, correlation_id = struct.unpack(">ii", head)
    return correlation_id == 1 and 0 < size < _MAX_ANSWER_BYTES
