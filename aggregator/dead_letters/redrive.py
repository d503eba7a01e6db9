"""Gives a letter to the log again: to its own topic and partition, where both readers take it as any other message.

It counts once however often that is done, because what it states stands under its own identity. Refuses what the
recorder would only set aside again.
"""

from __future__ import annotations

from typing import Protocol

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from aggregator.broker import LogUnavailable
from aggregator.core.record.pending import Pending
from aggregator.dead_letters.letters import StoredLetter

_DELIVERY_TIMEOUT_S = 30.0


class Unreadable(Exception):
    """The bytes would become a dead letter again; says why."""


class Log(Protocol):
    """Where messages go."""

    def put(self, topic: str, partition: int, key: bytes, value: bytes) -> int:
        """Append one message and return its offset.

        Raises:
            LogUnavailable: the broker did not take it.
        """
        ...


class KafkaLog:
    """`Log` on a broker."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap

    def put(self, topic: str, partition: int, key: bytes, value: bytes) -> int:
        """See `Log.put`."""
        producer = Producer(
            {
                "bootstrap.servers": self._bootstrap,
                "acks": "all",
                "enable.idempotence": True,
                "message.max.bytes": 20_971_520,
                "delivery.timeout.ms": int(_DELIVERY_TIMEOUT_S * 1000),
                "log_level": 2,
            }
        )
        offsets: list[int] = []
        faults: list[str] = []

        def delivered(error: KafkaError | None, message: Message) -> None:
            if error is None:
                offsets.append(message.offset() or 0)
            else:
                faults.append(error.str())

        try:
            producer.produce(topic, value, key or None, partition, on_delivery=delivered)
        except KafkaException as error:
            faults.append(str(error))
        producer.flush(_DELIVERY_TIMEOUT_S + 1)
        if not offsets:
            reason = faults[0] if faults else f"not delivered in {_DELIVERY_TIMEOUT_S:.0f} s"
            raise LogUnavailable(f"Kafka at {self._bootstrap} (TALLYGATE_KAFKA) did not take it: {reason}")
        return offsets[0]


def redrive(log: Log, letter: StoredLetter, payload: bytes, *, now_us: int) -> int:
    """Put the letter's message on its topic again, with these bytes; returns its new offset.

    Raises:
        Unreadable: the recorder does not read these bytes either.
        LogUnavailable: the broker did not take it; nothing was changed.
    """
    place = letter.place
    try:
        reason = Pending().take(
            place.topic, place.partition, 0, key=letter.key, value=payload, seen_at_us=now_us, appended_us=now_us
        )
    except ValueError as fault:
        raise Unreadable(str(fault)) from fault
    if reason is not None:
        raise Unreadable(reason)
    return log.put(place.topic, place.partition, letter.key, payload)
