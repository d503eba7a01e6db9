"""The sink contract on the fakes that we ship."""

from __future__ import annotations

import pytest

from enforcer.sink import Sink
from enforcer.testing import RecordingSink
from stream.config import StreamConfig
from stream.contract.topics import CONTROL, DECISIONS, GRANTS
from stream.memory import MemorySink
from tests.contract.sink import Kept, SinkContract, SinkRig, decision
from tests.contract.stream.log_kept import kept_of
from tests.log_reader import Log
from tests.verdicts import IDENTITY


class RecordingRig(SinkRig):
    """A sink that keeps objects; what comes after the close is not looked at."""

    def __init__(self) -> None:
        self._sink = RecordingSink()

    @property
    def sink(self) -> Sink:
        return self._sink

    def kept(self, decisions: int) -> Kept:
        taken = sorted(self._sink.verdicts, key=lambda one: one.seq)
        rows = [decision(one) for one in taken]
        return Kept(rows, self._sink.grants, self._sink.settlements, self._sink.changes)


class MemoryRig(SinkRig):
    """The blocks of the real sink, without a broker."""

    def __init__(self) -> None:
        self._sink = MemorySink(StreamConfig(), IDENTITY)

    @property
    def sink(self) -> Sink:
        return self._sink

    def kept(self, decisions: int) -> Kept:
        log = Log()
        for letter in self._sink.letters:
            log.take_value(letter.topic, letter.partition or 0, letter.value)
        assert {letter.topic for letter in self._sink.letters} <= {CONTROL.name, DECISIONS.name, GRANTS.name}
        return kept_of(log)


class TestRecordingSink(SinkContract):
    """On `enforcer.testing.RecordingSink`."""

    @pytest.fixture
    def rig(self) -> SinkRig:
        return RecordingRig()


class TestMemorySink(SinkContract):
    """On `stream.MemorySink`."""

    @pytest.fixture
    def rig(self) -> SinkRig:
        return MemoryRig()
