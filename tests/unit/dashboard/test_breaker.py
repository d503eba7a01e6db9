"""Who asks a database that is away, and who is told at once."""

from __future__ import annotations

from dashboard.breaker import Breaker


def test_breaker_lets_everyone_ask_while_there_are_answers() -> None:
    """It must cost nothing when nothing is wrong."""
    breaker = Breaker(1.0)
    assert ["go"] * 3 == [breaker.turn(now_s) for now_s in (0.0, 0.0, 5.0)]
    breaker.answered()
    assert "go" == breaker.turn(6.0)


def test_breaker_lets_one_probe_after_the_pause_and_the_others_wait() -> None:
    """A hundred open pages must not hang on the database one after the other."""
    breaker = Breaker(1.0)
    breaker.silent(10.0)
    assert ["wait", "wait", "probe", "wait"] == [breaker.turn(now_s) for now_s in (10.0, 10.9, 11.0, 11.0)]
    breaker.silent(12.0)
    assert ["wait", "probe"] == [breaker.turn(now_s) for now_s in (12.9, 13.0)]


def test_breaker_closes_with_the_first_answer() -> None:
    """The next page after the database came back shows figures."""
    breaker = Breaker(1.0)
    breaker.silent(10.0)
    assert "probe" == breaker.turn(11.0)
    breaker.answered()
    assert ["go", "go"] == [breaker.turn(11.1), breaker.turn(11.1)]


def test_breaker_asks_again_when_the_one_who_probed_has_gone() -> None:
    """A closed tab must not leave the door shut for ever."""
    breaker = Breaker(1.0)
    breaker.silent(10.0)
    assert "probe" == breaker.turn(11.0)
    breaker.left()
    assert "probe" == breaker.turn(11.1)
