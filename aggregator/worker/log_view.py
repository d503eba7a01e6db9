"""What the live totals ask of the broker beside the messages: the topic's identity, and where its partitions begin.

Reads only. Blocking calls run in the event loop's default threads.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

from confluent_kafka import Consumer, IsolationLevel, KafkaException, TopicPartition
from confluent_kafka.admin import OffsetSpec

from aggregator.broker import LogUnavailable
from aggregator.topic_ids import TopicIds
from stream.admin import admin_client

T = TypeVar("T")

_SETTING = "TALLYGATE_KAFKA"
#: How long one look at the log takes at most; what has not come by then is looked for again.
_LOOK_S = 2.0


class KafkaView:
    """One topic of one cluster."""

    def __init__(self, bootstrap: str, topic: str, *, timeout_s: float = 10.0) -> None:
        self._bootstrap = bootstrap
        self._topic = topic
        self._timeout_s = timeout_s
        self._ids = TopicIds(bootstrap, timeout_s=timeout_s)
        self._admin = admin_client(bootstrap, timeout_s=timeout_s)

    async def log_id(self) -> str:
        """The topic's id, which is another one after it was deleted and made anew.

        Raises:
            LogUnavailable: the broker does not answer, or has no such topic.
        """
        found = await asyncio.to_thread(self._ids.of, [self._topic])
        if self._topic not in found:
            raise LogUnavailable(f"Kafka at {self._bootstrap} ({_SETTING}) has no topic {self._topic}")
        return found[self._topic]

    async def low_watermark(self, partition: int) -> int:
        """The first offset that the broker still has.

        Raises:
            LogUnavailable: the broker does not answer, or has no such partition.
        """
        return await asyncio.to_thread(self._ask, lambda: self._read_low_watermark(partition))

    async def first_held(self, partition: int, offset: int) -> int:
        """The first offset from this one on that the broker has; this one if it has none yet.

        Raises:
            LogUnavailable: the broker does not answer, or has no such partition.
        """
        return await asyncio.to_thread(self._ask, lambda: self._read_first(partition, offset))

    def _read_first(self, partition: int, offset: int) -> int:
        consumer = Consumer(
            {
                "bootstrap.servers": self._bootstrap,
                # Never joined: an assignment needs the name of a group all the same.
                "group.id": "tallygate-look",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "isolation.level": "read_uncommitted",
                "log_level": 2,
            }
        )
        try:
            consumer.assign([TopicPartition(self._topic, partition, offset)])
            found = consumer.consume(1, min(_LOOK_S, self._timeout_s))
        finally:
            consumer.close()
        return max(offset, *(message.offset() or 0 for message in found if message.error() is None), 0)

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
