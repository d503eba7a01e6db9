"""Signals that end a command: raised where it waits, held back where it must not be interrupted."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator

import pytest

from tallygate.ending import Ended, held, ignore_end, raise_at_end, run_async

_NUMBERS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    """The handlers of the test run, put back."""
    before = {number: signal.getsignal(number) for number in _NUMBERS}
    # As in a terminal, whatever the test run was started by.
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", _NUMBERS)
def test_a_signal_is_raised_with_the_exit_code_that_shells_expect(number: signal.Signals) -> None:
    """130 after Ctrl-C, 143 after a stop: scripts tell an end from a failure by it."""
    raise_at_end()
    with pytest.raises(Ended) as ended:
        signal.raise_signal(number)
    assert (ended.value.name, ended.value.exit_code) == (number.name, 128 + number)


def test_a_signal_waits_for_the_end_of_what_holds_it() -> None:
    """A child that was started and not noted would outlive the clean-up."""
    raise_at_end()
    noted: list[str] = []
    with pytest.raises(Ended, match="SIGTERM"):
        _start_and_note(noted)
    assert noted == ["child"]
    with held():
        noted.append("again")


async def _wait(said: list[str]) -> str:
    signal.raise_signal(signal.SIGHUP)
    try:
        await asyncio.sleep(60)
    finally:
        said.append("cleaned up")
    return "slept"


def test_a_signal_ends_what_runs_in_a_loop_with_its_clean_up(caplog: pytest.LogCaptureFixture) -> None:
    """Raised within a task it would be lost in it, and told as a defect of ours."""
    said: list[str] = []
    with pytest.raises(Ended, match="SIGHUP"):
        run_async(_wait(said))
    assert said == ["cleaned up"]
    assert caplog.text == ""
    with pytest.raises(Ended, match="SIGTERM"):
        signal.raise_signal(signal.SIGTERM)


async def _interrupt() -> str:
    signal.raise_signal(signal.SIGINT)
    await asyncio.sleep(0.01)
    return "went on"


def test_an_interrupt_may_mean_something_else_in_a_loop() -> None:
    """Ctrl-C during the traffic ends the traffic, and the count goes on."""
    said: list[str] = []
    assert run_async(_interrupt(), on_interrupt=lambda: said.append("stop")) == "went on"
    assert said == ["stop"]


def _start_and_note(noted: list[str]) -> None:
    with held(), held():
        signal.raise_signal(signal.SIGTERM)
        noted.append("child")


def test_an_end_that_is_under_way_is_not_left_half_done() -> None:
    """A second Ctrl-C is impatience, not a reason to leave a folder behind."""
    ignore_end()
    for number in _NUMBERS:
        signal.raise_signal(number)


def test_a_hangup_that_is_ignored_stays_ignored() -> None:
    """``nohup tallygate up`` is to outlive its terminal."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    raise_at_end()
    signal.raise_signal(signal.SIGHUP)

    async def main() -> str:
        signal.raise_signal(signal.SIGHUP)
        await asyncio.sleep(0)
        return "went on"

    assert run_async(main()) == "went on"
    assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    with pytest.raises(Ended, match="SIGTERM"):
        signal.raise_signal(signal.SIGTERM)
