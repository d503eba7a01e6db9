"""What the live totals ask of the broker beside the messages: the topic's identity, and where its partitions begin.

Reads only. Blocking calls run in the event loop's default threads.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

from confluent_kafka import IsolationLevel, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from aggregator.broker import LogUnavailable

T = TypeVar("T")

_SETTING = "TALLYGATE_KAFKA"


class KafkaView:
    """One topic of one cluster."""

    def __init__(self, bootstrap: str, topic: str, *, timeout_s: float = 10.0) -> None:
        self._bootstrap = bootstrap
        self._topic = topic
        self._timeout_s = timeout_s
        # Kept: the client's futures fail once it is garbage collected.
        self._admin = AdminClient({"bootstrap.servers": bootstrap, "socket.timeout.ms": int(timeout_s * 1000)})

    async def log_id(self) -> str:
        """The topic's id, which is another one after it was deleted and made anew.

        Raises:
            LogUnavailable: the broker does not answer, or has no such topic.
        """
        return await asyncio.to_thread(self._ask, self._read_log_id)

    async def low_watermark(self, partition: int) -> int:
        """The first offset that the broker still has.

        Raises:
            LogUnavailable: the broker does not answer, or has no such partition.
        """
        return await asyncio.to_thread(self._ask, lambda: self._read_low_watermark(partition))

    def _read_log_id(self) -> str:
        futures = self._admin.describe_topics(TopicCollection([self._topic]), request_timeout=self._timeout_s)
        return str(futures[self._topic].result(self._timeout_s).topic_id)

    def _read_low_watermark(self, partition: int) -> int:
        place = TopicPartition(self._topic, partition)
        futures = self._admin.list_offsets(
            {place: OffsetSpec.earliest()},
            isolation_level=IsolationLevel.READ_UNCOMMITTED,
            request_timeout=self._timeout_s,
        )
        found: Any = futures[place].result(self._timeout_s)
        return int(found.offset)

    def _ask(self, question: Callable[[], T]) -> T:
        try:
            return question()
        except (KafkaException, TimeoutError) as error:
            raise LogUnavailable(
                f"Kafka at {self._bootstrap} ({_SETTING}) did not say where topic {self._topic} is: {error}"
            ) from error
