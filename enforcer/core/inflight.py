"""How many requests one copy may have in flight, and who may use which part of that room.

Pure counting: no clock, no identity, no lock. Who calls it sees to it that two calls never overlap.
"""

from __future__ import annotations

import math
from enum import StrEnum

import msgspec

from enforcer.errors import InvalidField

#: What rounding may take from a product that is meant to be whole.
_EPSILON = 1e-9


class Priority(StrEnum):
    """Which part of the room a class of requests may use."""

    LOW = "low"
    """Goes first: may use neither what is reserved for normal requests nor what is reserved for high ones."""
    NORMAL = "normal"
    """May use everything but what is reserved for high ones."""
    HIGH = "high"
    """May use all of it."""


class Rooms(msgspec.Struct, frozen=True):
    """Requests in flight, of any priority, below which a request of each priority is let in. The highest is the bound.

    Build it with `rooms_of`.
    """

    low: int
    normal: int
    high: int

    def of(self, priority: Priority) -> int:
        """The room of one priority."""
        if priority is Priority.NORMAL:
            return self.normal
        return self.high if priority is Priority.HIGH else self.low


def bound_of(ceiling_per_s: float, copies: int, latency_s: float) -> int:
    """Requests in flight in one copy at which the fleet serves its ceiling: ceiling ÷ copies × latency, at least 1.

    Rounded down: all copies together stay below what the service holds, unless that is less than one for each.
    """
    return max(1, math.floor(ceiling_per_s / copies * latency_s + _EPSILON))


def rooms_of(bound: int, *, reserve_normal: float = 0.0, reserve_high: float = 0.0) -> Rooms:
    """Divide a bound.

    Args:
        bound: requests in flight, from 1.
        reserve_normal: share of it that low requests must leave free, beside the next.
        reserve_high: share of it that low and normal requests must leave free.

    Raises:
        InvalidField: the bound is below 1, a share below 0, or both shares together are 1 or more: nothing of low
            priority would ever be let in.
    """
    if bound < 1:
        raise InvalidField("bound", bound, "a whole number from 1")
    if reserve_normal < 0:
        raise InvalidField("reserve_normal", reserve_normal, "0 or more")
    if not 0 <= reserve_high < 1 - reserve_normal:
        raise InvalidField("reserve_high", reserve_high, "0 or more, and below 1 together with reserve_normal")
    # Reserves are rounded down, so that a small bound is not all reserve.
    return Rooms(
        low=max(1, bound - math.floor(bound * (reserve_normal + reserve_high) + _EPSILON)),
        normal=max(1, bound - math.floor(bound * reserve_high + _EPSILON)),
        high=bound,
    )


class InFlight:
    """How many are in.

    Attributes:
        rooms: the bound and its parts; None for no bound. It may change at any time: a smaller one ends no request.
        held: requests in flight.
    """

    __slots__ = ("held", "rooms")

    def __init__(self, rooms: Rooms | None) -> None:
        self.rooms = rooms
        self.held = 0

    def take(self, priority: Priority) -> bool:
        """Let one in, if there is room for its priority."""
        if self.rooms is not None and self.held >= self.rooms.of(priority):
            return False
        self.held += 1
        return True

    def give(self) -> None:
        """One is finished.

        Raises:
            InvalidField: nothing is in flight: somebody gave what was not taken.
        """
        if self.held == 0:
            raise InvalidField("held", 0, "at least 1: only what was taken can be given back")
        self.held -= 1
