"""A stand-in for confluent-kafka's producer that a test steers by hand."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from confluent_kafka import KafkaError, KafkaException

from stream.contract.topics import TOPICS


def fault(code: int, *, fatal: bool = False) -> KafkaError:
    """An error as the client reports it."""
    return KafkaError(code, "said by the test", fatal=fatal)


@dataclass
class FakeProducer:
    """Holds what was produced until the test says what became of it."""

    settings: dict[str, Any]
    pending: list[dict[str, Any]] = field(default_factory=list)
    topics: set[str] = field(default_factory=lambda: {topic.name for topic in TOPICS})
    partitions: int = 4
    is_away: bool = False
    room: int = 10_000
    raises: KafkaError | None = None
    delivers: bool = False
    delivers_topics: set[str] = field(default_factory=set)
    in_flight: int = 0
    asked_s: list[float] = field(default_factory=list)
    delivered: list[dict[str, Any]] = field(default_factory=list)
    purged: bool = False
    fatal: KafkaError | None = None
    broken_topics: set[str] = field(default_factory=set)

    def produce(self, topic: str, **message: Any) -> None:
        if self.raises is not None:
            raise KafkaException(self.raises)
        if len(self.pending) >= self.room:
            raise BufferError("Local: Queue full")
        self.pending.append({"topic": topic, **message})

    def poll(self, timeout: float) -> int:
        if self.fatal is not None:
            error, self.fatal = self.fatal, None
            raise KafkaException(error)
        if self.delivers:
            self.deliver(len(self.pending))
        for message in [one for one in self.pending if one["topic"] in self.delivers_topics]:
            self.pending.remove(message)
            self.delivered.append(message)
            message["on_delivery"](None, None)
        return 0

    def purge(self, *, in_queue: bool, in_flight: bool, blocking: bool) -> None:
        self.purged = self.purged or in_flight
        flying, self.pending = self.pending[: self.in_flight], self.pending[self.in_flight :]
        if in_queue and not in_flight:
            self.die()
        if in_queue:
            self.fail(len(self.pending), fault(KafkaError._PURGE_QUEUE))
        self.pending[:0] = flying
        if in_flight:
            self.fail(len(flying), fault(KafkaError._PURGE_INFLIGHT))

    def list_topics(self, *, timeout: float) -> Any:
        self.asked_s.append(timeout)
        if self.is_away:
            raise KafkaException(fault(KafkaError._TRANSPORT))
        listed = {
            name: SimpleNamespace(
                error=fault(KafkaError.LEADER_NOT_AVAILABLE) if name in self.broken_topics else None,
                partitions={} if name in self.broken_topics else dict.fromkeys(range(self.partitions)),
            )
            for name in self.topics
        }
        return SimpleNamespace(topics=listed)

    def deliver(self, count: int) -> None:
        """The broker acknowledges the oldest `count` messages."""
        for _ in range(count):
            message = self.pending.pop(0)
            self.delivered.append(message)
            message["on_delivery"](None, None)

    def die(self) -> None:
        """The client ends with a fatal error, which the real one raises from `poll`."""
        self.fatal = fault(KafkaError._FENCED, fatal=True)

    def fail(self, count: int, error: KafkaError) -> None:
        """The client gives up the oldest `count` messages."""
        for _ in range(count):
            self.pending.pop(0)["on_delivery"](error, None)
