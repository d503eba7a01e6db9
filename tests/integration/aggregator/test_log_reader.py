"""The recorder's reader through the group's changes: whatever it was doing when partitions moved, it reads on."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer

from aggregator.recorder.log_reader import LogReader
from aggregator.recorder.messages import MessagePlace
from aggregator.recorder.standing import Standing
from stream.contract.topics import CONTROL, DECISIONS, GRANTS
from tests.integration.aggregator.recording import GROUP, Recording, recording
from tests.processes import wait_until
from tests.services import KafkaService

_TOPICS = (DECISIONS.name, GRANTS.name, CONTROL.name)


_SESSION_MS = 3_000
#: Where several sessions are waited for.
_SHORT_MS = 1_500
#: The embedded broker takes half of a session to form a group, Apache Kafka three seconds.
_JOINING_S = 0.5
#: What a stop leaves for the group, see `aggregator.recorder.loop`.
_LEAVE_S = 12.0


@pytest.fixture
def log(kafka_broker: KafkaService, database_dsn: str, tmp_path: Path) -> Iterator[Recording]:
    """An empty log and an empty record."""
    with recording(kafka_broker.bootstrap, database_dsn, tmp_path) as made:
        yield made


def _made(log: Recording, revocations: list[None] | None = None, session_ms: int = _SESSION_MS) -> LogReader:
    told = [] if revocations is None else revocations
    return LogReader(
        log.bootstrap,
        GROUP,
        _TOPICS,
        session_timeout_ms=session_ms,
        find_standing=lambda: Standing({}, {}),
        on_revoked=lambda: told.append(None),
        log=logging.getLogger(__name__),
    )


@contextmanager
def _reader(log: Recording, session_ms: int = _SESSION_MS) -> Iterator[tuple[LogReader, list[None]]]:
    revocations: list[None] = []
    reader = _made(log, revocations, session_ms)
    try:
        yield reader, revocations
    finally:
        reader.leave({}, within_s=60)


def test_reader_reads_after_one_that_was_stopped_while_it_joined(
    log: Recording, caplog: pytest.LogCaptureFixture
) -> None:
    """A recorder that is restarted a second after its start must not silence the record for good.

    The embedded broker goes on naming a leader that left while the group was being formed, and waits for it.
    """
    log.send([("key", b"value")])
    first = _made(log)
    _read_for(first, _JOINING_S)
    first.leave({}, within_s=_LEAVE_S)
    with _reader(log) as (second, _):
        _read_until_all_came(second, 1)
    assert "joining it anew" not in caplog.text


def test_reader_heals_a_group_whose_leader_left_while_it_joined(
    embedded_broker: KafkaService, database_dsn: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Whoever left it in that state, a recorder says what it waits for, and does not wait for ever."""
    with recording(embedded_broker.bootstrap, database_dsn, tmp_path) as log:
        log.send([("key", b"value")])
        leader = Consumer({"bootstrap.servers": log.bootstrap, "group.id": GROUP, "session.timeout.ms": _SHORT_MS})
        leader.subscribe(list(_TOPICS))
        leader.consume(1, _JOINING_S)
        leader.close()
        with _reader(log, _SHORT_MS) as (reader, _):
            _read_until_all_came(reader, 1)
    assert f"the group {GROUP} waits for its leader rdkafka-" in caplog.text


def _read_for(reader: LogReader, seconds: float) -> None:
    until_s = time.monotonic() + seconds
    while time.monotonic() < until_s:
        reader.read(100, 0.05)


def _read_until_all_came(reader: LogReader, count: int) -> None:
    """Read until so many places of the log were seen; after a rebalance some come again."""
    found: set[MessagePlace] = set()

    def enough() -> bool:
        found.update(message.place for message in reader.read(100, 0.1))
        return len(found) >= count

    wait_until(enough, 120.0, what=f"{count} messages")
    assert count == len(found)


def test_reader_that_was_paused_when_partitions_moved_reads_on(log: Recording) -> None:
    """The client keeps a partition paused through a rebalance; a full recorder must not stay deaf for that."""
    messages = [(f"key-{number}", b"value") for number in range(40)]
    log.send(messages)
    with _reader(log) as (first, revocations):
        _read_until_all_came(first, len(messages))
        first.pause()
        with _reader(log) as (second, _):

            def moved() -> bool:
                second.read(100, 0.05)
                return not first.read(100, 0.05) and bool(revocations)

            wait_until(moved, 120.0, what="a rebalance")
        first.resume()
        _read_until_all_came(first, len(messages))
