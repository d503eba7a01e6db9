"""The Kafka client that a courier uses: the part of it that we call, and how it is set up. Holds no state."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, cast

from confluent_kafka import KafkaError, Producer

from stream.config import StreamConfig


class ProducerLike(Protocol):
    """The part of confluent-kafka's producer that is used here."""

    def produce(self, topic: str, **message: Any) -> None:
        """Queue one message."""
        ...

    def poll(self, timeout: float) -> int:
        """Serve callbacks."""
        ...

    def purge(self, *, in_queue: bool, in_flight: bool, blocking: bool) -> None:
        """Forget all messages."""
        ...

    def list_topics(self, *, timeout: float) -> Any:
        """Ask the broker for its topics."""
        ...


def confluent_producer(settings: dict[str, Any]) -> ProducerLike:
    """The real one."""
    return cast(ProducerLike, Producer(settings))


def producer_settings(
    config: StreamConfig, client_id: str, *, on_error: Callable[[KafkaError], None], alone: bool
) -> dict[str, Any]:
    """How the client is set up.

    Args:
        config: of the copy.
        client_id: what the broker sees.
        on_error: told every fault that is not fatal; a fatal one is raised by `poll`.
        alone: send every message in a request of its own.
    """
    return {
        "bootstrap.servers": config.bootstrap,
        "client.id": client_id,
        "enable.idempotence": True,
        "acks": "all",
        # What has failed must not be passed by what came after it: one request at a time, and none to the topic once
        # one was refused. Readers of a copy's blocks rely on their order.
        "enable.gapless.guarantee": True,
        "max.in.flight.requests.per.connection": 1,
        "compression.type": config.compression,
        "linger.ms": 5,
        # A broker refuses a batch as a whole, for one message that is too long among others that are not.
        "batch.num.messages": 1 if alone else 10_000,
        # A message is given up by us or not at all: the outbox is bounded, and says what it loses.
        "message.timeout.ms": 0,
        "message.max.bytes": config.max_message_bytes + 64 * 1024,
        "partitioner": "murmur2",
        "reconnect.backoff.max.ms": 2_000,
        "error_cb": on_error,
        # Its own log repeats every attempt; the error callback says it once.
        "log_level": 0,
    }
