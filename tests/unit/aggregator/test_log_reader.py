"""The recorder's reader as it leaves: what is read is committed, if that can be had in time."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import (
    OFFSET_BEGINNING,
    TIMESTAMP_LOG_APPEND_TIME,
    KafkaError,
    KafkaException,
    TopicPartition,
)

from aggregator.broker import LogUnavailable
from aggregator.group.view import GroupNow
from aggregator.recorder import log_reader
from aggregator.recorder.log_reader import LogReader
from aggregator.recorder.standing import Standing

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

    def consume(self, _most: int, _timeout_s: float) -> list[Any]:
        self._answer("consume")
        return []

    def close(self) -> None:
        self._answer("close")

    def _answer(self, call: str) -> None:
        self.calls.append(call)
        if call in self._silent:
            self.released.wait()


class _Group:
    """A group that is formed, or being formed for so many looks, or of which nothing can be told."""

    def __init__(self, *, forming: int = 0, silent: bool = False) -> None:
        self.bootstrap, self.group = "nowhere:1", "group"
        self._forming, self._silent = forming, silent

    def look(self) -> GroupNow:
        if self._silent:
            raise LogUnavailable("nowhere:1 does not answer")
        self._forming -= 1
        return GroupNow("being formed", None, forming=self._forming >= 0, members=None)


@pytest.fixture
def clients() -> Iterator[list[_Client]]:
    made: list[_Client] = []
    yield made
    for client in made:
        client.released.set()


def _reader(monkeypatch: pytest.MonkeyPatch, client: _Client, group: _Group | None = None) -> LogReader:
    monkeypatch.setattr(log_reader, "Consumer", lambda _settings: client)
    monkeypatch.setattr(log_reader, "GroupView", lambda *_, **__: group or _Group())
    return LogReader(
        "nowhere:1",
        "group",
        ["t"],
        session_timeout_ms=3_000,
        find_standing=lambda: Standing({}, {}),
        on_revoked=lambda: None,
        log=_LOG,
    )


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


def test_reader_waits_until_its_group_is_formed_before_it_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    """A leader that leaves while it is joining is waited for, for ever, by the embedded broker."""
    client = _Client()
    assert _reader(monkeypatch, client, _Group(forming=2)).leave({("t", 3): 7}, within_s=60)
    assert ["commit", "consume", "consume", "close"] == client.calls


@pytest.mark.parametrize("group", [_Group(forming=1_000_000), _Group(silent=True)], ids=["forming", "silent"])
def test_reader_ends_without_leaving_where_that_may_do_harm(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, group: _Group
) -> None:
    """A member that falls silent is put out of its group once its session is over; no harm can come of that."""
    client = _Client()
    with caplog.at_level(logging.WARNING):
        assert not _reader(monkeypatch, client, group).leave({("t", 3): 7}, within_s=0.01)
    assert "close" not in client.calls
    assert "without saying so" in caplog.text


class _Rewound:
    """A client whose partition is read up to 7, and then from 0: the topic was made anew."""

    def __init__(self) -> None:
        self.batches = [[], [_Message(5), _Message(6)], [_Message(7), _Message(0), _Message(1)], [_Message(2)]]
        self.assigned: list[list[tuple[str, int, int]]] = []

    def subscribe(self, *_: Any, **__: Any) -> None:
        """It has what it has."""

    def consume(self, _most: int, _timeout_s: float) -> list[_Message]:
        return self.batches.pop(0)

    def assignment(self) -> list[TopicPartition]:
        return [TopicPartition("t", 3)]

    def committed(self, places: list[TopicPartition], timeout: float) -> list[TopicPartition]:
        return [TopicPartition(place.topic, place.partition, 5) for place in places]

    def get_watermark_offsets(self, _place: TopicPartition, timeout: float) -> tuple[int, int]:
        return 0, 3

    def assign(self, places: list[TopicPartition]) -> None:
        self.assigned.append([(place.topic, place.partition, place.offset) for place in places])


class _Message:
    """A message of the client, at an offset."""

    def __init__(self, offset: int) -> None:
        self._offset = offset

    def error(self) -> None:
        return None

    def topic(self) -> str:
        return "t"

    def partition(self) -> int:
        return 3

    def offset(self) -> int:
        return self._offset

    def timestamp(self) -> tuple[int, int]:
        return TIMESTAMP_LOG_APPEND_TIME, 12

    def key(self) -> bytes:
        return b"k"

    def value(self) -> bytes:
        return b"v"


def test_reader_takes_nothing_of_a_log_whose_offsets_fell_until_it_starts_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What comes of another log must not stand under the id of the one before; it is read again from its beginning."""
    client = _Rewound()
    standings = [Standing({"t": "old"}, {("t", 3): 5}), Standing({"t": "new"}, {})]
    monkeypatch.setattr(log_reader, "Consumer", lambda _settings: client)
    reader = LogReader(
        "nowhere:1",
        "group",
        ["t"],
        session_timeout_ms=3_000,
        find_standing=lambda: standings.pop(0),
        on_revoked=lambda: None,
        log=_LOG,
    )
    assert [] == reader.read(10, 0)
    assert ([[("t", 3, 5)]], {"t": "old"}) == (client.assigned, reader.log_ids)
    assert [(5, 12_000), (6, 12_000)] == [(one.place.offset, one.appended_us) for one in reader.read(10, 0)]
    assert [7] == [one.place.offset for one in reader.read(10, 0)]
    assert reader.went_back
    reader.start_over()
    assert [] == reader.read(10, 0)
    assert (("t", 3, OFFSET_BEGINNING), {"t": "new"}) == (client.assigned[-1][0], reader.log_ids)
    assert not reader.went_back
