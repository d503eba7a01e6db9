"""A single block is fetched from the log by its position, or is said to be gone."""

from __future__ import annotations

import pytest
from confluent_kafka import Producer

from aggregator.audit.proof.log import BlocksOnTheLog, LogNotRead
from aggregator.core.proof.chain import BlockRow
from stream.admin import ensure_topics
from stream.contract.codec import decode_block, encode_block, hash_block
from stream.contract.topics import DECISIONS
from tests.services import KafkaService
from tests.verdicts import IDENTITY, verdicts

_TIMES = (1, 1)


def _row(offset: int, block_hash: bytes) -> BlockRow:
    return BlockRow(
        IDENTITY.copy_id, IDENTITY.epoch, 0, 3, 1, bytes(16), block_hash, *_TIMES, 0, 0, None, 3, 0, 0, 0, 0, 0, "",
        1, offset,
    )  # fmt: skip


def test_block_is_found_by_its_place_and_its_hash(kafka_broker: KafkaService) -> None:
    """What stands at the place now may be another log's block: its hash decides."""
    ensure_topics(kafka_broker.bootstrap, partitions=4, timeout_s=60)
    data = encode_block(
        verdicts(3), copy_id=IDENTITY.copy_id, epoch=IDENTITY.epoch, first_seq=0, sealed_at_us=1, clock_offset_ns=0
    )
    producer = Producer({"bootstrap.servers": kafka_broker.bootstrap, "linger.ms": 200})
    for value in (b"not a block", *[b"another"] * 6, data):
        producer.produce(DECISIONS.name, value, b"k", 1)
    assert 0 == producer.flush(60)
    with BlocksOnTheLog(kafka_broker.bootstrap) as log:
        found = log.find(_row(7, hash_block(data)))
        assert found is not None
        assert decode_block(data).at_us.tolist() == found.at_us.tolist()
        assert log.find(_row(7, bytes(16))) is None
        assert log.find(_row(0, hash_block(b"not a block"))) is None
        assert log.find(_row(2, hash_block(data))) is None, "the end of the log"
        assert log.find(_row(99, hash_block(data))) is None


def test_broker_that_is_away_is_no_answer() -> None:
    """ "Gone" would be a finding; "not asked" is none."""
    with BlocksOnTheLog("127.0.0.1:1", timeout_s=0.3) as log, pytest.raises(LogNotRead, match=r"TALLYGATE_KAFKA"):
        log.find(_row(0, bytes(16)))
