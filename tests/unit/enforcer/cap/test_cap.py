"""The cap by direct calls: the bound, the reserves, and that what was taken comes back exactly once (E23)."""

from __future__ import annotations

import asyncio
import gc
import random
import threading
from collections.abc import Iterator

import pytest

from enforcer.cap.cap import Cap, Slot
from enforcer.cap.closing import HeldResponse
from enforcer.clock import ManualClock
from enforcer.core.adapting import Adapting, AdaptingDials
from enforcer.core.inflight import InFlight, Priority, Rooms, bound_of, rooms_of
from enforcer.errors import InvalidField


class _Broken(Exception):
    """What the requests of these tests fail with."""


def _fail_sometimes(chance: random.Random) -> None:
    if chance.random() < 0.5:
        raise _Broken


def _taken(cap: Cap, priority: Priority = Priority.NORMAL) -> Slot:
    slot = cap.take(priority)
    assert slot is not None
    return slot


async def test_in_flight_returns_to_zero_whatever_becomes_of_ten_thousand_tasks() -> None:
    """E23: a slot that leaks at a cancellation closes the service for good, a few requests at a time."""
    cap = Cap(rooms_of(27))
    chance = random.Random(23)
    refused = peak = 0

    async def request() -> None:
        nonlocal refused, peak
        slot = cap.take()
        if slot is None:
            refused += 1
            return
        with slot:
            peak = max(peak, cap.in_flight)
            for _ in range(chance.randrange(4)):
                await asyncio.sleep(0)
            if chance.random() < 0.3:
                raise _Broken

    for _ in range(100):
        tasks = [asyncio.create_task(request()) for _ in range(100)]
        for _ in range(4):
            await asyncio.sleep(0)
            for task in chance.sample(tasks, 15):
                task.cancel()
        outcomes = await asyncio.gather(*tasks, return_exceptions=True)
        assert {_Broken, asyncio.CancelledError} >= {type(outcome) for outcome in outcomes if outcome is not None}
    assert (0, 27, 0) == (cap.in_flight, peak, cap.abandoned)
    assert refused == cap.refused[Priority.NORMAL] > 0


def test_in_flight_returns_to_zero_under_threads() -> None:
    """E23 with threads: a count that two of them change at once drifts, and never comes back."""
    cap = Cap(rooms_of(27))
    above = []
    ready = threading.Barrier(48)

    def run(seed: int) -> None:
        chance = random.Random(seed)
        ready.wait()
        for _ in range(210):
            slot = cap.take()
            if slot is None:
                continue
            try:
                with slot:
                    if cap.in_flight > 27:
                        above.append(cap.in_flight)
                    _fail_sometimes(chance)
            except _Broken:
                slot.release()

    threads = [threading.Thread(target=run, args=(seed,)) for seed in range(48)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (0, []) == (cap.in_flight, above)


def test_reserved_room_is_for_those_it_is_reserved_for() -> None:
    """What is left in a flood must serve the requests that matter."""
    cap = Cap(rooms_of(20, reserve_normal=0.2, reserve_high=0.1))
    low = [cap.take(Priority.LOW) for _ in range(20)]
    normal = [cap.take(Priority.NORMAL) for _ in range(20)]
    high = [cap.take(Priority.HIGH) for _ in range(20)]
    assert [14, 4, 2] == [sum(slot is not None for slot in slots) for slots in (low, normal, high)]
    assert {Priority.LOW: 6, Priority.NORMAL: 16, Priority.HIGH: 18} == cap.refused


def test_a_small_bound_is_not_all_reserve() -> None:
    """A bound of one must still serve normal requests."""
    assert Rooms(1, 1, 1) == rooms_of(1, reserve_normal=0.4, reserve_high=0.5)
    assert Rooms(1, 2, 2) == rooms_of(2, reserve_normal=0.4, reserve_high=0.4)


@pytest.mark.parametrize(
    ("ceiling", "copies", "latency_s", "bound"),
    [(2_000, 4, 0.1, 50), (300, 1, 0.1, 30), (10, 4, 0.1, 1), (271, 1, 0.1, 27)],
)
def test_bound_is_ceiling_by_copies_times_latency(ceiling: float, copies: int, latency_s: float, bound: int) -> None:
    """Little's law, rounded down: all copies together stay below what the service holds."""
    assert bound == bound_of(ceiling, copies, latency_s)


@pytest.mark.parametrize(
    ("arguments", "field"),
    [((0, 0.0, 0.0), "bound"), ((9, -0.1, 0.0), "reserve_normal"), ((9, 0.5, 0.5), "reserve_high")],
)
def test_rooms_that_cannot_be_are_named(arguments: tuple[int, float, float], field: str) -> None:
    """A class of requests that is never let in is a mistake, not a choice."""
    bound, normal, high = arguments
    with pytest.raises(InvalidField, match=field):
        rooms_of(bound, reserve_normal=normal, reserve_high=high)


def test_giving_what_was_not_taken_is_an_error() -> None:
    """A count below zero would let more in than the bound."""
    with pytest.raises(InvalidField, match="held"):
        InFlight(None).give()


def test_releasing_twice_is_the_same_as_once() -> None:
    """A server may close a response that was already read to its end."""
    cap = Cap(rooms_of(2))
    first, _second = _taken(cap), _taken(cap)
    first.release()
    first.release(served=True)
    with first:
        pass
    assert 1 == cap.in_flight


def test_a_smaller_bound_ends_no_request() -> None:
    """A policy that is reloaded must not let go of what is being served, nor let more in meanwhile."""
    cap = Cap(rooms_of(3))
    slots = [_taken(cap) for _ in range(3)]
    cap.resize(rooms_of(1))
    assert (3, 1, None) == (cap.in_flight, cap.bound, cap.take())
    slots.pop().release()
    slots.pop().release()
    assert cap.take() is None
    slots.pop().release()
    assert cap.take() is not None


def test_without_a_bound_it_counts() -> None:
    """How many are in flight is worth knowing before there is a bound."""
    cap = Cap()
    slots = [cap.take() for _ in range(1_000)]
    assert (1_000, None, 1_000) == (cap.in_flight, cap.bound, len(slots))


def test_a_dropped_slot_comes_back_and_is_counted() -> None:
    """A response that nobody reads or closes must not close the service with it."""
    cap = Cap(rooms_of(1))
    slot: Slot | None = _taken(cap)
    assert cap.take() is None
    del slot
    gc.collect()
    again = cap.take()
    assert again is not None
    assert 1 == cap.abandoned


@pytest.mark.parametrize("ending", ["read", "closed", "failed", "dropped"])
def test_a_wsgi_response_holds_its_slot_until_it_is_finished(ending: str) -> None:
    """A streamed response occupies the service long after the application returned."""
    cap = Cap(rooms_of(1))
    closed = []

    def parts() -> Iterator[bytes]:
        try:
            yield b"a"
            if ending == "failed":
                raise _Broken
            yield b"b"
        finally:
            closed.append(True)

    response = HeldResponse(parts(), _taken(cap))
    assert (b"a", 1) == (next(response), cap.in_flight)
    if ending == "failed":
        with pytest.raises(_Broken):
            next(response)
    elif ending == "read":
        assert [b"b"] == list(response)
    elif ending == "closed":
        response.close()
    del response
    gc.collect()
    assert (0, [True], int(ending == "dropped")) == (cap.in_flight, closed, cap.abandoned)


def test_adaptive_bound_stays_below_the_given_one_and_keeps_its_proportions() -> None:
    """Whatever it measures, it may only be more careful than the policy."""
    clock = ManualClock()
    adapting = Adapting(least=2, most=20, now_ns=clock.monotonic_ns(), dials=AdaptingDials())
    cap = Cap(rooms_of(20, reserve_high=0.5), adapting=adapting, clock=clock)
    held = [cap.take(priority) for priority in (Priority.NORMAL, Priority.NORMAL, Priority.HIGH, Priority.HIGH)]
    assert [True, False, True, False] == [slot is not None for slot in held]
    assert 2 == cap.bound


def test_adapting_needs_a_clock_and_a_bound() -> None:
    """Without them it would silently be a fixed bound, or none."""
    adapting = Adapting(least=1, most=20, now_ns=0, dials=AdaptingDials())
    with pytest.raises(ValueError, match="needs a clock"):
        Cap(rooms_of(20), adapting=adapting)
    with pytest.raises(ValueError, match="and rooms"):
        Cap(None, adapting=adapting, clock=ManualClock())
