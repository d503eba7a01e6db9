"""What happens in simulated time besides requests: events in their order, and the faults that a world asks for."""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heappop, heappush
from typing import Any, Protocol

from enforcer.core.account import Account
from enforcer.core.resolution import Due
from enforcer.types import Plan, Terms
from tests.sim.world import Place, Seat, World

SECOND_US = 1_000_000


class Event(Protocol):
    """What happens at a time."""

    def __call__(self, at_us: int, *arguments: Any) -> None:
        """Let it happen."""


class Timeline:
    """Copies, an owner's memory, and what happens to them. `_schedule` before the first request."""

    def __init__(self, plans: Sequence[Plan], world: World) -> None:
        self._world = world
        self._terms = [Terms("rate", plan, 1) for plan in plans]
        self._places = [Place(number) for number in range(world.fleet)]
        self._seats: list[Seat | None] = [None] * (world.fleet * len(plans))
        self._admitted: list[list[int]] = [[] for _ in plans]
        self._states: dict[str, Any] = {}
        self._offset_us = 0
        self._events: list[tuple[int, int, Event, tuple[Any, ...]]] = []
        self._number = 0

    def _happen_until(self, until_us: int | None) -> None:
        """Let everything happen that is due by then; None: everything."""
        events = self._events
        while events and (until_us is None or events[0][0] <= until_us):
            at_us, _, act, arguments = heappop(events)
            act(at_us, *arguments)

    def _new_seat(self, number: int, at_us: int) -> Seat:
        caller, place_no = divmod(number, self._world.fleet)
        account = Account(
            Due(f"caller-{caller}", self._terms[caller], None, "", -1.0, "simulated"), now_ns=at_us * 1_000
        )
        place = self._places[place_no]
        seat = self._seats[number] = Seat(account, place, caller, self._admitted[caller])
        place.seats.append(seat)
        return seat

    def _crash(self, at_us: int, number: int) -> None:
        """Killed while holding: the next life knows nothing, and nobody settles for the last one."""
        place = self._places[number]
        place.epoch += 1
        place.busy = False
        place.pending = []
        place.alone_until_us = 0
        for seat in place.seats:
            seat.account = Account(seat.account.due, now_ns=at_us * 1_000)
            seat.waiting = []
            seat.queued = seat.watched = False

    def _freeze(self, at_us: int, number: int, length_us: int) -> None:
        self._places[number].frozen_until_us = at_us + length_us

    def _step_clock(self, at_us: int, step_us: int) -> None:
        self._offset_us += step_us

    def _restart(self, at_us: int) -> None:
        self._states.clear()

    def _thawed(self, place: Place, at_us: int, act: Event, *arguments: Any) -> bool:
        """Whether it happens now; if the copy is stopped, it happens when it goes on."""
        if at_us >= place.frozen_until_us:
            return True
        self._push(place.frozen_until_us, act, *arguments)
        return False

    def _push(self, at_us: int, act: Event, *arguments: Any) -> None:
        self._number += 1
        heappush(self._events, (at_us, self._number, act, arguments))

    def _schedule(self) -> None:
        world = self._world
        for at_s, number in world.crashes:
            self._push(round(at_s * SECOND_US), self._crash, number)
        for at_s, number, length_s in world.freezes:
            self._push(round(at_s * SECOND_US), self._freeze, number, round(length_s * SECOND_US))
        for at_s, step_s in world.clock_steps:
            self._push(round(at_s * SECOND_US), self._step_clock, round(step_s * SECOND_US))
        for at_s in world.restarts:
            self._push(round(at_s * SECOND_US), self._restart)
