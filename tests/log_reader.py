"""Reads all topics of the log from the beginning, for tests: what stands there, told apart by topic."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from confluent_kafka import OFFSET_BEGINNING, Consumer, Message, TopicPartition

from stream.contract.block import DecisionBlock
from stream.contract.codec import decode_block
from stream.contract.control import AnyControlEvent, DecisionsLost, decode_control
from stream.contract.facts import FactBlock, decode_facts
from stream.contract.topics import CONTROL, DECISIONS, GRANTS


@dataclass
class Log:
    """The decoded messages, in the order in which they were read."""

    blocks: list[DecisionBlock] = field(default_factory=list)
    facts: list[tuple[int, FactBlock]] = field(default_factory=list)
    control: list[AnyControlEvent] = field(default_factory=list)
    headers: list[dict[str, bytes]] = field(default_factory=list)

    def take(self, message: Message) -> None:
        """Decode one message by its topic."""
        value = message.value()
        assert value is not None
        self.headers.append({name: bytes(content or b"") for name, content in message.headers() or []})
        self.take_value(message.topic() or "", message.partition() or 0, value)

    def take_value(self, topic: str, partition: int, value: bytes) -> None:
        """Decode one message's value by its topic."""
        if topic == DECISIONS.name:
            self.blocks.append(decode_block(value))
        elif topic == GRANTS.name:
            self.facts.append((partition, decode_facts(value)))
        elif topic == CONTROL.name:
            self.control.append(decode_control(value))

    def identities(self) -> list[tuple[str, int, int]]:
        """(copy_id, epoch, seq) of every decision, as often as it stands there."""
        return [
            (block.copy_id, block.epoch, seq)
            for block in self.blocks
            for seq in range(block.first_seq, block.first_seq + block.count)
        ]

    def lost(self) -> list[tuple[int, int]]:
        """(first_seq, count) of every loss record."""
        return [(event.first_seq, event.count) for event in self.control if isinstance(event, DecisionsLost)]


def read_log(bootstrap: str, until: Callable[[Log], bool], *, timeout_s: float = 60.0) -> Log:
    """Read until the condition holds and nothing more comes for a moment.

    Raises:
        TimeoutError: it did not hold in time.
    """
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "test-reader", "log_level": 0})
    log = Log()
    deadline_s = time.monotonic() + timeout_s
    try:
        topics = consumer.list_topics(timeout=20).topics
        places = [
            TopicPartition(topic.name, partition, OFFSET_BEGINNING)
            for topic in (DECISIONS, GRANTS, CONTROL)
            for partition in topics[topic.name].partitions
        ]
        consumer.assign(places)
        quiet = 0
        while quiet < 3:
            message = consumer.poll(0.2)
            if message is not None:
                assert message.error() is None, message.error()
                log.take(message)
                quiet = 0
            elif until(log):
                quiet += 1
            if time.monotonic() > deadline_s:
                raise TimeoutError(f"read {len(log.blocks)} blocks, {len(log.control)} control events, then nothing")
    finally:
        consumer.close()
    return log
