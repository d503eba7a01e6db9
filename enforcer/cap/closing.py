"""Holds a slot until a WSGI response is finished: its iterable is exhausted, fails, is closed, or is dropped.

A server calls `close` when the client went away, and need not when it read to the end; either releases the slot.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from enforcer.cap.cap import Slot


def held(respond: Callable[[], Iterable[bytes]], slot: Slot) -> HeldResponse:
    """What the application answers, holding `slot` until it is finished; whatever `respond` raises comes through."""
    response = None
    try:
        response = HeldResponse(respond(), slot)
    finally:
        if response is None:
            slot.release()
    return response


class HeldResponse:
    """The parts of a response, in the order in which the application gives them, and its slot."""

    def __init__(self, parts: Iterable[bytes], slot: Slot) -> None:
        self._parts = parts
        self._iterator = iter(parts)
        self._slot = slot

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        try:
            return next(self._iterator)
        except StopIteration:
            self._slot.release(served=True)
            raise
        except BaseException:
            self._slot.release()
            raise

    def close(self) -> None:
        """Close the application's iterable, as the server would, and release the slot also if that fails."""
        close = getattr(self._parts, "close", None)
        try:
            if close is not None:
                close()
        finally:
            self._slot.release()
