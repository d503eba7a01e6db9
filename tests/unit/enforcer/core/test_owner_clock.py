"""What time it is at the owner: the fastest answer of late is believed, and little is said of it."""

from __future__ import annotations

import pytest

from enforcer.core.owner_clock import OwnerClockEstimate

SECOND_NS = 1_000_000_000
WALL_US = 1_750_000_000_000_000


def wall_us(now_ns: int) -> int:
    """A wall clock that goes with the monotonic one."""
    return WALL_US + now_ns // 1_000


def answer(estimate: OwnerClockEstimate, at_s: float, *, ahead_us: int, rtt_ms: float, bias: float = 0.5) -> None:
    """An answer that came at `at_s`; the owner read its clock after the share `bias` of the round trip."""
    now_ns = round(at_s * SECOND_NS)
    sent_ns = now_ns - round(rtt_ms * 1e6)
    read_ns = sent_ns + round((now_ns - sent_ns) * bias)
    estimate.heard("A", wall_us(read_ns) + ahead_us, sent_ns=sent_ns, now_ns=now_ns)


def told(estimate: OwnerClockEstimate, at_s: float, *, stepped_us: int = 0) -> int | None:
    now_ns = round(at_s * SECOND_NS)
    due = estimate.due(now_ns=now_ns, unix_us=wall_us(now_ns) + stepped_us)
    return None if due is None else due[1]


def test_nothing_is_told_before_an_owner_has_answered() -> None:
    """A guess would be taken for the owner's word."""
    assert OwnerClockEstimate().due(now_ns=1, unix_us=1) is None


@pytest.mark.parametrize("ahead_us", [0, -3_000_000, 400 * 86_400_000_000, -400 * 86_400_000_000])
def test_half_the_round_trip_is_taken_off(ahead_us: int) -> None:
    """R18: a copy that is 400 days ahead says so, to within half of its fastest round trip."""
    estimate = OwnerClockEstimate()
    answer(estimate, 10, ahead_us=ahead_us, rtt_ms=40)
    assert ahead_us == told(estimate, 10)
    assert told(estimate, 10.1) is None


def test_the_fastest_answer_of_late_is_believed() -> None:
    """A slow one may be off by half of what it took, in either direction."""
    estimate = OwnerClockEstimate()
    answer(estimate, 1, ahead_us=5_000, rtt_ms=1)
    assert told(estimate, 1) == 5_000
    for at_s in range(2, 50):
        answer(estimate, at_s, ahead_us=5_000, rtt_ms=400, bias=0.99)
        assert told(estimate, at_s) is None


def test_an_old_answer_gives_way_to_those_of_late() -> None:
    """Clocks drift, and an owner that failed over has another one: no answer is believed for ever."""
    estimate = OwnerClockEstimate()
    answer(estimate, 1, ahead_us=0, rtt_ms=1)
    assert told(estimate, 1) == 0
    changes = []
    for at_s in range(2, 120):
        answer(estimate, at_s, ahead_us=70_000, rtt_ms=2)
        changes.append((at_s, told(estimate, at_s)))
    (first,) = [(at_s, offset_us) for at_s, offset_us in changes if offset_us is not None]
    assert first[1] == 70_000
    assert 30 <= first[0] <= 62


def test_an_answer_after_a_long_silence_counts_alone() -> None:
    """What was heard an hour ago says nothing of a machine that slept since."""
    estimate = OwnerClockEstimate()
    answer(estimate, 1, ahead_us=0, rtt_ms=1)
    answer(estimate, 3_600, ahead_us=900_000, rtt_ms=30)
    assert 900_000 == told(estimate, 3_600)


def test_a_wall_clock_that_is_set_anew_is_told_at_once() -> None:
    """Decisions are dated by it from that moment on, whether an owner answers or not."""
    estimate = OwnerClockEstimate()
    answer(estimate, 1, ahead_us=100, rtt_ms=1)
    assert 100 == told(estimate, 1)
    assert 100 - 5_000_000 == told(estimate, 2, stepped_us=5_000_000)


def test_a_small_change_waits_a_minute() -> None:
    """It changes no minute's totals: one event a minute is enough."""
    estimate = OwnerClockEstimate()
    answer(estimate, 1, ahead_us=100, rtt_ms=4)
    assert 100 == told(estimate, 1)
    answer(estimate, 2, ahead_us=900, rtt_ms=3)
    assert told(estimate, 60) is None
    assert 900 == told(estimate, 61)
    assert told(estimate, 500) is None, "nothing has changed since"


def test_whose_answer_it_was_is_told() -> None:
    """With many owners the nearest one is the clock."""
    estimate = OwnerClockEstimate()
    estimate.heard("far", 30_000_000, sent_ns=0, now_ns=80_000_000)
    estimate.heard("near", 7_000_000, sent_ns=90_000_000, now_ns=91_000_000)
    due = estimate.due(now_ns=100_000_000, unix_us=0)
    assert due is not None
    assert ("near", 7_000_000 - 90_500 + 100_000) == due
