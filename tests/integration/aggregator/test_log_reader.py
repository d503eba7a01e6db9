"""The recorder's reader through the group's changes: whatever it was doing when partitions moved, it reads on."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from aggregator.recorder.log_reader import LogReader, Place
from stream.contract.topics import CONTROL, DECISIONS, GRANTS
from tests.integration.aggregator.recording import GROUP, Recording, recording
from tests.processes import wait_until
from tests.services import KafkaService

_TOPICS = (DECISIONS.name, GRANTS.name, CONTROL.name)


@pytest.fixture
def log(kafka_broker: KafkaService, database_dsn: str, tmp_path: Path) -> Iterator[Recording]:
    """An empty log and an empty record."""
    with recording(kafka_broker.bootstrap, database_dsn, tmp_path) as made:
        yield made


@contextmanager
def _reader(log: Recording) -> Iterator[tuple[LogReader, list[None]]]:
    revocations: list[None] = []
    reader = LogReader(
        log.bootstrap,
        GROUP,
        _TOPICS,
        session_timeout_ms=3_000,
        on_revoked=lambda: revocations.append(None),
        log=logging.getLogger(__name__),
    )
    try:
        yield reader, revocations
    finally:
        reader.leave({}, within_s=60)


def _read_until_all_came(reader: LogReader, count: int) -> None:
    """Read until so many places of the log were seen; after a rebalance some come again."""
    found: set[Place] = set()

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
