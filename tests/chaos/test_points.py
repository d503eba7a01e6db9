"""Each process killed and frozen at each named point, and then every decision counted from outside."""

from __future__ import annotations

from pathlib import Path

import pytest

from tallygate.engines.kafka import BrokerKind
from tests.chaos.faults import arm
from tests.chaos.points import POINTS, Act, Fault
from tests.chaos.settling import CUT_S, own_words, settle, verify
from tests.chaos.stack import Stack, running_stack

_COPIES = 3
_RATE_PER_S = 1_500.0
#: Frozen for longer than a session lasts: others take its partitions, and it wakes up as a stranger.
_FROZEN_S = 7.0
_SELDOM = "minutes settled"


def _pass_through(stack: Stack, act: Act) -> None:
    """Meet the fault at every point, while the copies go on deciding.

    The settler comes to its own when a minute is over: it waits for that while the others have theirs.
    """
    seldom = arm(stack, Fault(POINTS[_SELDOM], act))
    for number, point in enumerate(point for point in POINTS.values() if point.part != "settler"):
        arm(stack, Fault(point, act, nth=3 + number)).meet(stack, frozen_s=_FROZEN_S)
    seldom.meet(stack, frozen_s=_FROZEN_S)
    arm(stack, Fault(POINTS["settler committed"], act)).meet(stack, frozen_s=_FROZEN_S)


@pytest.mark.chaos
@pytest.mark.timeout(900)
@pytest.mark.parametrize(("act", "broker"), [("kill", "embedded"), ("freeze", "apache")])
def test_a_process_ended_at_any_point_counts_every_decision_once(act: Act, broker: BrokerKind, tmp_path: Path) -> None:
    """Whatever dies or stands still, and when: nothing is counted twice, nothing is lost that nobody names."""
    with running_stack(tmp_path, broker=broker, copies=_COPIES, rate_per_s=_RATE_PER_S) as stack:
        _pass_through(stack, act)
        findings = settle(stack)
        action, code, said = own_words(stack)[0]
        assert code == 0, f"audit {action} ended with {code}: {said}"
    assert sum(one.decided for one in findings) > 10_000, "too little was decided to show anything"
    verify(findings, most_cut=int(CUT_S * _RATE_PER_S / _COPIES))
