"""The recorder's reader as it leaves: what is read is committed, if that can be had in time."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from aggregator.recorder import log_reader
from aggregator.recorder.log_reader import LogReader

_LOG = logging.getLogger("test")


class _Client:
    """A consumer that answers at once, or never."""

    def __init__(self, *, silent: frozenset[str] = frozenset(), refuses: bool = False) -> None:
        self._silent, self._refuses = silent, refuses
        self.calls: list[str] = []
        self.committed: list[tuple[str, int, int]] = []
        self.released = threading.Event()

    def subscribe(self, *_: Any, **__: Any) -> None:
        """There is nothing to read."""

    def commit(self, *, offsets: list[TopicPartition], asynchronous: bool) -> None:
        assert not asynchronous
        self._answer("commit")
        if self._refuses:
            raise KafkaException(KafkaError(KafkaError.NOT_COORDINATOR))
        self.committed = [(place.topic, place.partition, place.offset) for place in offsets]

    def close(self) -> None:
        self._answer("close")

    def _answer(self, call: str) -> None:
        self.calls.append(call)
        if call in self._silent:
            self.released.wait()


@pytest.fixture
def clients() -> Iterator[list[_Client]]:
    made: list[_Client] = []
    yield made
    for client in made:
        client.released.set()


def _reader(monkeypatch: pytest.MonkeyPatch, client: _Client) -> LogReader:
    monkeypatch.setattr(log_reader, "Consumer", lambda _settings: client)
    return LogReader("nowhere:1", "group", ["t"], session_timeout_ms=3_000, on_revoked=lambda: None, log=_LOG)


def test_reader_commits_before_it_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is stored is not read again after a deployment."""
    client = _Client()
    assert _reader(monkeypatch, client).leave({("t", 3): 7}, within_s=60)
    assert ["commit", "close"] == client.calls
    assert [("t", 3, 7)] == client.committed


@pytest.mark.parametrize("silent", ["commit", "close"])
def test_reader_leaves_without_an_answer_once_its_time_is_up(
    monkeypatch: pytest.MonkeyPatch, clients: list[_Client], caplog: pytest.LogCaptureFixture, silent: str
) -> None:
    """A broker that stands still must not hold the process until it is killed."""
    client = _Client(silent=frozenset({silent}))
    clients.append(client)
    with caplog.at_level(logging.WARNING):
        assert not _reader(monkeypatch, client).leave({("t", 3): 7}, within_s=0.01)
    assert "nowhere:1" in caplog.text
    assert "read again" in caplog.text


def test_reader_leaves_though_the_commit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rows are the same when they are written again."""
    client = _Client(refuses=True)
    assert _reader(monkeypatch, client).leave({("t", 3): 7}, within_s=60)
    assert ["commit", "close"] == client.calls
