from __future__ import annotations

import pytest
from confluent_kafka import Consumer, TopicPartition

from aggregator.broker import LogUnavailable
from aggregator.worker.log_view import KafkaView
from stream.admin import ensure_topics
from stream.contract.topics import DECISIONS, GRANTS
from tests.logfill import Fill, send
from tests.services import KafkaService


async def test_log_id_is_the_topics_own(kafka_broker: KafkaService) -> None:
    """It tells a replay from the first messages of a log that was made anew."""
    ensure_topics(kafka_broker.bootstrap, partitions=4, timeout_s=60)

    ids = [
        await KafkaView(kafka_broker.bootstrap, topic.name, timeout_s=60).log_id()
        for topic in (DECISIONS, DECISIONS, GRANTS)
    ]

    assert ids[0] == ids[1] != ids[2]
    assert len(ids[0]) > 10


async def test_low_watermark_of_a_fresh_partition_is_its_first_offset(kafka_broker: KafkaService) -> None:
    """Only what lies below it is known to be gone for good."""
    ensure_topics(kafka_broker.bootstrap, partitions=4, timeout_s=60)
    send(kafka_broker.bootstrap, Fill(decisions=4_000, block=500, copies=4))
    view = KafkaView(kafka_broker.bootstrap, DECISIONS.name, timeout_s=60)

    assert [await view.low_watermark(partition) for partition in range(4)] == [0, 0, 0, 0]


async def test_first_held_is_the_message_that_is_asked_for_if_it_is_there(kafka_broker: KafkaService) -> None:
    """Only what the log itself does not have, is lost; all else was only not delivered."""
    ensure_topics(kafka_broker.bootstrap, partitions=4, timeout_s=60)
    send(kafka_broker.bootstrap, Fill(decisions=8_000, block=500, copies=4))
    consumer = Consumer({"bootstrap.servers": kafka_broker.bootstrap, "group.id": "test"})
    ends = [consumer.get_watermark_offsets(TopicPartition(DECISIONS.name, one), timeout=60)[1] for one in range(4)]
    consumer.close()
    busiest = ends.index(max(ends))

    view = KafkaView(kafka_broker.bootstrap, DECISIONS.name, timeout_s=60)
    assert [await view.first_held(busiest, offset) for offset in (0, 1, max(ends) - 1)] == [0, 1, max(ends) - 1]


async def test_view_names_the_address_that_does_not_answer() -> None:
    """The message ends up in the log of a process that could not start."""
    view = KafkaView("127.0.0.1:9", DECISIONS.name, timeout_s=1.0)

    with pytest.raises(LogUnavailable, match=r"127\.0\.0\.1:9 \(TALLYGATE_KAFKA\)"):
        await view.log_id()
