"""The writer: all of a flush is stored before it is reported, and an abandoned one is never reported."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pytest

from aggregator import writer as writer_module
from aggregator.core.fact_batches import DeadLetter
from aggregator.core.pending import Pending
from aggregator.dead_letters import DeadLetterTopic
from aggregator.log_reader import LogUnavailable
from aggregator.store import StoreRefused, StoreUnavailable
from aggregator.writer import Writer
from stream.contract.topics import DECISIONS
from tests.logfill import Fill

_LOG = logging.getLogger("test")


class _Store:
    """Keeps the tables' names, and fails as it is told, one fault a call."""

    def __init__(self, *faults: Exception) -> None:
        self.tables: list[str] = []
        self.faults = list(faults)

    def insert(self, table: str, batch: pa.Table) -> None:
        if self.faults:
            raise self.faults.pop(0)
        self.tables.append(table)

    def rows(self, sql: str, parameters: Mapping[str, Any] | None = None) -> Sequence[tuple[Any, ...]]:
        return [(0,)]

    def command(self, sql: str) -> None:
        raise NotImplementedError

    def close(self) -> None:
        pass


class _Topic(DeadLetterTopic):
    """Takes dead letters, after so many refusals."""

    def __init__(self, refusals: int = 0, refuse_at: int | None = None) -> None:
        super().__init__("nowhere:1", _LOG)
        self.sent: list[DeadLetter] = []
        self.calls: list[int] = []
        self._refusals = refusals
        self._refuse_at = refuse_at

    def send(self, letters: Sequence[DeadLetter]) -> None:
        self.calls.append(len(letters))
        if self._refusals:
            self._refusals -= 1
            raise LogUnavailable("Kafka is away: x")
        if self._refuse_at in {letter.log_offset for letter in letters}:
            self._refuse_at = None
            raise LogUnavailable("Kafka is away: x")
        self.sent.extend(letters)


def _flush() -> Pending:
    pending = Pending()
    for offset, (key, value) in enumerate(Fill(decisions=20, block=10, callers=3).messages()):
        pending.take(DECISIONS.name, 0, offset, key=key.encode(), value=value, seen_at_us=1)
    pending.take(DECISIONS.name, 0, 2, key=b"k", value=b"broken", seen_at_us=1)
    return pending


def test_writer_reports_a_flush_only_when_every_part_of_it_is_stored() -> None:
    """The offset that is committed then covers all of it; parts stored before a fault are not written again."""
    store, topic, flush = _Store(StoreUnavailable("away: 1"), StoreUnavailable("away: 2")), _Topic(refusals=1), _flush()
    writer = Writer(lambda: store, topic, _LOG)
    writer.start(flush)
    assert writer.busy
    assert writer.wait(10)
    assert flush is writer.take_written()
    assert ["decisions", "dead_letters", "blocks"] == store.tables
    assert [b"broken"] == [letter.payload for letter in topic.sent]
    assert not writer.busy


def test_writer_opens_the_store_again_until_it_answers() -> None:
    """The database may be away when the first rows come."""
    store, tries = _Store(), [StoreUnavailable("away: x")]

    def open_store() -> _Store:
        if tries:
            raise tries.pop()
        return store

    writer = Writer(open_store, _Topic(), _LOG)
    writer.start(_flush())
    assert writer.wait(10)
    assert writer.take_written() is not None


def test_writer_raises_what_no_repetition_can_heal() -> None:
    """A process that goes on would acknowledge nothing for ever and look alive."""
    writer = Writer(lambda: _Store(StoreRefused("no such column")), _Topic(), _LOG)
    writer.start(_flush())
    assert writer.wait(10)
    with pytest.raises(StoreRefused, match="no such column"):
        writer.take_written()


@pytest.mark.parametrize("faults", [[], [StoreUnavailable("away: x")] * 100])
def test_writer_never_reports_an_abandoned_flush(faults: list[Exception]) -> None:
    """Its partitions are another's: a commit for them could pass over what the other has not stored."""
    writer = Writer(lambda: _Store(*faults), _Topic(), _LOG)
    writer.start(_flush())
    writer.abandon()
    assert writer.wait(10)
    assert writer.take_written() is None
    assert not writer.busy


def test_writer_takes_one_flush_at_a_time() -> None:
    """Two would be unordered, and unbounded."""
    writer = Writer(lambda: _Store(*[StoreUnavailable("away: x")] * 100), _Topic(), _LOG)
    writer.start(_flush())
    with pytest.raises(RuntimeError, match="under way"):
        writer.start(_flush())
    writer.abandon()
    assert writer.wait(10)


def test_writer_sends_a_flood_of_dead_letters_in_parts_and_none_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """More than the client has room for were left out of the topic; and a slow broker would never be done with all."""
    monkeypatch.setattr(writer_module, "MAX_LETTERS", 4)
    topic, flush = _Topic(refuse_at=6), Pending()
    for offset in range(10):
        flush.take(DECISIONS.name, 0, offset, key=b"k", value=str(offset).encode(), seen_at_us=1)
    writer = Writer(_Store, topic, _LOG)
    writer.start(flush)
    assert writer.wait(10)
    assert writer.take_written() is flush
    assert [4, 4, 4, 2] == topic.calls, "the second part twice"
    assert [str(offset).encode() for offset in range(10)] == [letter.payload for letter in topic.sent]
