"""The recorder's side of the broker: one consumer of three topics, committed by hand.

Never commits an offset that it was not told to, and never interprets a message.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message, TopicPartition

from aggregator.broker import LogUnavailable

#: Fetched ahead of the recorder, for each partition: about half a second of draining.
_QUEUED_KB = 16_384
_AWAY = frozenset({KafkaError._ALL_BROKERS_DOWN, KafkaError._TRANSPORT, KafkaError._RESOLVE, KafkaError._TIMED_OUT})
#: How long to ask where the group stands, before looking whether to go on at all.
_COMMITTED_TIMEOUT_S = 2.0
#: No waiting helps against these.
_REFUSED = frozenset(
    {
        KafkaError._AUTHENTICATION,
        KafkaError._FATAL,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError.SASL_AUTHENTICATION_FAILED,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
    }
)


class Place(NamedTuple):
    """One message's place in the log."""

    topic: str
    partition: int
    offset: int


class LogMessage(NamedTuple):
    """One message as it came."""

    place: Place
    key: bytes
    value: bytes


class LogReader:
    """Reads the log from where the group stands. Used by one thread.

    Args:
        bootstrap: ``host:port``, several separated by commas.
        group: consumer group, whose committed offsets say what is recorded.
        topics: what to read.
        session_timeout_ms: after so long without a sign of life another member takes over.
        on_revoked: called inside `read`, when partitions were taken away: what was read of them and is not committed
            yet belongs to somebody else now.
        log: where the client's own messages and changes of state go.
    """

    def __init__(
        self,
        bootstrap: str,
        group: str,
        topics: Sequence[str],
        *,
        session_timeout_ms: int,
        on_revoked: Callable[[], None],
        log: logging.Logger,
    ) -> None:
        self._bootstrap = bootstrap
        self._on_revoked = on_revoked
        self._log = log
        self._said = ""
        self._paused: list[TopicPartition] = []
        self._rebalanced = True
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "enable.auto.commit": False,
                "enable.auto.offset.store": False,
                "auto.offset.reset": "earliest",
                "session.timeout.ms": session_timeout_ms,
                "heartbeat.interval.ms": max(session_timeout_ms // 5, 300),
                "fetch.wait.max.ms": 100,
                "fetch.queue.backoff.ms": 20,
                "max.partition.fetch.bytes": 8_388_608,
                "queued.max.messages.kbytes": _QUEUED_KB,
                "reconnect.backoff.max.ms": 2_000,
                "error_cb": self._client_error,
                "on_commit": self._committed,
                # The client repeats a lost connection several times a second; `error_cb` says it once.
                "log_level": 2,
            }
        )
        self._consumer.subscribe(list(topics), on_revoke=self._revoked, on_lost=self._revoked)

    def read(self, most: int, timeout_s: float) -> list[LogMessage]:
        """Up to `most` messages, in order within each partition; waits at most `timeout_s` for them.

        Also the sign of life to the group: call it at least every few minutes, while paused too.

        Raises:
            LogUnavailable: the broker refuses this reader for good.
        """
        taken = []
        messages = self._consumer.consume(most, timeout_s)
        if self._rebalanced:
            # Some of these may be left over from before, and would let a commit pass over what comes now.
            self._start_over()
            return []
        for message in messages:
            error = message.error()
            if error is None:
                taken.append(_taken(message))
            else:
                self._client_error(error)
                if error.fatal() or error.code() in _REFUSED:
                    raise LogUnavailable(f"Kafka at {self._bootstrap} (TALLYGATE_KAFKA) refuses: {error.str()}")
        if taken and self._said:
            self._said = ""
            self._log.info("Kafka at %s answers again", self._bootstrap)
        return taken

    def pause(self) -> None:
        """Fetch nothing more until `resume`; `read` then only keeps the place in the group."""
        if not self._paused:
            self._paused = self._consumer.assignment()
            self._consumer.pause(self._paused)

    def resume(self) -> None:
        """Go on where `pause` stopped."""
        paused, self._paused = self._paused, []
        if paused:
            self._consumer.resume(paused)

    def commit(self, next_offsets: Mapping[tuple[str, int], int]) -> None:
        """Say that everything below these offsets is recorded. A failure is logged: a later commit covers it.

        Args:
            next_offsets: (topic, partition) → the first offset that is not covered.
        """
        self._commit(next_offsets, asynchronous=True)

    def leave(self, next_offsets: Mapping[tuple[str, int], int], *, within_s: float) -> bool:
        """Commit these offsets, see to it that they arrive, and leave the group; nothing else may be called after it.

        Returns:
            Whether it was done in time. If not it goes on in a thread that does not keep the process: others are
            given the partitions once the session is over, and read again what was not committed.
        """

        def end() -> None:
            self._commit(next_offsets, asynchronous=False)
            self._consumer.close()

        # The client waits for an answer for a minute, and cannot be told not to.
        ending = threading.Thread(target=end, name="leave-group", daemon=True)
        ending.start()
        ending.join(within_s)
        if ending.is_alive():
            self._log.warning(
                "Kafka at %s does not answer; left without it, what it has not committed is read again", self._bootstrap
            )
        return not ending.is_alive()

    def _commit(self, next_offsets: Mapping[tuple[str, int], int], *, asynchronous: bool) -> None:
        offsets = [TopicPartition(topic, partition, offset) for (topic, partition), offset in next_offsets.items()]
        if not offsets:
            return
        try:
            self._consumer.commit(offsets=offsets, asynchronous=asynchronous)
        except KafkaException as error:
            self._log.warning("offsets not committed, they will be read again: %s", error)

    def _revoked(self, _consumer: Consumer, _partitions: list[TopicPartition]) -> None:
        # The client keeps a partition paused through a rebalance: given back to this reader, it would stay silent.
        self.resume()
        self._rebalanced = True
        self._on_revoked()

    def _start_over(self) -> None:
        """Begin each partition at the group's committed offset, exactly."""
        assigned = self._consumer.assignment()
        if not assigned:
            return
        try:
            committed = self._consumer.committed(assigned, timeout=_COMMITTED_TIMEOUT_S)
        except KafkaException as error:
            self._log.warning(
                "Kafka at %s does not say where the group stands: %s; asking again", self._bootstrap, error
            )
            return
        self._consumer.assign(
            [
                TopicPartition(place.topic, place.partition, place.offset if place.offset >= 0 else OFFSET_BEGINNING)
                for place in committed
            ]
        )
        self._rebalanced = False

    def _committed(self, error: KafkaError | None, _partitions: list[TopicPartition]) -> None:
        if error is not None:
            self._log.warning("offsets not committed, a later commit covers them: %s", error.str())

    def _client_error(self, error: KafkaError) -> None:
        """Say what the client reports: once for an outage, whatever it calls it, and once for each other fault."""
        said = "away" if error.code() in _AWAY else error.str()
        if said == self._said:
            return
        self._said = said
        if said == "away":
            self._log.warning("Kafka at %s does not answer: %s; waiting for it", self._bootstrap, error.str())
        else:
            self._log.warning("Kafka at %s reports: %s", self._bootstrap, error.str())


def _taken(message: Message) -> LogMessage:
    """A message without its client's wrapping; an absent key or value is empty."""
    place = Place(message.topic() or "", message.partition() or 0, message.offset() or 0)
    return LogMessage(place, message.key() or b"", message.value() or b"")
