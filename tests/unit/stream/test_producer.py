"""The sink's thread: ships while the process runs, and empties itself at the end."""

from __future__ import annotations

from typing import Any

import pytest

from stream.config import StreamConfig
from stream.producer import KafkaSink, SinkStats
from tests.processes import wait_until
from tests.unit.stream.fake_producer import FakeProducer
from tests.verdicts import IDENTITY, grant, settlement, verdict, verdicts


class Rig:
    """A sink on fake clients, all of which behave alike."""

    def __init__(self, **behaviour: Any) -> None:
        self.behaviour = behaviour
        self.producers: list[FakeProducer] = []
        self.sink = KafkaSink(StreamConfig(flush_s=0.05), IDENTITY, make_producer=self._make)

    def _make(self, settings: dict[str, Any]) -> FakeProducer:
        self.producers.append(FakeProducer(settings, **self.behaviour))
        return self.producers[-1]


def test_close_ships_everything_that_was_taken() -> None:
    """A gateway that restarts in order loses nothing."""
    rig = Rig(delivers=True)
    for one in verdicts(4_500):
        rig.sink.capture(one)
    rig.sink.grant_issued(grant())
    rig.sink.grant_settled(settlement())
    rig.sink.close(5.0)
    rig.sink.close(5.0)
    assert SinkStats(4_500, 4_500, 0, 0, 0, 2, 0, True) == rig.sink.stats


def test_close_gives_up_in_time_and_counts_what_is_left() -> None:
    """A dead broker must not keep a gateway from ending."""
    rig = Rig(is_away=True)
    for one in verdicts(10):
        rig.sink.capture(one)
    rig.sink.grant_issued(grant())
    rig.sink.close(0.2)
    assert SinkStats(10, 0, 10, 0, 0, 0, 1, False) == rig.sink.stats
    assert rig.producers[0].purged


def test_decisions_flow_without_anyone_asking() -> None:
    """The record is seconds behind, not a process lifetime."""
    rig = Rig(delivers=True)
    for one in verdicts(10):
        rig.sink.capture(one)
    wait_until(lambda: rig.sink.stats.delivered == 10, 5.0)
    rig.sink.close(1.0)


def test_fatal_client_error_loses_nothing() -> None:
    """The whole way through: undelivered blocks go out again by a fresh client."""
    rig = Rig()
    for one in verdicts(10):
        rig.sink.capture(one)
    wait_until(lambda: bool(rig.producers[0].pending), 5.0)
    rig.behaviour["delivers"] = True
    rig.producers[0].die()
    rig.sink.close(5.0)
    assert (2, 10, 0) == (len(rig.producers), rig.sink.stats.delivered, rig.sink.stats.lost)


def test_what_is_no_verdict_does_not_end_the_thread(caplog: pytest.LogCaptureFixture) -> None:
    """An object of the wrong kind must not stop the record of all later ones, nor count as one."""
    rig = Rig(delivers=True)
    rig.sink.capture("not a verdict")  # type: ignore[arg-type]  # that is the point
    wait_until(lambda: "takes verdicts only" in caplog.text, 5.0)
    for one in [verdict(0), verdict(1)]:
        rig.sink.capture(one)
    rig.sink.close(5.0)
    assert SinkStats(2, 2, 0, 0, 0, 0, 0, True) == rig.sink.stats
