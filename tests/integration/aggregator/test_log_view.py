from __future__ import annotations

import pytest

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


async def test_view_names_the_address_that_does_not_answer() -> None:
    """The message ends up in the log of a process that could not start."""
    view = KafkaView("127.0.0.1:9", DECISIONS.name, timeout_s=1.0)

    with pytest.raises(LogUnavailable, match=r"127\.0\.0\.1:9 \(TALLYGATE_KAFKA\)"):
        await view.log_id()
