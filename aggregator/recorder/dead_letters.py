"""The topic of messages that could not be read: they go there as they were, with the reason in the headers.

Never decides what is unreadable, and never drops a message: the row in `dead_letters` is the record, this is its copy
for whoever watches the log.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from aggregator.broker import LogUnavailable
from aggregator.core.record.letters import DeadLetter
from stream.contract.topics import DEAD_LETTERS

#: Most letters at a time. The client has room for ten times as many, and for the bytes of a whole flush.
MAX_LETTERS = 10_000
_DELIVERY_TIMEOUT_S = 30.0


class DeadLetterTopic:
    """Sends dead letters. Used by one thread."""

    def __init__(self, bootstrap: str, log: logging.Logger) -> None:
        self._bootstrap = bootstrap
        self._log = log
        self._producer: Producer | None = None

    def send(self, letters: Sequence[DeadLetter]) -> None:
        """Return once all are delivered. One that the topic cannot hold is only logged: its row has it.

        Raises:
            LogUnavailable: the broker did not take them in time; send them again.
            ValueError: more letters than the client has room for.
        """
        if len(letters) > MAX_LETTERS:
            raise ValueError(f"{len(letters):,} letters at once; allowed: at most {MAX_LETTERS:,}")
        if not letters:
            return
        producer = self._connected()
        faults: list[KafkaError] = []

        def delivered(error: KafkaError | None, _message: Message) -> None:
            if error is not None:
                faults.append(error)

        for letter in letters:
            self._produce(producer, letter, delivered)
        left = producer.flush(_DELIVERY_TIMEOUT_S)
        if left or faults:
            producer.purge()
            reason = faults[0].str() if faults else f"{left} not delivered in {_DELIVERY_TIMEOUT_S:.0f} s"
            raise LogUnavailable(f"Kafka at {self._bootstrap} (TALLYGATE_KAFKA) does not take dead letters: {reason}")

    def _produce(
        self, producer: Producer, letter: DeadLetter, delivered: Callable[[KafkaError | None, Message], None]
    ) -> None:
        headers: list[tuple[str, str | bytes]] = [
            ("reason", letter.reason.encode()),
            ("topic", letter.topic.encode()),
            ("partition", str(letter.log_partition).encode()),
            ("offset", str(letter.log_offset).encode()),
        ]
        try:
            producer.produce(
                DEAD_LETTERS.name, letter.payload, letter.key or None, headers=headers, on_delivery=delivered
            )
        except (KafkaException, BufferError) as error:
            self._log.warning(
                "dead letter %s[%d]@%d stands in the table only, the topic does not take it: %s",
                letter.topic,
                letter.log_partition,
                letter.log_offset,
                error,
            )

    def _connected(self) -> Producer:
        if self._producer is None:
            self._producer = Producer(
                {
                    "bootstrap.servers": self._bootstrap,
                    "acks": "all",
                    "enable.idempotence": True,
                    "message.max.bytes": 20_971_520,
                    "delivery.timeout.ms": int(_DELIVERY_TIMEOUT_S * 1000),
                    "log_level": 2,
                }
            )
        return self._producer
