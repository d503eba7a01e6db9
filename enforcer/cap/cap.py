"""The cap is the protection; the limiter is the fairness.

It bounds how many requests this copy has in flight and knows nothing else: no caller, no plan, no owner, and no clock
unless it adapts. It never waits, never queues and never asks anyone. Who may have how many of the service's requests
is `enforcer.limiting.limiter`'s to say, which in turn does not know whether the service is saturated: each is blind to
what the other sees, so a gateway wants both.

What was taken comes back exactly once, whatever becomes of the request: see `Slot`.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Final, ParamSpec, Self

from enforcer.clock import Clock
from enforcer.core.adapting import Adapting
from enforcer.core.inflight import InFlight, Priority, Rooms
from enforcer.forking import tell_of_forks
from enforcer.types import Verdict

P = ParamSpec("P")


class Slot:
    """One request in flight. Use it in a ``with``, or call `release` when the response is finished.

    Releasing twice is the same as once, from any thread. A slot that is dropped without it, such as that of a response
    that nobody reads or closes, is released when it is collected, and counted in `Cap.abandoned`.
    """

    __slots__ = ("_abandoned", "_began_ns", "_cap", "_count", "_open")

    def __init__(self, cap: Cap, count: InFlight, abandoned: deque[int], began_ns: int) -> None:
        self._cap = cap
        self._count = count
        self._abandoned = abandoned
        self._began_ns = began_ns
        self._open = [True]

    def release(self, *, served: bool = False) -> None:
        """The request is finished. `served` says that its latency is the service's own, and may be learned from."""
        try:
            self._open.pop()
        except IndexError:
            return
        self._cap._give(self._count, self._began_ns, served=served)

    async def checked(self, check: Awaitable[Verdict]) -> Verdict:
        """The limiter's verdict; unless that admits, the slot is free again: also if it raises or is cancelled."""
        allowed = False
        try:
            verdict = await check
            allowed = verdict.allowed
        finally:
            if not allowed:
                self.release()
        return verdict

    def checked_by(self, check: Callable[P, Verdict], /, *args: P.args, **kwargs: P.kwargs) -> Verdict:
        """The same for a check on this thread."""
        allowed = False
        try:
            verdict = check(*args, **kwargs)
            allowed = verdict.allowed
        finally:
            if not allowed:
                self.release()
        return verdict

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release(served=kind is None)

    def __del__(self) -> None:
        # May run at any moment, also while this thread holds the cap's lock: no lock here, only an atomic append.
        if self._open:
            self._open.clear()
            self._abandoned.append(self._began_ns)


class Cap:
    """At most so many requests in flight. Safe for any number of threads and event loops; nothing in it waits."""

    def __init__(
        self, rooms: Rooms | None = None, *, adapting: Adapting | None = None, clock: Clock | None = None
    ) -> None:
        """Start empty.

        Args:
            rooms: the bound and its reserves, from `rooms_of`; None: it only counts.
            adapting: moves the bound below that of `rooms`; needs a clock. None: it stays.
            clock: for `adapting` alone.
        """
        self._lock = threading.Lock()
        self._count = InFlight(rooms)
        self._rooms = rooms
        self._clock = clock
        self._abandoned: deque[int] = deque()
        self._adapting: Adapting | None = None
        self._refused = dict.fromkeys(Priority, 0)
        self._lost = 0
        self.resize(rooms, adapting=adapting)
        tell_of_forks(self)

    @property
    def in_flight(self) -> int:
        """Requests in flight."""
        with self._lock:
            self._sweep()
            return self._count.held

    @property
    def bound(self) -> int | None:
        """The most that there may be now; None for no bound."""
        rooms = self._count.rooms
        return None if rooms is None else rooms.high

    @property
    def refused(self) -> dict[Priority, int]:
        """How many were not let in, by priority: totals."""
        return dict(self._refused)

    @property
    def abandoned(self) -> int:
        """Slots that were dropped without being released, in all. Above 0 some response is not closed as it should."""
        return self._lost + len(self._abandoned)

    def take(self, priority: Priority = Priority.NORMAL) -> Slot | None:
        """A slot for one request, or None if there is no room for its priority."""
        began_ns = self._clock.monotonic_ns() if self._clock is not None else 0
        with self._lock:
            self._sweep()
            if not self._count.take(priority):
                self._refused[priority] += 1
                return None
        return Slot(self, self._count, self._abandoned, began_ns)

    def resize(self, rooms: Rooms | None, *, adapting: Adapting | None = None) -> None:
        """Go by another bound. What is in flight stays; nothing more is let in before there is room again.

        Raises:
            ValueError: `adapting` without a clock or without rooms.
        """
        if adapting is not None and (self._clock is None or rooms is None):
            raise ValueError("adapting needs a clock and rooms: latency is measured, below a bound")
        with self._lock:
            self._rooms = rooms
            self._adapting = adapting
            self._count.rooms = rooms
            self._adapt()

    def after_fork(self) -> None:
        """See `Forkable`: what is in flight is so in the parent, and slots that were taken there are not given back."""
        self._lock = threading.Lock()
        self._count = InFlight(self._count.rooms)
        self._abandoned = deque()
        self._refused = dict.fromkeys(Priority, 0)
        self._lost = 0

    def _give(self, count: InFlight, began_ns: int, *, served: bool) -> None:
        with self._lock:
            if count is not self._count:
                return
            in_flight = self._count.held
            self._count.give()
            self._sweep()
            if served and self._adapting is not None and self._clock is not None:
                self._adapting.finished(began_ns=began_ns, now_ns=self._clock.monotonic_ns(), in_flight=in_flight)
                self._adapt()

    def _adapt(self) -> None:
        """Bring the rooms to the adaptive bound, in the proportions of the given ones."""
        rooms = self._rooms
        if self._adapting is None or rooms is None or self._count.rooms is None:
            return
        bound = min(self._adapting.bound, rooms.high)
        if bound != self._count.rooms.high:
            low, normal = (max(1, -(-bound * room // rooms.high)) for room in (rooms.low, rooms.normal))
            self._count.rooms = Rooms(low, normal, bound)

    def _sweep(self) -> None:
        """Take back what was dropped. With the lock held."""
        while self._abandoned:
            self._abandoned.popleft()
            self._lost += 1
            self._count.give()


class _NoSlot(Slot):
    """Where there is no cap: nothing to release."""

    __slots__ = ()

    def __init__(self) -> None:
        self._open = []


#: One for all requests that are not capped.
NO_SLOT: Final[Slot] = _NoSlot()
