"""The recorder's side of the broker: one consumer of three topics, committed by hand.

Never commits an offset that it was not told to, and never interprets a message. It begins where the group has
acknowledged, as far as the record agrees (`core.journal.begin_at`).
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    TopicPartition,
)

from aggregator.broker import LogUnavailable
from aggregator.core.record.journal import begin_at
from aggregator.group.view import GroupView
from aggregator.recorder.membership import Membership
from aggregator.recorder.messages import LogMessage, taken_from
from aggregator.recorder.order import Order, Turn
from aggregator.recorder.standing import Standing
from aggregator.store import StoreUnavailable

#: Fetched ahead of the recorder, for each partition: about half a second of draining.
_QUEUED_KB = 16_384
_AWAY = frozenset({KafkaError._ALL_BROKERS_DOWN, KafkaError._TRANSPORT, KafkaError._RESOLVE, KafkaError._TIMED_OUT})
#: How long to ask where the group stands, before looking whether to go on at all.
_COMMITTED_TIMEOUT_S = 2.0
#: Of the time for leaving, what may go by until the group is in a state in which that does no harm.
_SHARE_OF_LEAVING = 0.8
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


class LogReader:
    """Reads the log from where the group stands. Used by one thread.

    Args:
        bootstrap: ``host:port``, several separated by commas.
        group: consumer group, whose committed offsets say what is recorded.
        topics: what to read.
        session_timeout_ms: after so long without a sign of life another member takes over.
        find_standing: says which logs have the topics' names, and how far the record has them.
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
        find_standing: Callable[[], Standing],
        on_revoked: Callable[[], None],
        log: logging.Logger,
    ) -> None:
        self._bootstrap = bootstrap
        self._find_standing = find_standing
        #: Topic → the id of the log that is read under its name.
        self.log_ids: Mapping[str, str] = {}
        self._on_revoked = on_revoked
        self._log = log
        self._said = ""
        self._paused: list[TopicPartition] = []
        self._rebalanced = True
        self._order = Order()
        #: Whether a partition's offsets fell: it is another log than before, or was cut. Nothing more is read of it
        #: until `start_over`.
        self.went_back = False
        self._membership = Membership(
            lambda: Consumer(self._settings(group, session_timeout_ms)),
            GroupView(bootstrap, group, timeout_s=_COMMITTED_TIMEOUT_S),
            topics,
            session_timeout_ms=session_timeout_ms,
            on_revoked=self._revoked,
            log=log,
        )

    def read(self, most: int, timeout_s: float) -> list[LogMessage]:
        """Up to `most` messages, in order within each partition; waits at most `timeout_s` for them.

        Also the sign of life to the group: call it at least every few minutes, while paused too.

        Raises:
            LogUnavailable: the broker refuses this reader for good.
        """
        taken: list[LogMessage] = []
        self._membership.tend()
        messages = self._membership.consumer.consume(most, timeout_s)
        if self._rebalanced:
            # Some of these may be left over from before, and would let a commit pass over what comes now.
            self._start_over()
            return []
        now_s = time.monotonic()
        for message in messages:
            error = message.error()
            if error is None:
                self._take(taken_from(message), taken, now_s)
            else:
                self._client_error(error)
                if error.fatal() or error.code() in _REFUSED:
                    raise LogUnavailable(f"Kafka at {self._bootstrap} (TALLYGATE_KAFKA) refuses: {error.str()}")
        self._ask_again(now_s)
        if taken and self._said:
            self._said = ""
            self._log.info("Kafka at %s answers again", self._bootstrap)
        return taken

    def start_over(self) -> None:
        """Begin again where the group and the record agree: other logs may have the topics' names."""
        self._rebalanced = True

    def _take(self, message: LogMessage, taken: list[LogMessage], now_s: float) -> None:
        turn = self._order.turn(*message.place, now_s)
        if turn is Turn.BACK:
            self.went_back = True
        elif turn is Turn.DUE and not self.went_back:
            taken.append(message)

    def _ask_again(self, now_s: float) -> None:
        """Read again what is due where others came before it; say what the log does not have."""
        for topic, partition, first, last in self._order.passed_over:
            self._log.error("%s[%d]: the log has no offsets %d to %d; passed over", topic, partition, first, last)
        self._order.passed_over.clear()
        if self.went_back:
            return
        for topic, partition, offset in self._order.to_ask(now_s):
            try:
                self._membership.consumer.seek(TopicPartition(topic, partition, offset))
            except KafkaException as error:
                self._log.warning("%s[%d]: offset %d cannot be read again: %s", topic, partition, offset, error)
            # Where it failed, nothing is on its way, and it is asked again after the long time, not at each read.
            self._order.asked(topic, partition, now_s)

    def pause(self) -> None:
        """Fetch nothing more until `resume`; `read` then only keeps the place in the group."""
        if not self._paused:
            self._paused = self._membership.consumer.assignment()
            self._membership.consumer.pause(self._paused)

    def resume(self) -> None:
        """Go on where `pause` stopped."""
        paused, self._paused = self._paused, []
        if paused:
            self._membership.consumer.resume(paused)

    def commit(self, next_offsets: Mapping[tuple[str, int], int]) -> None:
        """Say that everything below these offsets is recorded. A failure is logged: a later commit covers it.

        Args:
            next_offsets: (topic, partition) → the first offset that is not covered.
        """
        self._commit(next_offsets, asynchronous=True)

    def leave(self, next_offsets: Mapping[tuple[str, int], int], *, within_s: float) -> bool:
        """Commit these offsets, see to it that they arrive, and leave the group; nothing else may be called after it.

        Returns:
            Whether it was done in time, and could be without harm to the group. If not, what is left to do goes on in a
            thread that does not keep the process: others are given the partitions once the session is over, and read
            again what was not committed.
        """
        until_s = time.monotonic() + _SHARE_OF_LEAVING * within_s
        left: list[bool] = []

        def end() -> None:
            self._commit(next_offsets, asynchronous=False)
            left.append(self._membership.may_leave(until_s))
            if left[0]:
                self._membership.consumer.close()

        # The client waits for an answer for a minute, and cannot be told not to.
        ending = threading.Thread(target=end, name="leave-group", daemon=True)
        ending.start()
        ending.join(within_s)
        if ending.is_alive():
            self._log.warning(
                "Kafka at %s does not answer; left without it, what it has not committed is read again", self._bootstrap
            )
        return not ending.is_alive() and left == [True]

    def _settings(self, group: str, session_timeout_ms: int) -> dict[str, Any]:
        return {
            "bootstrap.servers": self._bootstrap,
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
            # A topic that was deleted and made anew is found again after so long, instead of five minutes.
            "topic.metadata.refresh.interval.ms": 5_000,
            "error_cb": self._client_error,
            "on_commit": self._committed,
            # The client repeats a lost connection several times a second; `error_cb` says it once.
            "log_level": 2,
        }

    def _commit(self, next_offsets: Mapping[tuple[str, int], int], *, asynchronous: bool) -> None:
        offsets = [TopicPartition(topic, partition, offset) for (topic, partition), offset in next_offsets.items()]
        if not offsets:
            return
        try:
            self._membership.consumer.commit(offsets=offsets, asynchronous=asynchronous)
        except KafkaException as error:
            self._log.warning("offsets not committed, they will be read again: %s", error)

    def _revoked(self) -> None:
        # The client keeps a partition paused through a rebalance: given back to this reader, it would stay silent.
        self.resume()
        self._rebalanced = True
        self._on_revoked()

    def _start_over(self) -> None:
        """Begin each partition exactly where the group and the record agree."""
        assigned = self._membership.consumer.assignment()
        if not assigned:
            return
        try:
            # First which logs these are: what is read after that is of them, or shows another id afterwards.
            standing = self._find_standing()
            committed = self._membership.consumer.committed(assigned, timeout=_COMMITTED_TIMEOUT_S)
            beginnings = [self._beginning(place, standing) for place in committed]
            due = {(one.topic, one.partition): self._first_due(one) for one in beginnings}
        except (KafkaException, LogUnavailable, StoreUnavailable) as error:
            self._log.warning("it is not known where to go on: %s; asking again", error)
            return
        self._membership.consumer.assign(beginnings)
        self.log_ids = standing.log_ids
        self._order.begin(due)
        self.went_back = False
        self._rebalanced = False

    def _beginning(self, place: TopicPartition, standing: Standing) -> TopicPartition:
        stored_until = standing.stored_until.get((place.topic, place.partition), 0)
        offset = begin_at(place.offset, stored_until)
        if offset < place.offset:
            said = (place.topic, place.partition, place.offset, stored_until)
            self._log.warning(
                "%s[%d]: acknowledged up to %d, but the record has %d of this log; reading it from its beginning", *said
            )
        return TopicPartition(place.topic, place.partition, offset or OFFSET_BEGINNING)

    def _first_due(self, beginning: TopicPartition) -> int:
        """The first offset that is there to be read."""
        if beginning.offset > 0:
            return beginning.offset
        place = TopicPartition(beginning.topic, beginning.partition)
        return int(self._membership.consumer.get_watermark_offsets(place, timeout=_COMMITTED_TIMEOUT_S)[0])

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
