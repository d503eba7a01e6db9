"""The record after crashes and repetitions, without engines: what is read again, in whatever pieces, counts once."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pytest

from aggregator.config import AggregatorConfig
from aggregator.core.record.letters import DeadLetter
from aggregator.recorder import loop
from aggregator.recorder.dead_letters import DeadLetterTopic
from aggregator.recorder.messages import LogMessage, MessagePlace
from aggregator.recorder.writer import Writer
from aggregator.store import StoreUnavailable
from enforcer.types import Basis, Plan, Standing, Terms, Verdict
from stream.contract.codec import encode_block
from stream.contract.topics import DECISIONS
from tests.recordblocks import MIDNIGHT_US

_LOG = logging.getLogger("test")
_BASIS = Basis(Standing("acct-1", Terms("rate", Plan("pro", 10.0, 20), 3)), "/cards/{id}", MIDNIGHT_US, 4)
_COST = 10
_KEYS = {
    "decisions": ("copy_id", "epoch", "seq"),
    "blocks": ("copy_id", "epoch", "first_seq", "block_hash", "log_partition", "log_offset"),
    "recorded": ("topic", "log_partition", "log_id", "next_offset", "first_offset"),
}


def _block(first_seq: int, count: int = 1, *, cost: int = _COST) -> bytes:
    return encode_block(
        [Verdict(seq, 0, _BASIS, True, 0, cost, 5, 0) for seq in range(first_seq, first_seq + count)],
        copy_id="gw-1",
        epoch=1,
        first_seq=first_seq,
        sealed_at_us=MIDNIGHT_US + 1_000,
        clock_offset_ns=MIDNIGHT_US * 1_000,
    )


class _Table:
    """A database whose tables keep one row an identity, as read with FINAL; away while `away_at` is reached."""

    def __init__(self) -> None:
        self.tables: dict[str, dict[tuple[Any, ...], dict[str, Any]]] = {}
        self.away_at: int | None = None
        self.refusals = 0

    def insert(self, table: str, batch: pa.Table) -> None:
        rows = batch.to_pylist()
        if self.away_at is not None and any(row.get("log_offset", -1) >= self.away_at for row in rows):
            self.refusals += 1
            raise StoreUnavailable("away: full")
        for row in rows:
            key = tuple(row[name] for name in _KEYS.get(table, row))
            self.tables.setdefault(table, {})[key] = row

    def rows(self, sql: str, parameters: Mapping[str, Any] | None = None) -> Sequence[tuple[Any, ...]]:
        blocks = self.tables.get("blocks", {}).values()
        if "low" not in (parameters or {}):
            return [(max((row["first_seq"] + row["decisions"] for row in blocks), default=0),)]
        names = ("first_seq", "decisions", "block_hash", "log_partition", "log_offset", "log_id")
        return [(*(row[name] for name in names), 7) for row in blocks]

    def command(self, sql: str, parameters: Mapping[str, Any] | None = None) -> None:
        raise NotImplementedError

    def close(self) -> None:
        pass

    @property
    def seqs(self) -> list[int]:
        return sorted(row["seq"] for row in self.tables.get("decisions", {}).values())

    @property
    def cost(self) -> int:
        return sum(row["cost_tokens"] for row in self.tables["decisions"].values())

    @property
    def repeated(self) -> int:
        blocks = self.tables["blocks"].values()
        return len(blocks) - len({(row["first_seq"], row["block_hash"]) for row in blocks})


class _Asleep(_Table):
    """The same tables, as a process that is frozen before its first row uses them: it goes on when it is woken."""

    def __init__(self, shared: _Table) -> None:
        super().__init__()
        self.tables = shared.tables
        self.reached, self.woken = threading.Event(), threading.Event()

    def insert(self, table: str, batch: pa.Table) -> None:
        self.reached.set()
        assert self.woken.wait(60)
        super().insert(table, batch)


class _Log:
    """One partition of the log, read from where it was committed, some messages at a time."""

    def __init__(self, messages: Sequence[bytes], pieces: Sequence[int]) -> None:
        self._messages, self._pieces = messages, list(pieces)
        self.log_ids = {DECISIONS.name: "log-1"}
        self.went_back = False
        self.committed = self._next = 0

    def restart(self, pieces: Sequence[int]) -> None:
        self._next, self._pieces = self.committed, list(pieces)

    def read(self, _most: int, _timeout_s: float) -> list[LogMessage]:
        count = self._pieces.pop(0) if self._pieces else 0
        first, self._next = self._next, min(self._next + count, len(self._messages))
        return [
            LogMessage(MessagePlace(DECISIONS.name, 0, offset), b"gw-1", self._messages[offset])
            for offset in range(first, self._next)
        ]

    def resume(self) -> None:
        """It never pauses."""

    def pause(self) -> None:
        """It has no end of messages anyway."""

    def commit(self, next_offsets: Mapping[tuple[str, int], int]) -> None:
        self.committed = max(self.committed, *next_offsets.values())


class _NoTopic(DeadLetterTopic):
    def send(self, letters: Sequence[DeadLetter]) -> None:
        raise AssertionError(f"{len(letters)} dead letters")


def _recorder(monkeypatch: pytest.MonkeyPatch, log: _Log, store: _Table) -> loop.Recorder:
    monkeypatch.setattr(loop, "LogReader", lambda *_, **__: log)
    writer = Writer(lambda: store, _NoTopic("nowhere:1", _LOG), _LOG, unix_us=lambda: MIDNIGHT_US)
    config = AggregatorConfig.from_env({"TALLYGATE_FLUSH_DECISIONS": "1"})
    return loop.Recorder(config, writer, _LOG, unix_us=lambda: MIDNIGHT_US)


def _until(recorder: loop.Recorder, reached: Callable[[], bool]) -> None:
    """Let it work until then, and leave it there, as a kill would."""
    until_s = time.monotonic() + 60
    while not reached():
        assert time.monotonic() < until_s
        recorder.step()
        if recorder._writer.busy:
            recorder._writer.wait(0.02)


def test_replay_of_what_was_stored_and_not_committed_counts_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """R1, R6: five blocks of cost 10 stored, killed before the commit, read again: 5 decisions, 50 tokens."""
    store, log = _Table(), _Log([_block(seq) for seq in range(5)], [5])
    _until(_recorder(monkeypatch, log, store), lambda: len(store.seqs) == 5)
    log.committed = 0
    log.restart([5])
    _until(_recorder(monkeypatch, log, store), lambda: log.committed == 5)
    assert (list(range(5)), 5 * _COST, 0) == (store.seqs, store.cost, store.repeated)


def test_replay_in_other_pieces_counts_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """R5: offsets 0 to 199 stored, killed, read again as 0 to 149 and 150 to 279: 280."""
    store, log = _Table(), _Log([_block(seq) for seq in range(280)], [200])
    _until(_recorder(monkeypatch, log, store), lambda: len(store.seqs) == 200)
    log.committed = 0
    log.restart([150, 130])
    _until(_recorder(monkeypatch, log, store), lambda: log.committed == 280)
    assert (list(range(280)), 280 * _COST, 0) == (store.seqs, store.cost, store.repeated)
    ends = {(row["first_offset"], row["next_offset"]) for row in store.tables["recorded"].values()}
    assert ends >= {(0, 150), (150, 280)}


def test_recorder_that_was_frozen_before_it_wrote_changes_nothing_when_it_wakes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its session is over and another has recorded the same messages, in other pieces, before it writes its own."""
    store = _Table()
    messages = [_block(seq) for seq in range(5)]
    log, others_log = _Log(messages, [5]), _Log(messages, [2, 3])
    frozen = _recorder(monkeypatch, log, asleep := _Asleep(store))
    _until(frozen, asleep.reached.is_set)
    _until(_recorder(monkeypatch, others_log, store), lambda: others_log.committed == 5)
    asleep.woken.set()
    _until(frozen, lambda: log.committed == 5)
    assert (list(range(5)), 5 * _COST, 0) == (store.seqs, store.cost, store.repeated)
    assert "conflicts" not in store.tables


def test_repetition_and_new_cuts_of_a_producer_count_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """R2, R3: e1, e1, e2; then the same seqs cut anew, one of them with another cost: the first in the log counts."""
    store = _Table()
    log = _Log([_block(0), _block(0), _block(1), _block(0, 4), _block(3, 2, cost=99)], [1, 2, 2])
    _until(_recorder(monkeypatch, log, store), lambda: log.committed == 5)
    assert ([0, 1, 2, 3, 4], 4 * _COST + 99) == (store.seqs, store.cost)
    assert 1 == store.repeated
    assert [0, 1, 3] == sorted(row["seq"] for row in store.tables["conflicts"].values())


def test_block_that_cannot_be_stored_yet_is_not_acknowledged(monkeypatch: pytest.MonkeyPatch) -> None:
    """R21: offsets 0 to 9, the one at 4 fails for now: committed up to 4, and ten after the restart."""
    store, log = _Table(), _Log([_block(seq) for seq in range(10)], [1] * 10)
    store.away_at = 4
    recorder = _recorder(monkeypatch, log, store)
    _until(recorder, lambda: store.refusals > 0 and log.committed == 4)
    assert (4, [0, 1, 2, 3]) == (log.committed, store.seqs)
    recorder._writer.abandon()
    store.away_at = None
    log.restart([3, 3])
    _until(_recorder(monkeypatch, log, store), lambda: log.committed == 10)
    assert (list(range(10)), 10 * _COST, 0) == (store.seqs, store.cost, store.repeated)
