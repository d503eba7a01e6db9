"""Hands the outbox to Kafka: an idempotent producer, replaced by a fresh one as soon as one delivery has failed.

Never drops a letter that the broker might still take, never lets a letter pass an earlier one to the same partition,
and never blocks for longer than it is told.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, Message

from stream.admin import TopicsMismatch, TopicsUnavailable, ensure_topics, fault_of
from stream.client import ProducerLike, confluent_producer, producer_settings
from stream.config import StreamConfig
from stream.contract.topics import CONTROL, DECISIONS, GRANTS
from stream.outbox import Letter, Outbox

log = logging.getLogger("tallygate.stream")

#: What is handed to the client at once; the rest waits in the outbox, where it is held only once.
_WINDOW_LETTERS: Final = 1_000
_WINDOW_BYTES: Final = 16 * 1024 * 1024
_RETRY_S: Final = 1.0
_PREPARE_TIMEOUT_S: Final = 1.0
#: How often, and for how long each time, a client that is given up may still say what became of its letters.
_LAST_POLLS: Final = 10
_LAST_POLL_S: Final = 0.05
#: The broker will say the same however often it is asked, at least of a message that comes alone.
_HOPELESS: Final = frozenset(
    {
        KafkaError.MSG_SIZE_TOO_LARGE,
        KafkaError.RECORD_LIST_TOO_LARGE,
        KafkaError.INVALID_RECORD,
        KafkaError._INVALID_ARG,
    }
)
_OURS: Final = (DECISIONS.name, GRANTS.name, CONTROL.name)
_PURGED: Final = frozenset({KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT})
_TOPIC_GONE: Final = frozenset(
    {KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION}
)


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
        make_topics: Callable[..., None] = ensure_topics,
    ) -> None:
        self._config = config
        self._client_id = client_id
        self._outbox = outbox
        self._on_delivered = on_delivered
        self._on_refused = on_refused
        self._make_producer = make_producer
        self._make_topics = make_topics
        self._generation = 0
        self._is_broken = False
        self._is_taking_back = False
        self._sends_alone = False
        self._shall_send_alone = False
        self._now_s = 0.0
        self._wait_until_s = 0.0
        self._left_alone: dict[str, float] = {}
        self._failed: set[int] = set()
        self._trouble: str | None = None
        self.partitions: int | None = None
        """Partition count of the grants topic, once the broker has said it."""
        self._producer = self._new_producer()

    @property
    def is_connected(self) -> bool:
        """Whether the broker has answered, and nothing is known to be wrong since."""
        return self.partitions is not None and self._trouble is None

    @property
    def is_in_trouble(self) -> bool:
        """Whether something is known to be wrong."""
        return self._trouble is not None

    def pump(self, *, now_s: float, wait_s: float = 0.0, prepare_s: float = _PREPARE_TIMEOUT_S) -> None:
        """Send what waits, and take in what the broker has said.

        Args:
            now_s: monotonic time.
            wait_s: longest wait for the broker's word.
            prepare_s: longest wait for its list of topics, if not known yet; making them may take four times it.
        """
        self._now_s = now_s
        self._poll(0.0)
        self._replace_if_broken()
        if now_s >= self._wait_until_s and (self.partitions is not None or self._prepare(now_s, prepare_s)):
            self._send(now_s)
        self._poll(wait_s)
        self._replace_if_broken()

    def start_afresh(self) -> None:
        """Take back what the client has not sent yet; what is in flight meanwhile may be on the log, or not."""
        self._is_taking_back = True
        self._producer.purge(in_queue=True, in_flight=False, blocking=False)
        self._drain()
        self._is_taking_back = False
        self._is_broken = True
        self._replace_if_broken()
        self._wait_until_s = 0.0

    def close(self) -> None:
        """Forget what is under way, so that the client ends at once."""
        self._generation += 1
        self._producer.purge(in_queue=True, in_flight=True, blocking=False)
        self._poll(0.0)

    def _poll(self, wait_s: float) -> None:
        try:
            self._producer.poll(wait_s)
        except KafkaException as error:
            # What is fatal the client raises here; all else it gives to `error_cb`. That it lost what we took back, and
            # so can guarantee no order any more, is no trouble.
            if not self._is_taking_back:
                self._on_error(fault_of(error))

    def _new_producer(self) -> ProducerLike:
        return self._make_producer(
            producer_settings(self._config, self._client_id, on_error=self._on_error, alone=self._shall_send_alone)
        )

    def _prepare(self, now_s: float, patience_s: float) -> bool:
        """Find the topics, or create them; a message to a topic that is absent could create it by accident."""
        try:
            counts = self._partition_counts(patience_s)
            if not all(counts):
                self._make_topics(self._config.bootstrap, partitions=self._config.partitions, timeout_s=patience_s)
                counts = self._partition_counts(patience_s)
        except KafkaException as error:
            self._say_trouble(fault_of(error).str())
        except (TopicsUnavailable, TopicsMismatch) as error:
            self._say_trouble(str(error))
        else:
            if all(counts):
                self.partitions = counts[_OURS.index(GRANTS.name)]
                return True
            self._say_trouble(f"not all of {', '.join(_OURS)} are there yet")
        self._wait_until_s = now_s + _RETRY_S
        return False

    def _partition_counts(self, timeout_s: float) -> list[int]:
        """Of our topics in their order; 0 for one that is not there, or not yet."""
        topics = self._producer.list_topics(timeout=timeout_s).topics
        found = (topics.get(name) for name in _OURS)
        return [len(topic.partitions) if topic is not None and topic.error is None else 0 for topic in found]

    def _send(self, now_s: float) -> None:
        outbox = self._outbox
        self._left_alone = {topic: until_s for topic, until_s in self._left_alone.items() if now_s < until_s}
        for number, letter in outbox.waiting(_WINDOW_LETTERS - outbox.under_way, without=self._left_alone):
            if outbox.under_way_bytes > _WINDOW_BYTES:
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
                if not self._is_refused(number, letter, fault_of(error)):
                    self._wait_until_s = now_s + _RETRY_S
                    self._is_held_up(number, fault_of(error))
                    return
            else:
                outbox.handed_over(number)

    def _on_delivery(self, generation: int, number: int, error: KafkaError | None, _message: Message | None) -> None:
        if error is None:
            letter = self._outbox.remove(number)
            if letter is not None:
                self._failed.discard(number)
                self._is_well()
                self._on_delivered(letter)
        elif generation == self._generation:
            self._on_failure(number, error)

    def _on_failure(self, number: int, fault: KafkaError) -> None:
        """A letter came back. Whatever it was, this client sends nothing more: what follows would pass the letter."""
        letter = self._outbox.letter(number)
        if letter is None:
            return
        if fault.code() in _HOPELESS and not self._sends_alone:
            self._is_broken = True
            self._outbox.give_back(number)
            if not self._shall_send_alone:
                self._shall_send_alone = True
                log.warning("the broker refuses a batch for %s (%s): messages go alone now", letter.topic, fault.str())
        elif fault.code() in _PURGED:
            self._outbox.give_back(number, never_left=fault.code() == KafkaError._PURGE_QUEUE)
        elif not self._is_refused(number, letter, fault):
            self._is_broken = True
            self._outbox.give_back(number)
            self._left_alone[letter.topic] = self._now_s + _RETRY_S
            self._is_held_up(number, fault)

    def _is_refused(self, number: int, letter: Letter, fault: KafkaError) -> bool:
        """Whether no broker will ever take the letter; then it is gone, and what it carried counts as lost."""
        has_no_place = letter.partition is not None and letter.partition >= (self.partitions or letter.partition + 1)
        if fault.code() not in _HOPELESS and not (fault.code() in _TOPIC_GONE and has_no_place):
            return False
        self._outbox.remove(number)
        self._failed.discard(number)
        log.error("the broker refuses a message of %d bytes for %s: %s", len(letter.value), letter.topic, fault)
        self._on_refused(letter)
        return True

    def _is_held_up(self, number: int, fault: KafkaError) -> None:
        self._failed.add(number)
        if fault.code() in _TOPIC_GONE:
            self.partitions = None
        self._on_error(fault)

    def _on_error(self, fault: KafkaError) -> None:
        if fault.fatal():
            self._is_broken = True
        self._say_trouble(fault.str())

    def _drain(self) -> None:
        """Let the client say for a moment what became of its letters."""
        for _ in range(_LAST_POLLS):
            self._poll(0.0)
            if not self._outbox.under_way:
                return
            self._poll(_LAST_POLL_S)

    def _replace_if_broken(self) -> None:
        if not self._is_broken:
            return
        old = self._producer
        old.purge(in_queue=True, in_flight=True, blocking=False)
        self._drain()
        # If no fresh one can be made, the next round tries again.
        self._producer = self._new_producer()
        self._sends_alone = self._shall_send_alone
        self._generation += 1
        self._is_broken = False
        self._outbox.reset()
        if not self._left_alone or self.partitions is None:
            self._wait_until_s = self._now_s + _RETRY_S

    def _say_trouble(self, what: str) -> None:
        self._outbox.doubt()
        if self._trouble is None:
            log.warning(
                "Kafka at %s (TALLYGATE_KAFKA) does not take the record: %s. It is kept and tried again.",
                self._config.bootstrap,
                what,
            )
        self._trouble = what

    def _is_well(self) -> None:
        if self._trouble is not None and not self._failed:
            log.info("Kafka at %s takes the record again; %d messages wait", self._config.bootstrap, len(self._outbox))
            self._trouble = None
