"""What is due and when, without a database: order of work, closing, late blocks, agreement with the live totals."""

from __future__ import annotations

from aggregator.core.settled.agreement import Difference, Suspicions
from aggregator.core.settled.settling import DAY_US, MINUTE_US, Backlog, Progress, by_day, covers

_GRACE_US = 30_000_000
_LOG = ("log", 0)
#: A day's first minute.
_FIRST = 28_333_440


def _backlog(progress: Progress | None = None) -> Backlog:
    return Backlog(progress or Progress(), grace_us=_GRACE_US)


def _closing(minute: int) -> int:
    return (minute + 1) * MINUTE_US + _GRACE_US


def test_due_takes_what_just_closed_first_and_the_oldest_of_the_rest() -> None:
    """After an outage the pages' newest minutes must not wait for a day of old ones, nor the old ones for ever."""
    backlog = _backlog()
    backlog.note(_LOG, 9, range(_FIRST, _FIRST + 100))
    now_us = _closing(_FIRST + 98)
    assert backlog.due(now_us, 9) == [*range(_FIRST + 98, _FIRST + 92, -1), _FIRST, _FIRST + 1, _FIRST + 2]
    assert _FIRST + 99 not in backlog.due(now_us, 1_000)
    assert _FIRST + 99 in backlog.due(_closing(_FIRST + 99), 1_000)


def test_due_leaves_a_minute_alone_for_ten_seconds_after_it_was_settled() -> None:
    """A spool that trickles in would otherwise have its minutes recounted with every block."""
    backlog = _backlog()
    backlog.note(_LOG, 1, [_FIRST])
    now_us = _closing(_FIRST)
    backlog.settled([_FIRST], 1, now_us)
    backlog.note(_LOG, 2, [_FIRST, _FIRST - 1])
    assert backlog.due(now_us + 9_999_999, 10) == [_FIRST - 1]
    assert backlog.due(now_us + 10_000_000, 10) == [_FIRST, _FIRST - 1]


def test_progress_keeps_what_is_left_to_do_over_a_restart() -> None:
    """Positions alone would skip what was read from the journal and not yet done."""
    backlog = _backlog()
    backlog.note(_LOG, 7, [_FIRST, _FIRST + 1])
    backlog.note(("younger", 0), 3, [])
    backlog.settled([_FIRST], 10, _closing(_FIRST))
    again = _backlog(backlog.progress)
    assert again.version == backlog.version == 10
    assert again.dirty == {_FIRST + 1}
    assert again.unchecked == {_FIRST}
    assert again.days_due(_closing(_FIRST) + DAY_US) == [(_FIRST // 1_440, 10)]
    assert again.progress == backlog.progress


def test_positions_never_fall() -> None:
    """A frozen recorder writes its journal row late; the version must not go back with it."""
    backlog = _backlog()
    backlog.note(_LOG, 7, [])
    backlog.note(_LOG, 5, [_FIRST])
    assert backlog.version == 7
    assert backlog.dirty == {_FIRST}


def test_a_day_is_due_when_it_is_over_and_again_from_the_version_of_its_late_minutes() -> None:
    """Written while it fills, every day would have a thousand versions."""
    backlog = _backlog()
    day = _FIRST // 1_440
    backlog.settled([_FIRST], 5, _closing(_FIRST))
    backlog.settled([_FIRST + 1], 8, _closing(_FIRST + 1))
    midnight_us = (day + 1) * DAY_US
    assert backlog.days_due(midnight_us + _GRACE_US - 1) == []
    assert backlog.days_due(midnight_us + _GRACE_US) == [(day, 5)]
    backlog.day_settled(day)
    backlog.settled([_FIRST + 2], 11, midnight_us)
    assert backlog.days_due(midnight_us + _GRACE_US) == [(day, 11)]


def test_minutes_older_than_raw_decisions_are_not_recounted() -> None:
    """What is left of them is less than what was settled."""
    backlog = _backlog()
    backlog.note(_LOG, 1, [_FIRST])
    assert backlog.too_late(_FIRST * MINUTE_US + 1) == [_FIRST]
    assert backlog.too_late(_FIRST * MINUTE_US, [(0, _FIRST * MINUTE_US)]) == []
    assert backlog.too_late(0, [(0, 1), (_FIRST * MINUTE_US, (_FIRST + 1) * MINUTE_US)]) == [_FIRST]
    backlog.let_go([_FIRST])
    assert backlog.dirty == frozenset()


def test_by_day_keeps_the_order_of_days() -> None:
    """One INSERT is one part only within a month."""
    assert by_day([_FIRST + 1, _FIRST - 1, _FIRST]) == [[_FIRST, _FIRST + 1], [_FIRST - 1]]


def test_covers_waits_for_the_live_totals_and_not_for_a_log_that_they_have_left() -> None:
    """Compared too early, every minute would differ; waiting for a deleted topic, none would ever be compared."""
    assert not covers({}, {("a", 0): 5})
    assert not covers({("a", 0): (4, 4)}, {("a", 0): 5})
    assert covers({("a", 0): (5, 5)}, {("a", 0): 5})
    assert covers({("a", 0): (3, 3), ("b", 0): (2, 6)}, {("a", 0): 5, ("b", 0): 2})
    assert not covers({("a", 0): (3, 3), ("b", 0): (2, 6)}, {("a", 0): 5, ("b", 0): 3})


def _differs(minute: int = _FIRST) -> Difference:
    return Difference(minute, "acme", 5, 5, 4, 4)


def test_a_difference_is_a_finding_once_the_record_has_all_that_live_had() -> None:
    """The live totals may be ahead of the record for as long as the recorder is away: that is no disagreement."""
    suspicions = Suspicions()
    first = suspicions.judge([_FIRST], [_differs()], live={_LOG: 9}, recorded={_LOG: 7})
    behind = suspicions.judge([_FIRST], [_differs()], live={_LOG: 12}, recorded={_LOG: 8})
    reached = suspicions.judge([_FIRST], [_differs()], live={_LOG: 13}, recorded={_LOG: 9})
    assert (first.found, first.checked) == (behind.found, behind.checked) == ((), frozenset())
    assert reached.found == (_differs(),)
    assert reached.checked == {_FIRST}


def test_a_difference_that_goes_or_whose_minute_changes_is_none() -> None:
    """A minute that is dirty again is judged anew, by what it is then."""
    suspicions = Suspicions()
    suspicions.judge([_FIRST, _FIRST + 1], [_differs(), _differs(_FIRST + 1)], live={_LOG: 9}, recorded={_LOG: 9})
    suspicions.keep({_FIRST})
    judged = suspicions.judge([_FIRST, _FIRST + 1], [_differs(_FIRST + 1)], live={_LOG: 9}, recorded={_LOG: 9})
    assert judged.found == ()
    assert judged.checked == {_FIRST}
