"""Messages of a partition in order, whatever a broker shows first."""

from __future__ import annotations

from collections.abc import Iterator

from hypothesis import given
from hypothesis import strategies as st

from aggregator.recorder.order import PATIENCE_S, Order, Turn


def test_messages_in_order_are_due() -> None:
    """The usual case takes no question to anybody."""
    order = Order()
    assert [Turn.DUE] * 3 == [order.turn("t", 0, offset, 0.0) for offset in (7, 8, 9)]
    assert [] == order.to_ask(0.0)


def test_a_message_that_comes_too_early_is_left_and_what_is_due_is_asked_for() -> None:
    """A block that was shown a moment late was never recorded, and nobody would have asked for it."""
    order = Order()
    order.turn("t", 0, 7, 0.0)
    assert [Turn.EARLY] * 2 == [order.turn("t", 0, offset, 0.0) for offset in (9, 10)]
    assert [("t", 0, 8)] == order.to_ask(0.0)
    order.asked("t", 0, 0.0)
    assert [] == order.to_ask(0.1), "asked without a pause"
    assert [Turn.DUE] * 3 == [order.turn("t", 0, offset, 0.1) for offset in (8, 9, 10)]
    assert [] == order.to_ask(9.0)
    assert [] == order.passed_over


def test_a_message_is_missed_where_reading_begins() -> None:
    """A reader that was started again stands right before the one that is not shown yet."""
    order = Order()
    order.begin({("t", 0): 8})
    assert Turn.EARLY is order.turn("t", 0, 9, 0.0)
    assert [("t", 0, 8)] == order.to_ask(0.0)


def test_a_log_that_was_cut_begins_where_its_client_begins() -> None:
    """Waiting for what was cut off would be waiting for ever."""
    order = Order()
    order.begin({("t", 0): 8})
    assert [Turn.DUE, Turn.DUE, Turn.BACK] == [order.turn("t", 0, offset, 0.0) for offset in (0, 1, 0)]


def test_offsets_that_the_log_does_not_have_are_passed_over_and_named() -> None:
    """Retention, or a broken log: what is gone must not hold up all that follows."""
    order = Order()
    order.turn("t", 0, 7, 0.0)
    for now_s in (0.0, 1.0, PATIENCE_S):
        assert Turn.EARLY is order.turn("t", 0, 12, now_s)
        order.asked("t", 0, now_s)
    assert Turn.DUE is order.turn("t", 0, 12, PATIENCE_S + 1.1)
    assert [("t", 0, 8, 11)] == order.passed_over
    assert Turn.DUE is order.turn("t", 0, 13, PATIENCE_S + 1.1)


def test_only_the_first_message_after_a_question_tells_what_the_log_has() -> None:
    """Those that came before it are left over from before, and far ahead: what is between would be lost."""
    order = Order()
    order.turn("t", 0, 7, 0.0)
    order.turn("t", 0, 9, 0.0)
    assert Turn.EARLY is order.turn("t", 0, 400, PATIENCE_S + 1), "not asked yet"
    order.asked("t", 0, PATIENCE_S + 1)
    assert Turn.DUE is order.turn("t", 0, 9, PATIENCE_S + 1)
    assert [("t", 0, 8, 8)] == order.passed_over


def test_an_answer_that_is_on_its_way_is_waited_for() -> None:
    """Asking throws the fetch away: a broker that takes longer than the pause would never be heard."""
    order = Order()
    order.begin({("t", 0): 8})
    order.turn("t", 0, 9, 0.0)
    order.asked("t", 0, 0.0)
    assert [] == order.to_ask(PATIENCE_S - 0.1)
    order.turn("t", 0, 9, PATIENCE_S - 0.1)
    assert [("t", 0, 8)] == order.to_ask(PATIENCE_S)


def test_an_answer_is_as_old_as_its_question() -> None:
    """A process that stood still in between knows no more than it knew when it asked."""
    order = Order()
    order.begin({("t", 0): 8})
    order.turn("t", 0, 9, 0.0)
    order.asked("t", 0, 0.0)
    assert Turn.EARLY is order.turn("t", 0, 9, PATIENCE_S + 1)


def test_partitions_do_not_wait_for_each_other() -> None:
    """One hole must not stop the record."""
    order = Order()
    for partition in (0, 1):
        order.turn("t", partition, 7, 0.0)
    order.turn("t", 0, 9, 0.0)
    assert Turn.DUE is order.turn("t", 1, 8, 0.0)


@given(st.permutations(range(12)), st.lists(st.integers(1, 5), min_size=60, max_size=60))
def test_whatever_is_shown_in_whatever_order_is_taken_once_and_in_order(shown: list[int], fetched: list[int]) -> None:
    """The log fills in any order; a client reads on from the last it was given, and anew where it is told to."""
    order, taken, position = Order(), [], 0
    order.begin({("t", 0): 0})
    visible: set[int] = set()
    coming = iter(shown)
    for now, most in enumerate(fetched):
        visible |= set(_few(coming, 1))
        for offset in sorted(one for one in visible if one >= position)[:most]:
            position = offset + 1
            if order.turn("t", 0, offset, now * 0.3) is Turn.DUE:
                taken.append(offset)
        for topic, partition, offset in order.to_ask(now * 0.3):
            position = offset
            order.asked(topic, partition, now * 0.3)
    assert taken == list(range(12))


def _few(coming: Iterator[int], most: int) -> list[int]:
    return [one for _, one in zip(range(most), coming, strict=False)]
