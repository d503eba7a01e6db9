"""The sink's thread: ships while the process runs, and empties itself at the end."""

from __future__ import annotations

from typing import Any

import pytest

from stream.buffer import UNACKNOWLEDGED, UNSENT, Loss
from stream.config import StreamConfig
from stream.contract.control import CopyStopped, DecisionsLost, FactsLost, decode_control
from stream.contract.topics import CONTROL, DECISIONS
from stream.producer import KafkaSink, SinkStats
from tests.processes import wait_until
from tests.unit.stream.fake_producer import FakeProducer
from tests.verdicts import IDENTITY, grant, settlement, verdict, verdicts


class Rig:
    """A sink on fake clients, all of which behave alike."""

    def __init__(self, config: StreamConfig | None = None, **behaviour: Any) -> None:
        self.behaviour = behaviour
        self.producers: list[FakeProducer] = []
        self.sink = KafkaSink(config or StreamConfig(flush_s=0.05), IDENTITY, make_producer=self._make)

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


def test_close_gives_up_in_time_and_names_what_is_left(caplog: pytest.LogCaptureFixture) -> None:
    """A dead broker must not keep a gateway from ending; only its own log can then say what is missing."""
    rig = Rig(is_away=True)
    for one in verdicts(10):
        rig.sink.capture(one)
    rig.sink.grant_issued(grant())
    rig.sink.close(0.2)
    assert SinkStats(10, 0, 10, 0, 0, 0, 1, False) == rig.sink.stats
    assert rig.producers[0].purged
    assert (Loss(0, 10, UNSENT),) == rig.sink.unrecorded
    last = caplog.records[-1].getMessage()
    assert "10 decisions and 1 grants and settlements are not recorded" in last
    assert f"10 from seq 0 to 9 ({UNSENT})" in last
    assert max(rig.producers[-1].asked_s[1:], default=0.0) <= 0.25


def test_close_names_on_the_log_what_will_not_be_there() -> None:
    """Time was short but the broker is there: the record itself must say what is missing at its end."""
    rig = Rig(delivers_topics={CONTROL.name})
    for one in verdicts(10):
        rig.sink.capture(one)
    rig.sink.grant_issued(grant())
    rig.sink.close(0.2)
    told = [decode_control(one["value"]) for each in rig.producers for one in each.delivered]
    assert [(0, 10, UNSENT)] == [(e.first_seq, e.count, e.cause) for e in told if isinstance(e, DecisionsLost)]
    assert [1] == [event.total for event in told if isinstance(event, FactsLost)]
    assert [10] == [event.next_seq for event in told if isinstance(event, CopyStopped)]
    assert ((), 10, 1) == (rig.sink.unrecorded, rig.sink.stats.lost, rig.sink.stats.facts_lost)


def test_close_does_not_call_lost_on_the_log_what_may_be_there() -> None:
    """A block in flight may have arrived: the record must not deny it, and the process's log says that it may."""
    rig = Rig(delivers_topics={CONTROL.name}, in_flight=1)
    for one in verdicts(10):
        rig.sink.capture(one)
    wait_until(lambda: any(one["topic"] == DECISIONS.name for one in rig.producers[0].pending), 5.0)
    rig.sink.close(0.2)
    told = [decode_control(one["value"]) for each in rig.producers for one in each.delivered]
    assert not any(isinstance(event, DecisionsLost) for event in told)
    assert (Loss(0, 10, UNACKNOWLEDGED),) == rig.sink.unrecorded


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
