"""How far the record reaches, and who is waited for."""

from __future__ import annotations

from zoneinfo import ZoneInfo

import pytest

from dashboard.completeness import GONE_AFTER_S, LATE_AFTER_S, completeness, completeness_line
from dashboard.rows import CopyMark, Losses, Settled

NOW_US = 1_795_000_000_000_000
UTC = ZoneInfo("UTC")
ALL = Settled()


def mark(copy_id: str, silent_s: float, *, epoch: int = 1, stopped: bool = False) -> CopyMark:
    """A copy that was last heard `silent_s` ago."""
    return CopyMark(copy_id, epoch, NOW_US - round(silent_s * 1e6), stopped)


def test_data_until_is_where_the_slowest_punctual_copy_is() -> None:
    """Every copy that is not late has delivered up to there: a later time would promise what is not there."""
    state = completeness([mark("a", 1), mark("b", 4)], now_us=NOW_US, settled=ALL, losses=Losses())
    assert NOW_US - 4_000_000 == state.until_us
    assert state.until_us == state.whole_until_us


def test_a_late_copy_is_named_and_does_not_hold_the_line_back() -> None:
    """One frozen server of four must not stop the clock of the page, and must not be hidden either."""
    marks = [mark("a", 1), mark("b", 2), mark("c", 3), mark("d", LATE_AFTER_S + 1)]
    state = completeness(marks, now_us=NOW_US, settled=ALL, losses=Losses())
    assert NOW_US - 3_000_000 == state.until_us
    assert NOW_US - (LATE_AFTER_S + 1) * 1_000_000 == state.whole_until_us
    assert ("d",) == state.late
    assert "; 1 of 4 servers late; all of it settled." in completeness_line(state, UTC, now_us=NOW_US)


def test_a_copy_that_stopped_is_not_late() -> None:
    """A deployment ends servers all day; none of them owes anything."""
    state = completeness([mark("a", 1), mark("b", 300, stopped=True)], now_us=NOW_US, settled=ALL, losses=Losses())
    assert () == state.late
    assert 1 == state.copies


def test_a_copy_that_started_again_is_judged_by_its_new_life() -> None:
    """kill -9 and a restart leave an epoch that never said it stopped."""
    state = completeness([mark("a", 200, epoch=1), mark("a", 1, epoch=2)], now_us=NOW_US, settled=ALL, losses=Losses())
    assert () == state.late
    assert 1 == state.copies


def test_a_copy_silent_for_long_is_no_longer_waited_for() -> None:
    """A machine that died would make the page late for ever."""
    state = completeness([mark("a", 1), mark("b", GONE_AFTER_S + 1)], now_us=NOW_US, settled=ALL, losses=Losses())
    assert (1, ()) == (state.copies, state.late)


def test_all_late_says_so() -> None:
    """The pipeline behind the page stands: the line shows the last moment that is known."""
    state = completeness([mark("a", 100), mark("b", 50)], now_us=NOW_US, settled=ALL, losses=Losses())
    assert NOW_US - 50_000_000 == state.until_us
    assert 2 == len(state.late)


@pytest.mark.parametrize("stopped", [True, False])
def test_a_fleet_that_stopped_is_complete_and_one_that_fell_silent_is_not(stopped: bool) -> None:
    """After an orderly end nothing can still arrive; after silence it can."""
    state = completeness([mark("a", GONE_AFTER_S + 5, stopped=stopped)], now_us=NOW_US, settled=ALL, losses=Losses())
    assert stopped == (state.whole_until_us == NOW_US)
    assert "no server has reported since" in completeness_line(state, UTC, now_us=NOW_US)


def test_no_copy_at_all_is_said() -> None:
    """An empty database is not "data until 1970"."""
    state = completeness([], now_us=NOW_US, settled=ALL, losses=Losses())
    assert state.until_us is None
    assert "No server has reported" in completeness_line(state, UTC, now_us=NOW_US)


def test_lost_decisions_are_said() -> None:
    """R9: what was decided and could not be recorded stands on the page."""
    state = completeness([mark("a", 1)], now_us=NOW_US, settled=ALL, losses=Losses(lost=30))
    assert completeness_line(state, UTC, now_us=NOW_US).endswith("; 30 decisions not recorded.")


def test_decisions_that_nobody_spoke_of_are_said_apart_whatever_others_lost() -> None:
    """A loss that a server owned up to explains nothing of another's: somebody must look into that."""
    state = completeness([mark("a", 1)], now_us=NOW_US, settled=ALL, losses=Losses(lost=30, silent=4))
    line = completeness_line(state, UTC, now_us=NOW_US)
    assert line.endswith("; 34 decisions not recorded, 4 of them for no known reason.")


@pytest.mark.parametrize(
    ("settled", "words", "late_s"),
    [
        (Settled(None), "; all of it settled.", 0),
        (Settled(None, ever=False), "; not settled yet.", 0),
        (Settled(NOW_US - 180_000_000), "; settled up to 11:03.", 0),
        (Settled(NOW_US - 240_000_000), "; settled up to 11:02, 3\xa0min behind.", 180),
        (Settled(NOW_US - 86_400_000_000), "; settled up to 11:06 on 17 Nov, 23\xa0h behind.", 86_340),
    ],
)
def test_how_far_totals_are_final_is_said(settled: Settled, words: str, late_s: int) -> None:
    """Whoever compares the page with a bill must see which of its minutes may still rise."""
    state = completeness([mark("a", 1)], now_us=NOW_US, losses=Losses(), settled=settled)
    assert completeness_line(state, UTC, now_us=NOW_US).endswith(words)
    assert state.settling_late_s == late_s
