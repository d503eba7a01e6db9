"""The recorder's loop without a broker and a database: what it holds, and when it stops reading."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from itertools import count
from typing import Any

import pytest

from aggregator.config import AggregatorConfig
from aggregator.core.record.pending import Pending
from aggregator.recorder import loop as recorder
from aggregator.recorder.dead_letters import DeadLetterTopic
from aggregator.recorder.messages import LogMessage, MessagePlace
from aggregator.recorder.writer import Writer
from enforcer.identity import CopyIdentity
from stream.contract.codec import encode_block
from stream.contract.control import CopyStarted, encode_control
from stream.contract.facts import encode_facts
from stream.contract.topics import CONTROL, DECISIONS, GRANTS
from tests.recordblocks import MIDNIGHT_US

_LOG = logging.getLogger("test")
_COPY = CopyIdentity("gw-1", 7)
_BOUND = 1_000_000


class _Flood:
    """A reader to which the same message comes without end."""

    def __init__(self, topic: str, value: bytes) -> None:
        self._topic, self._value, self._offsets = topic, value, count()
        self.read_messages, self._paused = 0, False
        self.log_ids: dict[str, str] = {}
        self.went_back = False

    def read(self, most: int, _timeout_s: float) -> list[LogMessage]:
        if self._paused:
            return []
        self.read_messages += most
        return [LogMessage(MessagePlace(self._topic, 0, next(self._offsets)), b"key", self._value) for _ in range(most)]

    def pause(self) -> None:
        self._paused = True

    def resume(self) -> None:
        self._paused = False

    def commit(self, next_offsets: Mapping[tuple[str, int], int]) -> None:
        raise AssertionError(f"committed {next_offsets}, and nothing was stored")


class _StuckWriter(Writer):
    """Takes a flush and never gets it stored."""

    def __init__(self) -> None:
        super().__init__(_no_store, DeadLetterTopic("nowhere:1", _LOG), _LOG, unix_us=lambda: MIDNIGHT_US)
        self.flushes: list[Pending] = []

    @property
    def busy(self) -> bool:
        return bool(self.flushes)

    def start(self, flush: Pending) -> None:
        self.flushes.append(flush)

    def wait(self, timeout_s: float) -> bool:
        return False

    def take_written(self) -> Pending | None:
        return None


def _no_store() -> Any:
    raise NotImplementedError


_EMPTY_BLOCK = encode_block([], copy_id="gw-1", epoch=7, first_seq=0, sealed_at_us=MIDNIGHT_US, clock_offset_ns=0)


@pytest.mark.parametrize(
    ("topic", "value"),
    [
        pytest.param(DECISIONS.name, _EMPTY_BLOCK, id="heartbeats"),
        pytest.param(DECISIONS.name, b"", id="empty dead letters"),
        pytest.param(DECISIONS.name, bytes(9_000), id="large dead letters"),
        pytest.param(GRANTS.name, encode_facts(_COPY, [], []), id="facts"),
        pytest.param(
            CONTROL.name, encode_control(CopyStarted(copy_id="gw-1", epoch=7, at_us=MIDNIGHT_US)), id="control events"
        ),
    ],
)
def test_recorder_stops_reading_what_holds_no_decision(
    monkeypatch: pytest.MonkeyPatch, topic: str, value: bytes
) -> None:
    """While the database is away, a flood of anything must stay in the log and not fill the memory."""
    flood, writer = _Flood(topic, value), _StuckWriter()
    monkeypatch.setattr(recorder, "LogReader", lambda *_, **__: flood)
    config = AggregatorConfig.from_env({"TALLYGATE_FLUSH_BYTES": str(_BOUND), "TALLYGATE_FLUSH_MS": "60000"})
    made = recorder.Recorder(config, writer, _LOG, unix_us=lambda: MIDNIGHT_US)

    for _ in range(200):
        made.step()

    (handed_on,) = writer.flushes
    assert handed_on.held_bytes >= _BOUND, "not before it was full"
    assert flood.read_messages * len(value) <= 2 * _BOUND
    assert flood.read_messages < 200 * 64


def test_recorder_says_one_line_for_many_dead_letters(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Each has its row; a line each would fill the disk of the log as fast as they come."""
    monkeypatch.setattr(recorder, "LogReader", lambda *_, **__: _Flood(DECISIONS.name, b"junk"))
    made = recorder.Recorder(AggregatorConfig.from_env({}), _StuckWriter(), _LOG, unix_us=lambda: MIDNIGHT_US)

    with caplog.at_level(logging.WARNING):
        made.step()

    (line,) = [record.getMessage() for record in caplog.records]
    assert line.startswith("dead letter tallygate.decisions[0]@0: ")
    assert "63 more" in line
