"""The contract of a sink, on the two that ship with the enforcer."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from enforcer.messages import SettleCause, Settlement
from enforcer.sink import DegradeChanged, GrantIssued, GrantSettled, NullSink, Sink
from enforcer.testing import RecordingSink
from enforcer.types import Basis, Grant, Plan, Standing, Terms, Verdict


def _verdict(seq: int) -> Verdict:
    basis = Basis(Standing("acme", Terms("rate", Plan("standard", 100.0, 200), 1)), "GET /", 7, 4)
    return Verdict(seq, seq, basis, True, 0, 2, 5, 0)


@pytest.mark.parametrize("make", [NullSink, RecordingSink])
def test_a_sink_takes_every_fact_without_a_word(make: Callable[[], Sink]) -> None:
    """It stands on the request path: it returns nothing, raises nothing, and can be closed twice."""
    sink = make()
    capture = sink.capture
    for seq in range(1_000):
        capture(_verdict(seq))
    sink.grant_issued(GrantIssued("acme", "rate", 1, Grant(7, 10, 4, 0, 5_000_000), 3.5))
    sink.grant_settled(GrantSettled("acme", "rate", "a/1", Settlement(7, 10, True, SettleCause.ASK), 9))
    sink.degrade_changed(DegradeChanged("owner", True, "tested", 9))
    sink.close(0.1)
    sink.close(0.0)


def test_recording_sink_remembers_in_order() -> None:
    """Tests of gateways judge by it."""
    sink = RecordingSink()
    for seq in range(3):
        sink.capture(_verdict(seq))
    fact = GrantSettled("acme", "rate", "a/1", Settlement(7, 6, True, SettleCause.CLOSE), 9)
    sink.grant_settled(fact)
    assert [0, 1, 2] == [verdict.seq for verdict in sink.verdicts]
    assert {("acme", "rate", 7): 6} == sink.spent_by_grant()
    assert {("acme", "rate", 7): fact.settlement} == sink.final_totals()
