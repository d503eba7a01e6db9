"""The order of a copy's blocks on real brokers: kept through freezes, refusals and topics that vanish."""

from __future__ import annotations

from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from stream.admin import ensure_topics
from stream.config import StreamConfig
from stream.contract.control import CopyStopped
from stream.contract.topics import DECISIONS
from stream.producer import KafkaSink
from tests.integration.stream.test_kafka_sink import feed
from tests.log_reader import Log, read_log
from tests.processes import freeze, thaw, wait_until
from tests.services import KafkaService
from tests.verdicts import IDENTITY, basis, verdict


def first_seqs(log: Log) -> list[int]:
    """First seq of every block that carries decisions, in the order of the log, without repetitions."""
    return list(dict.fromkeys(block.first_seq for block in log.blocks if block.count))


def test_blocks_stand_in_order_through_freezes(kafka_broker: KafkaService) -> None:
    """Live totals pass over a block that comes behind a later one: it would count for nothing."""
    config = StreamConfig(bootstrap=kafka_broker.bootstrap, block_decisions=200, flush_s=0.05)
    sink = KafkaSink(config, IDENTITY)
    feed(sink, 0, 10_000, seconds=0.5)
    for spell in range(1, 4):
        freeze(kafka_broker.pid)
        try:
            feed(sink, spell * 20_000 - 10_000, 10_000, seconds=0.7)
        finally:
            thaw(kafka_broker.pid)
        feed(sink, spell * 20_000, 10_000, seconds=0.3)
    sink.close(60.0)
    assert (70_000, 0) == (sink.stats.delivered, sink.stats.lost)
    log = read_log(kafka_broker.bootstrap, lambda log: len(set(log.identities())) >= 70_000)
    assert sorted(first_seqs(log)) == first_seqs(log)


def test_only_messages_that_are_too_long_are_refused(apache_broker: KafkaService) -> None:
    """The broker refuses a whole batch for one of them; the record must lose that one alone, and keep its order."""
    ensure_topics(apache_broker.bootstrap, partitions=4, timeout_s=20.0)
    set_decisions_topic(apache_broker.bootstrap, "max.message.bytes", "20000")
    config = StreamConfig(bootstrap=apache_broker.bootstrap, block_decisions=10, flush_s=0.05, compression="none")
    sink = KafkaSink(config, IDENTITY)
    for seq in range(1_000):
        # Decisions 500 to 509 are one block, and longer than the broker allows.
        sink.capture(verdict(seq, on=basis(f"{seq}" * 1_000) if 500 <= seq < 510 else basis()))
    wait_until(lambda: sink.stats.queued == 0, 60.0)
    sink.close(30.0)
    assert (990, 10) == (sink.stats.delivered, sink.stats.lost)
    log = read_log(apache_broker.bootstrap, lambda log: any(isinstance(one, CopyStopped) for one in log.control))
    assert [(500, 10)] == log.lost()
    assert [seq for seq in range(0, 1_000, 10) if seq != 500] == first_seqs(log)


def test_topic_that_vanishes_costs_only_what_was_on_it(apache_broker: KafkaService) -> None:
    """Someone deletes the topic under a running copy: when it is there again, what follows stands on it in order."""
    ensure_topics(apache_broker.bootstrap, partitions=4, timeout_s=20.0)
    sink = KafkaSink(StreamConfig(bootstrap=apache_broker.bootstrap, block_decisions=200, flush_s=0.05), IDENTITY)
    feed(sink, 0, 2_000)
    wait_until(lambda: sink.stats.delivered == 2_000, 20.0)
    client = AdminClient({"bootstrap.servers": apache_broker.bootstrap, "log_level": 0})
    client.delete_topics([DECISIONS.name])[DECISIONS.name].result(20)
    wait_until(lambda: DECISIONS.name not in client.list_topics(timeout=20).topics, 20.0)
    feed(sink, 2_000, 2_000, seconds=0.5)
    ensure_topics(apache_broker.bootstrap, partitions=4, timeout_s=20.0)
    feed(sink, 4_000, 2_000, seconds=0.5)
    sink.close(60.0)
    assert (6_000, 0) == (sink.stats.delivered, sink.stats.lost)
    log = read_log(apache_broker.bootstrap, lambda log: len(set(log.identities())) >= 4_000)
    assert sorted(first_seqs(log)) == first_seqs(log)
    assert set(range(2_000, 6_000)) == {seq for _, _, seq in log.identities()}


def set_decisions_topic(bootstrap: str, name: str, value: str) -> None:
    """Change a setting of the decisions topic, and wait until the broker knows it."""
    client = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    change = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, DECISIONS.name, incremental_configs=[change])
    for future in client.incremental_alter_configs([resource]).values():
        future.result(20)

    def is_known() -> bool:
        asked = ConfigResource(ResourceType.TOPIC, DECISIONS.name)
        found = client.describe_configs([asked])[asked].result(20)
        return bool(found[name].value == value)

    wait_until(is_known, 20.0)
