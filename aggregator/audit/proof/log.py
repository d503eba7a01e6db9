"""Single blocks as the log still holds them: what the record should say of a block whose rows do not give its hash.

Reads by position, commits nothing, and takes no message for a block whose hash is another.
"""

from __future__ import annotations

import time
from types import TracebackType
from typing import Self

from confluent_kafka import Consumer, KafkaError, TopicPartition

from aggregator.broker import LogUnavailable
from aggregator.core.proof.chain import BlockRow
from aggregator.log_ends import ABSENT, LogEnds, NoSuchLog
from stream.contract.block import DecisionBlock
from stream.contract.codec import CorruptBlock, decode_block, hash_block
from stream.contract.topics import DECISIONS

_GONE = frozenset({KafkaError.OFFSET_OUT_OF_RANGE, KafkaError._AUTO_OFFSET_RESET, *ABSENT})


class LogNotRead(Exception):
    """The broker does not answer."""


class BlocksOnTheLog:
    """Fetches one message at a time. Use as a context.

    Args:
        bootstrap: ``host:port``, several separated by commas.
        timeout_s: longest wait for one message.
    """

    def __init__(self, bootstrap: str, *, timeout_s: float = 20.0) -> None:
        self._bootstrap = bootstrap
        self._timeout_s = timeout_s
        self._ends = LogEnds(bootstrap, timeout_s=timeout_s)
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "tallygate-audit",
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "enable.partition.eof": True,
                "log_level": 2,
            }
        )

    def __enter__(self) -> Self:
        """Itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Leave the broker."""
        self._ends.close()
        self._consumer.close()

    def find(self, block: BlockRow) -> DecisionBlock | None:
        """The block as it was sealed, at its copy's own times; None if the log no longer holds it.

        Raises:
            LogNotRead: the broker does not answer.
        """
        data = self._value(block.log_partition, block.log_offset)
        if data is None or hash_block(data) != block.block_hash:
            return None
        try:
            return decode_block(data)
        except CorruptBlock:
            return None

    def _value(self, partition: int, offset: int) -> bytes | None:
        place = TopicPartition(DECISIONS.name, partition, offset)
        try:
            reach = self._ends.of([(DECISIONS.name, partition)])[DECISIONS.name, partition]
        except NoSuchLog:
            return None
        except LogUnavailable as error:
            raise LogNotRead(str(error)) from error
        # The embedded broker leaves a question for what is beyond the end without an answer.
        if not reach.low <= offset < reach.end:
            return None
        self._consumer.assign([place])
        deadline_s = time.monotonic() + self._timeout_s
        while (left_s := deadline_s - time.monotonic()) > 0:
            message = self._consumer.poll(left_s)
            if message is None:
                continue
            fault = message.error()
            if fault is None:
                value = message.value()
                return value if message.offset() == offset and isinstance(value, bytes) else None
            if fault.code() == KafkaError._PARTITION_EOF or fault.code() in _GONE:
                return None
        raise LogNotRead(self._not_read(place))

    def _not_read(self, place: TopicPartition) -> str:
        return (
            f"Kafka at {self._bootstrap} (TALLYGATE_KAFKA) did not give offset {place.offset} of partition"
            f" {place.partition} within {self._timeout_s:g} s"
        )
