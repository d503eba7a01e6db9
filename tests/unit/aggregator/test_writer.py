"""The writer: all of a flush is stored before it is reported, and an abandoned one is never reported."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pytest

from aggregator.broker import LogUnavailable
from aggregator.core.record.batches import Gathered
from aggregator.core.record.letters import DeadLetter
from aggregator.core.record.pending import Pending
from aggregator.core.record.repeats import block_span_of
from aggregator.recorder import writer as writer_module
from aggregator.recorder.dead_letters import DeadLetterTopic
from aggregator.recorder.writer import Writer
from aggregator.store import StoreRefused, StoreUnavailable
from stream.contract.topics import DECISIONS
from tests.logfill import Fill
from tests.recordblocks import MIDNIGHT_US, Made, at, make_block

_LOG = logging.getLogger("test")
#: The first rows of a process may wait for imports; nothing here waits for time to pass.
_PATIENCE_S = 60


def _now() -> int:
    return MIDNIGHT_US


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

    def arrow(self, sql: str, parameters: Mapping[str, Any] | None = None) -> pa.Table:
        raise NotImplementedError

    def command(self, sql: str, parameters: Mapping[str, Any] | None = None) -> None:
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
    writer = Writer(lambda: store, topic, _LOG, unix_us=_now)
    writer.start(flush)
    assert writer.busy
    assert writer.wait(_PATIENCE_S)
    assert flush is writer.take_written()
    assert ["terms", "decisions", "dead_letters", "blocks", "recorded"] == store.tables
    assert [b"broken"] == [letter.payload for letter in topic.sent]
    assert not writer.busy


def test_writer_opens_the_store_again_until_it_answers() -> None:
    """The database may be away when the first rows come."""
    store, tries = _Store(), [StoreUnavailable("away: x")]

    def open_store() -> _Store:
        if tries:
            raise tries.pop()
        return store

    writer = Writer(open_store, _Topic(), _LOG, unix_us=_now)
    writer.start(_flush())
    assert writer.wait(_PATIENCE_S)
    assert writer.take_written() is not None


def test_writer_raises_what_no_repetition_can_heal() -> None:
    """A process that goes on would acknowledge nothing for ever and look alive."""
    writer = Writer(lambda: _Store(StoreRefused("no such column")), _Topic(), _LOG, unix_us=_now)
    writer.start(_flush())
    assert writer.wait(_PATIENCE_S)
    with pytest.raises(StoreRefused, match="no such column"):
        writer.take_written()


@pytest.mark.parametrize("faults", [[], [StoreUnavailable("away: x")] * 100])
def test_writer_never_reports_an_abandoned_flush(faults: list[Exception]) -> None:
    """Its partitions are another's: a commit for them could pass over what the other has not stored."""
    writer = Writer(lambda: _Store(*faults), _Topic(), _LOG, unix_us=_now)
    writer.start(_flush())
    writer.abandon()
    assert writer.wait(_PATIENCE_S)
    assert writer.take_written() is None
    assert not writer.busy


def test_writer_takes_one_flush_at_a_time() -> None:
    """Two would be unordered, and unbounded."""
    writer = Writer(lambda: _Store(*[StoreUnavailable("away: x")] * 100), _Topic(), _LOG, unix_us=_now)
    writer.start(_flush())
    with pytest.raises(RuntimeError, match="under way"):
        writer.start(_flush())
    writer.abandon()
    assert writer.wait(_PATIENCE_S)


def test_writer_sends_a_flood_of_dead_letters_in_parts_and_none_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """More than the client has room for were left out of the topic; and a slow broker would never be done with all."""
    monkeypatch.setattr(writer_module, "MAX_LETTERS", 4)
    topic, flush = _Topic(refuse_at=6), Pending()
    for offset in range(10):
        flush.take(DECISIONS.name, 0, offset, key=b"k", value=str(offset).encode(), seen_at_us=1)
    writer = Writer(_Store, topic, _LOG, unix_us=_now)
    writer.start(flush)
    assert writer.wait(_PATIENCE_S)
    assert writer.take_written() is flush
    assert [4, 4, 4, 2] == topic.calls, "the second part twice"
    assert [str(offset).encode() for offset in range(10)] == [letter.payload for letter in topic.sent]


class _Record(_Store):
    """Answers what is recorded of the one epoch as it is told, and keeps what is inserted."""

    def __init__(self) -> None:
        super().__init__()
        self.spans: list[tuple[Any, ...]] = []
        self.inserted: list[tuple[str, list[int]]] = []

    def insert(self, table: str, batch: pa.Table) -> None:
        if table in {"decisions", "conflicts"}:
            self.inserted.append((table, batch.column("seq").to_pylist()))

    def rows(self, sql: str, parameters: Mapping[str, Any] | None = None) -> Sequence[tuple[Any, ...]]:
        if "low" in (parameters or {}):
            return self.spans
        return [(max((first + count for first, count, *_ in self.spans), default=0),)]


def _flush_of(offset: int, first_seq: int, costs: Sequence[int]) -> Pending:
    pending = Pending()
    pending.blocks = [at(make_block([Made(cost=cost) for cost in costs], first_seq=first_seq), offset)]
    pending.first_offsets["t", 0], pending.next_offsets["t", 0] = offset, offset + 1
    return pending


def _written(writer: Writer, flush: Pending) -> None:
    writer.start(flush)
    assert writer.wait(_PATIENCE_S)
    assert writer.take_written() is flush


def test_writer_asks_the_record_again_after_partitions_moved_between_two_flushes() -> None:
    """Another member recorded meanwhile: what is remembered would pass a contradiction as a decision."""
    store = _Record()
    writer = Writer(lambda: store, _Topic(), _LOG, unix_us=_now)
    _written(writer, _flush_of(1, 0, [1, 1, 1]))

    writer.abandon()
    others = [at(make_block([Made(cost=1)] * 3, first_seq=first), offset) for first, offset in ((0, 1), (3, 2))]
    store.spans = [(*dataclasses.astuple(block_span_of(other)), MIDNIGHT_US) for other in others]
    _written(writer, _flush_of(3, 3, [8, 8, 8, 8]))

    assert [("decisions", [0, 1, 2]), ("decisions", [6]), ("conflicts", [3, 4, 5])] == store.inserted


def test_writer_that_was_abandoned_before_its_flush_was_fetched_asks_again() -> None:
    """The flush was stored, but whose it was then is not known."""
    store = _Record()
    writer = Writer(lambda: store, _Topic(), _LOG, unix_us=_now)
    writer.start(_flush_of(1, 0, [1]))
    assert writer.wait(_PATIENCE_S)
    writer.abandon()
    assert writer.take_written() is None

    store.spans = [(*dataclasses.astuple(block_span_of(at(make_block([Made(cost=1)] * 5), 2))), MIDNIGHT_US)]
    _written(writer, _flush_of(3, 1, [8]))

    assert [("decisions", [0]), ("conflicts", [1])] == store.inserted


class _Dying(_Record):
    """Takes so many INSERTs, then its client is gone for good."""

    def __init__(self, inserts: int) -> None:
        super().__init__()
        self._left = inserts
        self.rows_of: dict[str, list[dict[str, Any]]] = {}

    def insert(self, table: str, batch: pa.Table) -> None:
        if not self._left:
            raise StoreRefused("killed here")
        self._left -= 1
        self.rows_of.setdefault(table, []).extend(batch.to_pylist())


def _two_days() -> Pending:
    """A flush of one block on two days (two INSERTs), an unreadable message, and an empty block of another month."""
    pending = Pending({DECISIONS.name: "log-1"})
    made = [Made(at_us=MIDNIGHT_US - 1), Made("b", at_us=MIDNIGHT_US)]
    pending.take(DECISIONS.name, 0, 4, key=b"k", value=b"broken", seen_at_us=1)
    pending.blocks = [
        at(make_block(made), 5),
        at(make_block([], first_seq=2, sealed_at_us=MIDNIGHT_US - 40 * 86_400_000_000), 6),
    ]
    pending.next_offsets[DECISIONS.name, 0] = 7
    return pending


def test_writer_killed_anywhere_leaves_a_journal_that_claims_only_what_is_stored() -> None:
    """R1: totals are made of what the journal names; a claim that came too early would stay wrong for ever."""
    whole = _Dying(inserts=100)
    _written(Writer(lambda: whole, _Topic(), _LOG, unix_us=_now), _two_days())
    (row,) = whole.rows_of["recorded"]
    assert ("log-1", 4, 7, 2) == tuple(row[name] for name in ("log_id", "first_offset", "next_offset", "decisions"))
    assert [MIDNIGHT_US // 60_000_000 - 1, MIDNIGHT_US // 60_000_000] == row["minutes"]

    for inserts in range(sum(1 for _ in _two_days().batches(Gathered([]), [])) + 3):
        killed = _Dying(inserts)
        writer = Writer(lambda killed=killed: killed, _Topic(), _LOG, unix_us=_now)  # type: ignore[misc]
        writer.start(_two_days())
        assert writer.wait(_PATIENCE_S)
        if "recorded" in killed.rows_of:
            assert killed.rows_of == whole.rows_of
        if "blocks" in killed.rows_of:
            assert killed.rows_of["decisions"] == whole.rows_of["decisions"]


def test_writer_stamps_rows_when_they_are_stored_and_keeps_the_stamp_of_a_replay() -> None:
    """What the record was at a time is asked by it: an outage must not date rows back, nor a replay make them new."""
    clock = iter(range(1_000, 2_000))
    store = _Dying(inserts=100)
    store.faults = [StoreUnavailable("away: x")] * 3
    block = at(make_block([Made()], first_seq=0), 3)
    store.spans = [(*dataclasses.astuple(block_span_of(block)), 77)]
    pending = _flush_of(3, 0, [1])
    pending.blocks.append(at(make_block([Made()], first_seq=1), 4))
    _written(Writer(lambda: store, _Topic(), _LOG, unix_us=lambda: next(clock)), pending)
    first, second = (row["stored_at"].timestamp() for row in store.rows_of["blocks"])
    assert 77e-6 == pytest.approx(first)
    assert 1_000e-6 < second < store.rows_of["recorded"][0]["stored_at"].timestamp()


def test_writer_writes_the_terms_of_a_caller_once_and_again_only_if_it_does_not_know() -> None:
    """They change with the policy, not with the request; and what was not stored is not taken for stored."""
    store = _Dying(inserts=1)
    writer = Writer(lambda: store, _Topic(), _LOG, unix_us=_now)
    writer.start(_flush_of(1, 0, [1]))
    assert writer.wait(_PATIENCE_S)
    with pytest.raises(StoreRefused):
        writer.take_written()
    store._left = 100
    _written(writer, _flush_of(2, 1, [1]))
    assert 1 == len(store.rows_of["terms"])
    (row,) = store.rows_of["terms"]
    assert ("acct-1", "sustained", 3, "pro", 10.0, 20, "", 1) == tuple(
        row[name] for name in ("caller", "limit", "policy_version", "plan", "rate_per_s", "burst", "per", "log_offset")
    )
