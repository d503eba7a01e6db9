"""Hands the outbox to Kafka: an idempotent producer, replaced by a fresh one when it is beyond repair.

Never drops a letter that the broker might still take, and never blocks for longer than it is told.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import Any, Final, Protocol, cast

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from stream.admin import TopicsMismatch, TopicsUnavailable, ensure_topics, fault_of
from stream.config import StreamConfig
from stream.contract.topics import CONTROL, DECISIONS, GRANTS
from stream.outbox import Letter, Outbox

log = logging.getLogger("tallygate.stream")

#: What is handed to the client at once; the rest waits in the outbox, where it is held only once.
_WINDOW_LETTERS: Final = 1_000
_WINDOW_BYTES: Final = 16 * 1024 * 1024
_RETRY_S: Final = 1.0
_PREPARE_TIMEOUT_S: Final = 1.0
#: The broker will say the same however often it is asked.
_HOPELESS: Final = frozenset({KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.INVALID_RECORD, KafkaError._INVALID_ARG})


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


class Courier:
    """Owned by the shipping thread; all callbacks run in `pump`."""

    def __init__(
        self,
        config: StreamConfig,
        client_id: str,
        outbox: Outbox,
        *,
        on_delivered: Callable[[Letter], None],
        on_refused: Callable[[Letter], None],
        make_producer: Callable[[dict[str, Any]], ProducerLike] = confluent_producer,
    ) -> None:
        self._config = config
        self._client_id = client_id
        self._outbox = outbox
        self._on_delivered = on_delivered
        self._on_refused = on_refused
        self._make_producer = make_producer
        self._generation = 0
        self._is_broken = False
        self._given_back: list[int] = []
        self._wait_until_s = 0.0
        self._trouble: str | None = None
        self.partitions: int | None = None
        """Partition count of the grants topic, once the broker has said it."""
        self._producer = self._new_producer()

    @property
    def is_connected(self) -> bool:
        """Whether the broker has answered, and nothing is known to be wrong since."""
        return self.partitions is not None and self._trouble is None

    def pump(self, *, now_s: float, wait_s: float = 0.0) -> None:
        """Send what waits, and take in what the broker has said.

        Args:
            now_s: monotonic time.
            wait_s: longest wait for the broker's word.
        """
        self._act_on_reports(now_s)
        if now_s >= self._wait_until_s and (self.partitions is not None or self._prepare(now_s, wait_s)):
            self._send(now_s)
        self._producer.poll(wait_s)
        self._act_on_reports(now_s)

    def close(self) -> None:
        """Forget what is under way, so that the client ends at once."""
        self._generation += 1
        self._producer.purge(in_queue=True, in_flight=True, blocking=False)
        self._producer.poll(0)

    def _act_on_reports(self, now_s: float) -> None:
        if self._given_back:
            for number in self._given_back:
                self._outbox.give_back(number)
            self._given_back.clear()
            self._wait_until_s = now_s + _RETRY_S
        if self._is_broken:
            self._replace_producer(now_s)

    def _new_producer(self) -> ProducerLike:
        return self._make_producer(
            {
                "bootstrap.servers": self._config.bootstrap,
                "client.id": self._client_id,
                "enable.idempotence": True,
                "acks": "all",
                "compression.type": self._config.compression,
                "linger.ms": 5,
                # A message is given up by us or not at all: the outbox is bounded, and says what it loses.
                "message.timeout.ms": 0,
                "message.max.bytes": self._config.max_message_bytes + 64 * 1024,
                "partitioner": "murmur2",
                "reconnect.backoff.max.ms": 2_000,
                "error_cb": self._on_error,
                # Its own log repeats every attempt; the error callback says it once.
                "log_level": 0,
            }
        )

    def _prepare(self, now_s: float, wait_s: float) -> bool:
        """Find the topics, or create them; a message to a topic that is absent could create it by accident."""
        try:
            topics = self._producer.list_topics(timeout=max(wait_s, _PREPARE_TIMEOUT_S)).topics
            known = {name for name, topic in topics.items() if topic.error is None}
            if not known.issuperset((DECISIONS.name, GRANTS.name, CONTROL.name)):
                ensure_topics(
                    self._config.bootstrap, partitions=self._config.partitions, timeout_s=_PREPARE_TIMEOUT_S * 2
                )
                topics = self._producer.list_topics(timeout=_PREPARE_TIMEOUT_S).topics
            self.partitions = len(topics[GRANTS.name].partitions)
        except KafkaException as error:
            self._is_in_trouble(fault_of(error).str())
        except (TopicsUnavailable, TopicsMismatch) as error:
            self._is_in_trouble(str(error))
        except KeyError:
            self._is_in_trouble(f"topic {GRANTS.name} is not there yet")
        else:
            return True
        self._wait_until_s = now_s + _RETRY_S
        return False

    def _send(self, now_s: float) -> None:
        outbox = self._outbox
        for number, letter in outbox.waiting(_WINDOW_LETTERS - outbox.under_way):
            if outbox.under_way_bytes > _WINDOW_BYTES or self._is_broken:
                return
            where = {} if letter.partition is None else {"partition": letter.partition}
            try:
                self._producer.produce(
                    letter.topic,
                    key=letter.key,
                    value=letter.value,
                    headers=letter.headers,
                    on_delivery=partial(self._on_delivery, self._generation, number),
                    **where,
                )
            except BufferError:
                return
            except KafkaException as error:
                self._take_fault(number, fault_of(error))
                if number in self._given_back:
                    self._wait_until_s = now_s + _RETRY_S
                    return
            else:
                outbox.handed_over(number)

    def _on_delivery(self, generation: int, number: int, error: KafkaError | None, _message: Message | None) -> None:
        if error is None:
            letter = self._outbox.remove(number)
            if letter is not None:
                self._is_well()
                self._on_delivered(letter)
        elif generation == self._generation:
            self._take_fault(number, error)

    def _take_fault(self, number: int, fault: KafkaError) -> None:
        if fault.code() in _HOPELESS:
            letter = self._outbox.remove(number)
            if letter is not None:
                log.error("the broker refuses a message of %d bytes for %s: %s", len(letter.value), letter.topic, fault)
                self._on_refused(letter)
            return
        if fault.fatal():
            self._is_broken = True
        if fault.code() in {KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION}:
            self.partitions = None
        self._is_in_trouble(fault.str())
        self._given_back.append(number)

    def _on_error(self, fault: KafkaError) -> None:
        if fault.fatal():
            self._is_broken = True
        self._is_in_trouble(fault.str())

    def _replace_producer(self, now_s: float) -> None:
        log.warning("the Kafka client cannot go on (%s): a fresh one sends again what was under way", self._trouble)
        old = self._producer
        self._generation += 1
        self._outbox.reset()
        self._is_broken = False
        self._wait_until_s = now_s + _RETRY_S
        self._producer = self._new_producer()
        old.purge(in_queue=True, in_flight=True, blocking=False)
        old.poll(0)
        self._given_back.clear()

    def _is_in_trouble(self, what: str) -> None:
        if self._trouble is None:
            log.warning(
                "Kafka at %s (TALLYGATE_KAFKA) does not take the record: %s. It is kept in memory and tried again.",
                self._config.bootstrap,
                what,
            )
        self._trouble = what

    def _is_well(self) -> None:
        if self._trouble is not None:
            log.info("Kafka at %s takes the record again; %d messages wait", self._config.bootstrap, len(self._outbox))
            self._trouble = None
