"""Where a log ends, on real brokers: what was written a moment ago belongs to it."""

from __future__ import annotations

import time

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from aggregator.broker import LogUnavailable
from aggregator.config import AggregatorConfig
from aggregator.log_ends import LogEnds, Reach
from aggregator.replay.rebuild import log_ends
from stream.admin import ensure_topics
from stream.contract.topics import DECISIONS
from tests.services import KafkaService

pytestmark = pytest.mark.services


def _write(bootstrap: str, count: int) -> None:
    """So many messages to partition 0, as one batch."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 200, "log_level": 0})
    for _ in range(count):
        producer.produce(DECISIONS.name, b"a block", b"gw-1", 0)
    assert 0 == producer.flush(30)


def test_log_ends_behind_the_last_message_of_a_batch(kafka_broker: KafkaService) -> None:
    """A replay that ends before it would exchange a record that lacks what was written last."""
    ensure_topics(kafka_broker.bootstrap, partitions=2, timeout_s=60)
    config = AggregatorConfig.from_env({"TALLYGATE_KAFKA": kafka_broker.bootstrap, "TALLYGATE_PARTITIONS": "2"})
    empty, whole = log_ends(config)
    assert whole
    assert {0} == set(empty.values())

    _write(kafka_broker.bootstrap, 200)
    ends, whole = log_ends(config)

    assert whole
    assert {(DECISIONS.name, 0): 200} == {place: end for place, end in ends.items() if end}


def test_message_that_waits_is_found_with_its_time(kafka_broker: KafkaService) -> None:
    """How long a reader is behind is how long its next message has been there."""
    ensure_topics(kafka_broker.bootstrap, partitions=2, timeout_s=60)
    before_us = time.time_ns() // 1_000
    _write(kafka_broker.bootstrap, 3)
    place = (DECISIONS.name, 0)
    consumer = Consumer({"bootstrap.servers": kafka_broker.bootstrap, "group.id": "tallygate-some", "log_level": 0})
    consumer.commit(offsets=[TopicPartition(*place, 2)], asynchronous=False)
    consumer.close()

    with LogEnds(kafka_broker.bootstrap, group="tallygate-some") as ends:
        assert {place: Reach(0, 3), (DECISIONS.name, 1): Reach(0, 0)} == ends.of([place, (DECISIONS.name, 1)])
        assert {place: 2} == ends.committed([place, (DECISIONS.name, 1)])
        appended = ends.appended_us({place: 2, (DECISIONS.name, 1): 0})

    assert [place] == list(appended)
    assert before_us - 2_000_000 <= appended[place] <= time.time_ns() // 1_000 + 2_000_000


def test_broker_that_does_not_answer_is_named() -> None:
    """The message stands in an answer at night."""
    with (
        LogEnds("127.0.0.1:9", timeout_s=0.5) as ends,
        pytest.raises(LogUnavailable, match=r"127\.0\.0\.1:9 \(TALLYGATE_KAFKA\) did not say how far"),
    ):
        ends.of([(DECISIONS.name, 0)])
