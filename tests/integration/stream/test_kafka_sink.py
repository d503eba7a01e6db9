"""The sink against real brokers: exact when all is well, exact again after an outage."""

from __future__ import annotations

import logging
import socket
import time
from collections import Counter

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from stream.admin import TopicsMismatch, TopicsUnavailable, ensure_topics
from stream.config import StreamConfig
from stream.contract.codec import NO_HASH
from stream.contract.control import Anchor, CopyStarted, CopyStopped
from stream.contract.partition import grants_partition
from stream.contract.topics import GRANTS, TOPICS
from stream.producer import KafkaSink
from tallygate.engines.tansu import start_tansu
from tests.log_reader import Log, read_log
from tests.processes import freeze, thaw, wait_until
from tests.services import KafkaService
from tests.verdicts import IDENTITY, grant, settlement, verdicts


def each_once(count: int) -> Counter[tuple[str, int, int]]:
    """The identities of the first `count` decisions, each once."""
    return Counter((IDENTITY.copy_id, IDENTITY.epoch, seq) for seq in range(count))


def assert_chain(log: Log) -> None:
    """The blocks of the epoch, in their order, name each other's hashes."""
    blocks = sorted(log.blocks, key=lambda block: (block.first_seq, block.sealed_at_us))
    assert [NO_HASH, *(block.block_hash for block in blocks[:-1])] == [block.prev_hash for block in blocks]


def feed(sink: KafkaSink, first_seq: int, count: int, *, seconds: float = 0.0) -> None:
    """Capture decisions, spread over a time."""
    slices = 20
    for number in range(slices):
        size = count // slices
        for one in verdicts(size, first_seq=first_seq + number * size):
            sink.capture(one)
        time.sleep(seconds / slices)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def test_stream_of_decisions_is_read_back_exactly_once(kafka_broker: KafkaService) -> None:
    """The whole way: 200,000 decisions, every identity on the log once, in one unbroken chain."""
    sink = KafkaSink(StreamConfig(bootstrap=kafka_broker.bootstrap), IDENTITY)
    feed(sink, 0, 200_000, seconds=2.0)
    for number in range(40):
        sink.grant_issued(grant(f"acct-{number}"))
        sink.grant_settled(settlement(f"acct-{number}"))
    sink.close(30.0)
    assert (200_000, 200_000, 0, 0) == (
        sink.stats.captured,
        sink.stats.delivered,
        sink.stats.lost,
        sink.stats.queued,
    )
    log = read_log(kafka_broker.bootstrap, lambda log: len(log.identities()) >= 200_000 and len(log.control) == 3)
    assert each_once(200_000) == Counter(log.identities())
    assert_chain(log)
    assert [CopyStarted, Anchor, CopyStopped] == [type(event) for event in log.control]
    for partition, facts in log.facts:
        callers = {*(fact.caller for fact in facts.grants), *(fact.caller for fact in facts.settlements)}
        assert {partition} == {grants_partition(caller, 4) for caller in callers}
    assert 40 == sum(len(facts.grants) for _, facts in log.facts)
    assert 40 == sum(len(facts.settlements) for _, facts in log.facts)
    assert all(headers["ce_specversion"] == b"1.0" for headers in log.headers)


def test_frozen_broker_costs_nothing_but_time(kafka_broker: KafkaService) -> None:
    """A broker that stands still for seconds: the request path goes on, and every decision arrives once."""
    sink = KafkaSink(StreamConfig(bootstrap=kafka_broker.bootstrap), IDENTITY)
    feed(sink, 0, 20_000, seconds=1.0)
    freeze(kafka_broker.pid)
    try:
        started_s = time.monotonic()
        feed(sink, 20_000, 20_000, seconds=3.0)
        took_s = time.monotonic() - started_s
    finally:
        thaw(kafka_broker.pid)
    feed(sink, 40_000, 20_000, seconds=0.5)
    sink.close(60.0)
    assert took_s < 4.5
    assert (60_000, 0) == (sink.stats.delivered, sink.stats.lost)
    log = read_log(kafka_broker.bootstrap, lambda log: len(set(log.identities())) >= 60_000)
    assert each_once(60_000) == Counter(set(log.identities()))


def test_frozen_broker_and_a_full_memory_lose_exactly_what_is_named(kafka_broker: KafkaService) -> None:
    """R9 on a real broker: what is on the log and what the loss records name make up everything, without overlap."""
    config = StreamConfig(bootstrap=kafka_broker.bootstrap, max_held=5_000, block_decisions=500, flush_s=0.2)
    sink = KafkaSink(config, IDENTITY)
    feed(sink, 0, 2_000, seconds=0.2)
    wait_until(lambda: sink.stats.delivered == 2_000, 20.0)
    freeze(kafka_broker.pid)
    try:
        feed(sink, 2_000, 20_000, seconds=2.0)
        wait_until(lambda: sink.stats.lost > 0, 10.0)
    finally:
        thaw(kafka_broker.pid)
    wait_until(lambda: sink.stats.queued == 0, 60.0)
    feed(sink, 22_000, 2_000)
    sink.close(60.0)
    log = read_log(kafka_broker.bootstrap, lambda log: any(isinstance(event, CopyStopped) for event in log.control))
    recorded = {seq for _, _, seq in log.identities()}
    named = [seq for first_seq, count in log.lost() for seq in range(first_seq, first_seq + count)]
    assert len(named) == len(set(named)) == sink.stats.lost > 0
    assert recorded.isdisjoint(named)
    assert set(range(24_000)) == recorded | set(named)
    assert set(range(22_000, 24_000)) <= recorded


def test_broker_that_comes_later_gets_everything(caplog: pytest.LogCaptureFixture) -> None:
    """A gateway starts before its broker: it serves, says once what is wrong, and loses nothing."""
    port = free_port()
    with caplog.at_level(logging.INFO, "tallygate.stream"):
        sink = KafkaSink(StreamConfig(bootstrap=f"127.0.0.1:{port}"), IDENTITY)
        feed(sink, 0, 10_000, seconds=3.0)
        assert (10_000, 0, False) == (sink.stats.captured, sink.stats.delivered, sink.stats.is_connected)
        broker = start_tansu(port=port)
        try:
            wait_until(lambda: sink.stats.delivered == 10_000, 30.0)
            sink.close(10.0)
            log = read_log(broker.bootstrap, lambda log: len(log.identities()) >= 10_000)
        finally:
            broker.stop()
    assert each_once(10_000) == Counter(log.identities())
    assert ["WARNING", "INFO"] == [record.levelname for record in caplog.records]


def test_topics_are_created_with_one_partition_count(kafka_broker: KafkaService) -> None:
    """Faust and the ledger need equal counts; creating them twice changes nothing."""
    for _ in range(2):
        ensure_topics(kafka_broker.bootstrap, partitions=3, timeout_s=20.0)
    client = AdminClient({"bootstrap.servers": kafka_broker.bootstrap, "log_level": 0})
    topics = client.list_topics(timeout=20).topics
    assert {topic.name: 3 for topic in TOPICS} == {topic.name: len(topics[topic.name].partitions) for topic in TOPICS}
    with pytest.raises(TopicsMismatch, match=r"TALLYGATE_PARTITIONS is 5, but tallygate\.decisions has 3"):
        ensure_topics(kafka_broker.bootstrap, partitions=5, timeout_s=20.0)


def test_one_topic_with_another_count_is_named(kafka_broker: KafkaService) -> None:
    """Someone created one by hand: say which, before anything is written."""
    client = AdminClient({"bootstrap.servers": kafka_broker.bootstrap, "log_level": 0})
    for future in client.create_topics([NewTopic(GRANTS.name, 2, 1)]).values():
        future.result(20)
    wait_until(lambda: GRANTS.name in client.list_topics(timeout=20).topics, 20.0)
    with pytest.raises(TopicsMismatch, match=f"{GRANTS.name} has 2"):
        ensure_topics(kafka_broker.bootstrap, partitions=4, timeout_s=20.0)


def test_broker_that_is_away_is_named_with_its_address() -> None:
    """Whoever starts the pipeline must learn which address does not answer."""
    port = free_port()
    with pytest.raises(TopicsUnavailable, match=f"Kafka at 127.0.0.1:{port} did not answer"):
        ensure_topics(f"127.0.0.1:{port}", partitions=4, timeout_s=1.0)
