"""A topic that was deleted and made anew: the recorder counts on, under way and after a stop, on both brokers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from stream.contract.topics import DECISIONS
from tallygate.engines.process import Child
from tests.integration.aggregator.recording import PARTITIONS, Recording, recording
from tests.logfill import Counted, Fill, send_messages
from tests.processes import wait_until
from tests.services import KafkaService
from tests.topics import make_anew


@pytest.fixture
def log(kafka_broker: KafkaService, database_dsn: str, tmp_path: Path) -> Iterator[Recording]:
    """An empty log and an empty record."""
    with recording(kafka_broker.bootstrap, database_dsn, tmp_path) as made:
        yield made


def _watched(log: Recording, recorder: Child, decisions: int) -> Child:
    """Wait for so many decisions; a recorder that ends is started again, as its supervisor would.

    The Kafka client crashes on what the embedded broker answers to a fetch of a topic that is gone (librdkafka 2.16,
    `rd_kafka_metadata_update_op`).
    """
    wait_until(
        lambda: log.decisions() >= decisions or recorder.exit_code() is not None, 120, what="the record", poll_s=0.2
    )
    if recorder.exit_code() is not None:
        recorder = log.start(flush_ms="100")
        log.wait_for(decisions)
    return recorder


def _sum(*fills: Fill) -> dict[str, Counted]:
    """What fills of the same callers come to."""
    totals: dict[str, Counted] = {}
    for fill in fills:
        for caller, one in fill.totals().by_caller.items():
            before = totals.get(caller, Counted())
            totals[caller] = Counted(
                before.offered + one.offered, before.admitted + one.admitted, before.cost + one.cost
            )
    return totals


def test_recorder_counts_on_when_the_topic_is_made_anew_under_it(log: Recording) -> None:
    """Offsets begin again while group, client and record stand further on: nothing is passed over, nothing is twice.

    The second log is longer than the first, so that the place where the client stands is in the middle of it; the third
    is shorter, so that it lies behind its end.
    """
    first = Fill(decisions=20_000, block=100, callers=50)
    second = Fill(decisions=60_000, block=100, callers=50, epoch=2)
    third = Fill(decisions=8_000, block=100, callers=50, epoch=3)
    recorder, held = log.start(flush_ms="100"), 0
    for fill in (first, second, third):
        if held:
            make_anew(log.bootstrap, DECISIONS.name, partitions=PARTITIONS)
        send_messages(log.bootstrap, fill.messages())
        held += fill.total
        recorder = _watched(log, recorder, held)

    assert _sum(first, second, third) == log.by_caller()
    assert 0 == log.conflicting()
    assert 3 == log.number(f"SELECT uniqExact(log_id) FROM recorded WHERE topic = '{DECISIONS.name}'")
    assert (0, third.blocks) == log.rows(
        "SELECT min(first), sum(next) FROM (SELECT log_id, log_partition, min(first_offset) AS first, "
        f"max(next_offset) AS next, max(stored_at) AS at FROM recorded WHERE topic = '{DECISIONS.name}' "
        "GROUP BY log_id, log_partition) GROUP BY log_id ORDER BY max(at) DESC LIMIT 1"
    )[0]
    recorder.stop(timeout_s=60)
    assert 0 == recorder.exit_code()


def test_recorder_that_starts_on_a_new_log_does_not_believe_the_old_ones_offsets(log: Recording) -> None:
    """The group's acknowledgement may outlive the topic that it was for."""
    first = Fill(decisions=20_000, block=100, callers=50)
    second = Fill(decisions=60_000, block=100, callers=50, epoch=2)
    recorder = log.start()
    send_messages(log.bootstrap, first.messages())
    log.wait_for(first.total)
    recorder.stop(timeout_s=60)
    make_anew(log.bootstrap, DECISIONS.name, partitions=PARTITIONS)
    log.acknowledge(first.blocks // PARTITIONS)
    send_messages(log.bootstrap, second.messages())
    again = log.start()
    log.wait_for(first.total + second.total)

    assert _sum(first, second) == log.by_caller()
    log.wait_for_log(again, "reading it from its beginning")
