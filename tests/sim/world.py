"""What surrounds the rule in a simulated fleet: the wire, the owner's queue, what goes wrong, and the copies' seats."""

from __future__ import annotations

from dataclasses import dataclass

from enforcer.core.account import Account
from tests.sim.traffic import FLEET


@dataclass(frozen=True)
class World:
    """Everything but the rule and the traffic.

    Attributes:
        rtt_us: there and back, without the owner's own time.
        service_us: the owner's own time for one ask; asks queue for it.
        idle_settle_us: how often a copy that spent nothing asks itself whether to give back what it holds; 0 for never.
        ahead_above_ms: the next grant is asked for early while answers take longer.
        timeout_us: how long a copy waits for an answer, and then decides alone.
        retry_us: how long it decides alone until it asks again.
        lose: chance that an ask is lost on its way; the same again for its answer.
        crashes: (second, copy): killed while holding, and started anew at once.
        freezes: (second, copy, seconds): stopped, and what came meanwhile is decided after it.
        clock_steps: (second, seconds): of the owner's clock.
        restarts: seconds at which the owner forgets everything.
        fleet: copies there are.
    """

    rtt_us: int = 500
    service_us: float = 0.0
    idle_settle_us: int = 1_000_000
    ahead_above_ms: float = 2.0
    timeout_us: int = 50_000
    retry_us: int = 100_000
    lose: float = 0.0
    crashes: tuple[tuple[float, int], ...] = ()
    freezes: tuple[tuple[float, int, float], ...] = ()
    clock_steps: tuple[tuple[float, float], ...] = ()
    restarts: tuple[float, ...] = ()
    fleet: int = FLEET


class Place:
    """One process of the fleet: it has one round to the owner under way at most."""

    __slots__ = ("alone_until_us", "ask_no", "busy", "epoch", "frozen_until_us", "number", "pending", "rtt_s", "seats")

    def __init__(self, number: int) -> None:
        self.number = number
        self.epoch = 1
        self.ask_no = 0
        self.busy = False
        self.pending: list[Seat] = []
        self.seats: list[Seat] = []
        self.rtt_s = 0.0
        self.frozen_until_us = 0
        self.alone_until_us = 0

    def __str__(self) -> str:
        return f"gw-{self.number}/{self.epoch}"


class Seat:
    """One caller at one copy."""

    __slots__ = ("account", "admitted", "caller", "counted", "place", "queued", "waiting", "watched")

    def __init__(self, account: Account, place: Place, caller: int, admitted: list[int]) -> None:
        self.account = account
        self.place = place
        self.caller = caller
        self.admitted = admitted
        self.waiting: list[int] = []
        self.counted = 0
        self.queued = False
        self.watched = False
