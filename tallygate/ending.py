"""The signals that end a command of ours in good order, instead of where it stands."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from functools import partial
from types import FrameType
from typing import Any, TypeVar

_Result = TypeVar("_Result")

_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Ended(KeyboardInterrupt):
    """A signal asks us to end; everything that is under way is left, and cleaned up.

    Attributes:
        name: of the signal.
        exit_code: what the shell expects of a process that ended by it.
    """

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.name = signal.Signals(number).name
        self.exit_code = 128 + number


def raise_at_end() -> None:
    """From now on each of the signals raises `Ended` in the main thread.

    SIGINT also where it is ignored: a shell starts background commands so. A hangup that is ignored stays ignored:
    ``nohup`` starts a command so that is to outlive its terminal.
    """
    for number in _heard():
        signal.signal(number, _raise)


def ignore_end() -> None:
    """From now on none of them does anything: an end that is under way is not left half done."""
    for number in _ENDING:
        signal.signal(number, signal.SIG_IGN)


def run_async(main: Coroutine[Any, Any, _Result], *, on_interrupt: Callable[[], None] | None = None) -> _Result:
    """As ``asyncio.run``, with the signals taken by the loop: raised within a task, `Ended` would be lost in it.

    Args:
        main: what to run; a signal cancels it.
        on_interrupt: called at SIGINT instead, in the loop.

    Raises:
        Ended: a signal came.
    """
    came: list[int] = []
    try:
        found = asyncio.run(_watched(main, came, on_interrupt))
    finally:
        raise_at_end()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _ENDING)
    if came:
        raise Ended(came[0])
    return found[0]


async def _watched(
    main: Coroutine[Any, Any, _Result], came: list[int], on_interrupt: Callable[[], None] | None
) -> list[_Result]:
    loop, task = asyncio.get_running_loop(), asyncio.ensure_future(main)

    def end(number: int) -> None:
        came.append(number)
        task.cancel()

    for number in _heard():
        loop.add_signal_handler(number, partial(end, number))
    if on_interrupt is not None:
        loop.add_signal_handler(signal.SIGINT, on_interrupt)
    try:
        return [await task]
    except asyncio.CancelledError:
        if not came:
            raise
        return []
    finally:
        # Until our own handlers are back: the loop leaves the signals to the system, which would end us where we are.
        signal.pthread_sigmask(signal.SIG_BLOCK, _ENDING)


def _heard() -> list[signal.Signals]:
    is_deaf = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    return [number for number in _ENDING if not (is_deaf and number is signal.SIGHUP)]


@contextmanager
def held() -> Iterator[None]:
    """Let a signal wait until the context ends; in the main thread only.

    For what is short and must not be half done, such as starting a process and noting it.
    """
    _hold.depth += 1
    try:
        yield
    finally:
        _hold.depth -= 1
        number, _hold.pending = _hold.pending, None
        if number is not None:
            _raise(number, None)


class _Hold:
    """How many contexts hold signals back, and the last signal that came meanwhile."""

    depth = 0
    pending: int | None = None


_hold = _Hold()


def _raise(number: int, _frame: FrameType | None) -> None:
    if _hold.depth:
        _hold.pending = number
    else:
        raise Ended(number)
