"""Who asks a database that is away, and who is told at once."""

from __future__ import annotations

from dashboard.breaker import Breaker


def test_breaker_lets_everyone_ask_while_there_are_answers() -> None:
    """It must cost nothing when nothing is wrong."""
    breaker = Breaker(1.0)
    assert ["go"] * 3 == [breaker.turn(now_s, answers) for now_s, answers in ((0.0, 0), (0.0, 0), (5.0, 3))]


def test_breaker_lets_one_probe_after_the_pause_and_the_others_wait() -> None:
    """A hundred open pages must not hang on the database one after the other."""
    breaker = Breaker(1.0)
    breaker.silent(10.0, 7)
    assert ["wait", "wait", "probe", "wait"] == [breaker.turn(now_s, 7) for now_s in (10.0, 10.9, 11.0, 11.0)]
    breaker.silent(12.0, 7)
    breaker.left()
    assert ["wait", "probe"] == [breaker.turn(now_s, 7) for now_s in (12.9, 13.0)]


def test_breaker_keeps_one_probe_when_a_page_from_before_fails_meanwhile() -> None:
    """Pages that began before the outage end one after the other; none of them lets a second one ask."""
    breaker = Breaker(1.0)
    breaker.silent(10.0, 7)
    assert "probe" == breaker.turn(11.0, 7)
    breaker.silent(11.1, 7)
    assert "wait" == breaker.turn(12.2, 7)


def test_breaker_closes_with_an_answer_to_anybody() -> None:
    """An answer that came too late for its page still says that somebody is there."""
    breaker = Breaker(1.0)
    breaker.silent(10.0, 7)
    assert "wait" == breaker.turn(10.1, 7)
    assert breaker.away(7)
    assert ["go", "go"] == [breaker.turn(10.2, 8), breaker.turn(10.2, 8)]
    assert not breaker.away(8)


def test_breaker_asks_again_when_the_one_who_probed_has_gone() -> None:
    """A closed tab must not leave the door shut for ever."""
    breaker = Breaker(1.0)
    breaker.silent(10.0, 7)
    assert "probe" == breaker.turn(11.0, 7)
    breaker.left()
    assert "probe" == breaker.turn(11.1, 7)
