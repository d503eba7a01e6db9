"""How far a log reaches, and since when a message of it waits, as the broker has them. Reads only, and joins no group.

A broker's answer to "which offset is the next?" is not relied on: the embedded one names the one behind the *first*
message of the last batch. So the last batch is asked for, and what comes with it says where the log ends.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping
from types import TracebackType
from typing import NamedTuple, Self, TypeAlias

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from aggregator.broker import LogUnavailable
from stream.admin import fault_of

#: A topic, and a partition of it.
Partition: TypeAlias = tuple[str, int]

_POLL_S = 0.25
#: How a broker says that it has no such topic, or no such partition of it.
ABSENT = frozenset({KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION})
#: What is said of a partition that was just made: it is unknown, or has no leader, for a moment.
_JUST_MADE = ABSENT | {KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.LEADER_NOT_AVAILABLE}
#: How long that is waited for.
_JUST_MADE_S = 5.0


class NoSuchLog(LogUnavailable):
    """The broker answers, and has no such topic or partition."""


class Reach(NamedTuple):
    """The first offset that the log still has, and the first that is not written yet; the same if it holds nothing."""

    low: int
    end: int


class LogEnds:
    """Asks one broker. Use as a context; blocking.

    Args:
        bootstrap: ``host:port``, several separated by commas.
        group: whose acknowledged offsets `committed` tells; never joined.
        timeout_s: longest wait for each question.
    """

    def __init__(self, bootstrap: str, *, group: str = "tallygate-look", timeout_s: float = 30.0) -> None:
        self._bootstrap = bootstrap
        self._timeout_s = timeout_s
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "enable.partition.eof": True,
                "isolation.level": "read_uncommitted",
                "log_level": 0,
            }
        )

    def __enter__(self) -> Self:
        """Itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Leave the broker."""
        self._consumer.close()

    def of(self, places: Collection[Partition]) -> dict[Partition, Reach]:
        """Where each partition begins and ends.

        Raises:
            NoSuchLog: the broker has no such partition.
            LogUnavailable: it does not say.
        """
        told = {place: self._watermarks(place) for place in places}
        lows = {place: low for place, (low, _) in told.items()}
        first = {place: max(low, high - 1) for place, (low, high) in told.items()}
        ends = {place: max(high, lows[place]) for place, (_, high) in told.items()}
        for place, message in self._first_events(first):
            # None until the client has heard of the partition, whatever its stubs say.
            cached: tuple[int, int] | None = self._consumer.get_watermark_offsets(TopicPartition(*place), cached=True)
            seen = (message.offset() or 0) + int(message.error() is None)
            ends[place] = max(ends[place], seen, cached[1] if cached else 0)
        return {place: Reach(lows[place], ends[place]) for place in places}

    def appended_us(self, offsets: Mapping[Partition, int]) -> dict[Partition, int]:
        """When the message at each of these offsets came to the log, unix microseconds; left out where there is none.

        Raises:
            LogUnavailable: the broker does not answer.
        """
        return {
            place: message.timestamp()[1] * 1_000
            for place, message in self._first_events(offsets)
            if message.error() is None
        }

    def committed(self, places: Collection[Partition]) -> dict[Partition, int]:
        """The next offset that the group has acknowledged, of each partition of which it has acknowledged any.

        Raises:
            LogUnavailable: the broker does not say.
        """
        try:
            found = self._consumer.committed([TopicPartition(*place) for place in places], timeout=self._timeout_s)
        except KafkaException as error:
            raise LogUnavailable(self._said(fault_of(error).str())) from error
        return {(one.topic, one.partition): one.offset for one in found if one.error is None and one.offset >= 0}

    def _watermarks(self, place: Partition) -> tuple[int, int]:
        until_s = time.monotonic() + min(_JUST_MADE_S, self._timeout_s)
        while True:
            try:
                low, high = self._consumer.get_watermark_offsets(TopicPartition(*place), timeout=self._timeout_s)
            except KafkaException as error:
                fault = fault_of(error)
                if fault.code() in _JUST_MADE and time.monotonic() < until_s:
                    time.sleep(_POLL_S)
                    continue
                kind = NoSuchLog if fault.code() in ABSENT else LogUnavailable
                raise kind(self._said(f"{place[0]}[{place[1]}]: {fault.str()}")) from error
            return low, high

    def _first_events(self, offsets: Mapping[Partition, int]) -> Iterator[tuple[Partition, Message]]:
        """What comes first of each partition when it is read from this offset: a message, or that there is none."""
        if not offsets:
            return
        self._consumer.assign([TopicPartition(*place, offset) for place, offset in offsets.items()])
        missing = set(offsets)
        until_s = time.monotonic() + self._timeout_s
        while missing:
            for message in self._consumer.consume(500, _POLL_S):
                place = (message.topic() or "", message.partition() or 0)
                if place in missing:
                    missing.discard(place)
                    yield place, message
            if missing and time.monotonic() >= until_s:
                topic, partition = min(missing)
                raise LogUnavailable(self._said(f"{topic}[{partition}]: no answer in {self._timeout_s:g} s"))
        self._consumer.unassign()

    def _said(self, why: str) -> str:
        return f"Kafka at {self._bootstrap} (TALLYGATE_KAFKA) did not say how far the log is: {why}"
