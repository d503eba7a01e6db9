"""Letters on their way: kept until they are delivered, in order, whatever happens to the client."""

from __future__ import annotations

from stream.outbox import Letter, Outbox


def outbox_of(count: int) -> Outbox:
    outbox = Outbox()
    for number in range(count):
        outbox.put(Letter("t", b"k", bytes(10), [], first_seq=number * 5, decisions=5))
    return outbox


def numbers(outbox: Outbox) -> list[int]:
    return [number for number, _ in outbox.waiting(99)]


def test_letter_is_kept_until_it_is_removed() -> None:
    """A message that was only handed over may still be lost."""
    outbox = outbox_of(2)
    outbox.handed_over(0)
    assert [1] == numbers(outbox)
    assert (2, 10, 20, 1, 10) == (
        len(outbox),
        outbox.decisions,
        outbox.bytes,
        outbox.under_way,
        outbox.under_way_bytes,
    )
    assert outbox.remove(0) is not None
    assert (1, 5, 10, 0, 0) == (len(outbox), outbox.decisions, outbox.bytes, outbox.under_way, outbox.under_way_bytes)


def test_second_report_of_one_letter_changes_nothing() -> None:
    """After a fresh client, the old one's report may come as well."""
    outbox = outbox_of(1)
    outbox.handed_over(0)
    outbox.remove(0)
    assert outbox.remove(0) is None
    outbox.give_back(0)
    assert (0, 0, 0) == (len(outbox), outbox.bytes, outbox.decisions)


def test_letters_under_way_wait_again_after_a_reset_in_their_order() -> None:
    """A fresh client sends what the old one may not have sent, oldest first."""
    outbox = outbox_of(3)
    outbox.handed_over(0)
    outbox.handed_over(1)
    outbox.reset()
    assert [0, 1, 2] == numbers(outbox)
    assert 0 == outbox.under_way_bytes


def test_letter_that_came_back_waits_at_its_old_place() -> None:
    """Blocks of a copy stand in order on the log."""
    outbox = outbox_of(3)
    for number in (0, 1):
        outbox.handed_over(number)
    outbox.give_back(1)
    outbox.give_back(0)
    outbox.give_back(0)
    assert [0, 1, 2] == numbers(outbox)
    assert 0 == outbox.under_way_bytes


def test_cleared_outbox_is_empty() -> None:
    """What was given up must not be counted as queued."""
    outbox = outbox_of(3)
    outbox.handed_over(0)
    outbox.clear()
    assert (0, 0, 0, 0, []) == (len(outbox), outbox.bytes, outbox.decisions, outbox.under_way, numbers(outbox))
