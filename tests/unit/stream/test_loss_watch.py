"""A loss is said when it begins and when it is over, not twenty times a second."""

from __future__ import annotations

from stream.buffer import UNSENT, Loss
from stream.loss_watch import LossWatch, ending_line


def test_loss_watch_says_when_it_begins_and_when_it_is_over() -> None:
    """An operator reads two lines, with the number in the second."""
    watch = LossWatch()
    assert watch.line(0, now_s=0.0) is None
    assert "are being lost" in (watch.line(3, now_s=1.0) or "")
    assert [watch.line(lost, now_s=now_s) for lost, now_s in ((3, 1.5), (900, 2.0), (1_300, 3.0), (1_300, 7.9))] == [
        None
    ] * 4
    assert "1,300 were" in (watch.line(1_300, now_s=8.0) or "")
    assert watch.line(1_300, now_s=9.0) is None


def test_loss_watch_counts_each_spell_for_itself() -> None:
    """The second outage of a day has its own number."""
    watch = LossWatch()
    watch.line(10, now_s=0.0)
    watch.line(10, now_s=10.0)
    assert "are being lost" in (watch.line(12, now_s=20.0) or "")
    assert "; 2 were" in (watch.line(12, now_s=30.0) or "")


def test_ending_line_names_ranges_up_to_a_bound() -> None:
    """One line must stay readable, and still count everything."""
    assert ending_line([], facts=0) is None
    assert "0 decisions and 3 grants" in (ending_line([], facts=3) or "")
    line = ending_line([Loss(at * 10, 5, UNSENT) for at in range(50)], facts=0) or ""
    assert "250 decisions" in line
    assert f"5 from seq 190 to 194 ({UNSENT}); 150 in 30 further ranges" in line
