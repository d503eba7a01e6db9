"""The adaptive bound in front of a simulated service with a queue: it neither collapses nor runs away.

The service has so many workers and takes so long for a request; what finds no worker waits in line. Time is simulated.
"""

from __future__ import annotations

import heapq
import random
from collections import deque
from dataclasses import dataclass, field

import pytest

from enforcer.cap.cap import Cap, Slot
from enforcer.clock import ManualClock
from enforcer.core.adapting import Adapting, AdaptingDials
from enforcer.core.inflight import rooms_of

_MOST = 200
_LEAST = 20


@dataclass
class _Phase:
    """What a span of the simulation came to."""

    served: int = 0
    refused: int = 0
    latencies_s: list[float] = field(default_factory=list)
    bounds: list[int] = field(default_factory=list)

    def late_latency_s(self) -> float:
        """The 95th percentile in the second half of the span."""
        half = sorted(self.latencies_s[len(self.latencies_s) // 2 :])
        return half[len(half) * 95 // 100]


class _Service:
    """Workers behind a capped gateway, fed with random arrivals."""

    def __init__(self, *, workers: int, seed: int, remeasure_s: float = 20) -> None:
        self.workers = workers
        self.takes_s = 0.05
        self.clock = ManualClock(monotonic_ns=0)
        self.adapting = Adapting(least=_LEAST, most=_MOST, now_ns=0, dials=AdaptingDials(remeasure_s=remeasure_s))
        self.cap = Cap(rooms_of(_MOST), adapting=self.adapting, clock=self.clock)
        self._chance = random.Random(seed)
        self._now_s = 0.0
        self._line: deque[tuple[float, Slot]] = deque()
        self._busy: list[tuple[float, float, int, Slot]] = []
        self._number = 0

    def run(self, seconds: float, *, per_s: float) -> _Phase:
        """Let so many requests per second arrive, at random."""
        phase = _Phase()
        end_s = self._now_s + seconds
        arrival_s = self._now_s
        while (arrival_s := arrival_s + self._chance.expovariate(per_s)) < end_s:
            self._finish_until(arrival_s, phase)
            self._go_to(arrival_s)
            slot = self.cap.take()
            if slot is None:
                phase.refused += 1
            else:
                self._line.append((arrival_s, slot))
                self._start(arrival_s)
            phase.bounds.append(self.adapting.bound)
        return phase

    def _start(self, now_s: float) -> None:
        while self._line and len(self._busy) < self.workers:
            came_s, slot = self._line.popleft()
            self._number += 1
            takes_s = self.takes_s * self._chance.uniform(0.8, 1.2)
            heapq.heappush(self._busy, (now_s + takes_s, came_s, self._number, slot))

    def _finish_until(self, until_s: float, phase: _Phase) -> None:
        while self._busy and self._busy[0][0] <= until_s:
            done_s, came_s, _, slot = heapq.heappop(self._busy)
            self._go_to(done_s)
            slot.release(served=True)
            phase.served += 1
            phase.latencies_s.append(done_s - came_s)
            self._start(done_s)

    def _go_to(self, at_s: float) -> None:
        self.clock.advance(max(0.0, at_s - self.clock.monotonic_ns() / 1e9))
        self._now_s = at_s


def test_overload_is_served_at_full_speed_and_without_a_queue() -> None:
    """Three times what the service can do, for minutes: what is let in is served in time, and nothing stands idle."""
    service = _Service(workers=40, seed=1)
    service.run(20, per_s=2_400)
    phase = service.run(100, per_s=2_400)
    assert phase.served > 0.93 * 100 * 40 / 0.05
    assert phase.late_latency_s() < 2.2 * 0.05
    assert 30 <= min(phase.bounds) <= max(phase.bounds) <= 80


def test_floor_does_not_rise_with_a_lasting_overload() -> None:
    """A floor taken under load rises with it and drags the bound along: the known run-away."""
    service = _Service(workers=40, seed=2)
    for _ in range(6):
        service.run(20, per_s=1_600)
        assert 0.045 <= service.adapting.floor_ns / 1e9 <= 0.06


def test_nothing_is_refused_where_there_is_no_overload() -> None:
    """A bound that is more careful than it needs to be refuses what could be served."""
    service = _Service(workers=40, seed=3)
    service.run(20, per_s=400)
    phase = service.run(100, per_s=400)
    assert 0 == phase.refused
    assert phase.served > 0.98 * 100 * 400


@pytest.mark.parametrize("remeasure_s", [20, 100_000], ids=["floor measured anew", "floor found at the least bound"])
def test_a_service_that_becomes_slower_for_good_is_not_strangled(remeasure_s: float) -> None:
    """Four times slower: against the old floor everything is too long. The bound must come back, and go on serving."""
    service = _Service(workers=40, seed=4, remeasure_s=remeasure_s)
    service.run(30, per_s=1_200)
    service.takes_s = 0.2
    service.run(30, per_s=1_200)
    phase = service.run(60, per_s=1_200)
    assert phase.served > 0.9 * 60 * 40 / 0.2
    assert phase.late_latency_s() < 2.2 * 0.2


def test_a_service_that_recovers_is_used_again() -> None:
    """Twice the workers and half the time: the bound grows to what there is, not beyond the most."""
    service = _Service(workers=20, seed=5)
    service.run(30, per_s=1_600)
    assert service.adapting.bound <= 50
    service.workers = 80
    service.run(40, per_s=4_000)
    phase = service.run(20, per_s=4_000)
    assert phase.served > 0.9 * 20 * 80 / 0.05
    assert max(phase.bounds) <= _MOST
