"""A fleet in simulated time: one caller's requests over k copies, the specified owner, and an exact bucket beside.

Event by event and seeded; nothing waits. A request that must ask is answered at once: the round trip is not simulated.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from enforcer.core.bucket import answer
from enforcer.core.dials import DEFAULT_DIALS, Dials
from enforcer.core.sizing import decay
from enforcer.core.state import Bucket
from enforcer.types import Plan
from tests.property.copy_model import ModelCopy

START_US = 1_780_000_000_000_000
_SECOND_US = 1_000_000

#: Arrival times in seconds, for a plan, a length and a source of chance.
Pattern = Callable[[Plan, float, random.Random], Iterator[float]]


@dataclass
class Figures:
    """What a run came to.

    Attributes:
        offered, admitted: requests.
        asks: calls at the owner.
        wrongful: refused although the exact bucket admitted.
        worst_excess: most that was admitted in any window beyond burst + rate × t.
        seconds: length of the run.
    """

    offered: int = 0
    admitted: int = 0
    asks: int = 0
    wrongful: int = 0
    worst_excess: float = 0.0
    seconds: float = 0.0

    @property
    def wrongful_percent(self) -> float:
        """Of the offered."""
        return 100.0 * self.wrongful / max(1, self.offered)

    @property
    def asks_per_s(self) -> float:
        """Over the whole run."""
        return self.asks / self.seconds


class ExactBucket:
    """The one bucket that was sold: what a fleet of one copy would decide."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._tokens = float(plan.burst)
        self._at_s = 0.0

    def admits(self, at_s: float) -> bool:
        """Decide a request of one token."""
        self._tokens = min(self._plan.burst, self._tokens + self._plan.rate_per_s * (at_s - self._at_s))
        self._at_s = at_s
        if self._tokens < 1.0:
            return False
        self._tokens -= 1.0
        return True


def steady(part: float) -> Pattern:
    """Poisson arrivals at a part of the plan."""

    def arrivals(plan: Plan, seconds: float, chance: random.Random) -> Iterator[float]:
        at_s = 0.0
        while (at_s := at_s + chance.expovariate(part * plan.rate_per_s)) < seconds:
            yield at_s

    return arrivals


def switching(high: float, high_s: float, low: float, low_s: float) -> Pattern:
    """Poisson arrivals at two rates by turns, in parts of the plan; 0 for silence."""

    def arrivals(plan: Plan, seconds: float, chance: random.Random) -> Iterator[float]:
        begin_s = 0.0
        while begin_s < seconds:
            for part, length_s in ((high, high_s), (low, low_s)):
                at_s = begin_s
                while part and (at_s := at_s + chance.expovariate(part * plan.rate_per_s)) < begin_s + length_s:
                    yield at_s
                begin_s += length_s

    return arrivals


def spikes(part: float, every_s: float) -> Pattern:
    """A part of the burst within a tenth of a second, again and again."""

    def arrivals(plan: Plan, seconds: float, chance: random.Random) -> Iterator[float]:
        begin_s = 0.5
        while begin_s < seconds:
            yield from sorted(begin_s + chance.uniform(0.0, 0.1) for _ in range(round(part * plan.burst)))
            begin_s += every_s

    return arrivals


def run(
    pattern: Pattern,
    *,
    plan: Plan,
    k: int,
    seconds: float,
    seed: int,
    move_every_s: float = 0.0,
    dials: Dials = DEFAULT_DIALS,
) -> Figures:
    """Send a pattern to k copies at random; with `move_every_s` to k others after that time."""
    chance = random.Random(seed)
    exact = ExactBucket(plan)
    copies = [SimulatedCopy(f"gw-{number}", plan) for number in range(k * (8 if move_every_s else 1))]
    figures = Figures(seconds=seconds)
    bucket: Bucket | None = None
    lowest = 0.0
    for at_s in pattern(plan, seconds, chance):
        moved = int(at_s // move_every_s) * k if move_every_s else 0
        copy = copies[(chance.randrange(k) + moved) % len(copies)]
        figures.offered += 1
        bucket, admitted = copy.decide(bucket, at_s, chance.random(), dials, figures)
        figures.wrongful += exact.admits(at_s) and not admitted
        before = figures.admitted - plan.rate_per_s * at_s
        figures.admitted += admitted
        lowest = min(lowest, before)
        figures.worst_excess = max(figures.worst_excess, before + admitted - lowest - plan.burst)
    return figures


class SimulatedCopy(ModelCopy):
    """A copy that knows its own rate, and refuses by itself for as long as it was told."""

    spent_lately: float = 0.0
    at_s: float = 0.0

    def decide(
        self, bucket: Bucket | None, at_s: float, jitter: float, dials: Dials, figures: Figures
    ) -> tuple[Bucket | None, bool]:
        """One request of one token: from what it holds, from what it knows, or by an ask."""
        real_us = round(at_s * _SECOND_US)
        self.spent_lately *= decay(at_s - self.at_s, 1.0)
        self.at_s = at_s
        self.rate_per_s = self.spent_lately
        self.drop_expired(real_us)
        self.offered += 1
        if self.left == 0 and real_us >= self.refused_until_us:
            figures.asks += 1
            asked = self.ask(waiting=1, want=self.want(), jitter=jitter)
            bucket, answered = answer(bucket, asked, START_US + real_us, dials)
            self.receive(asked, answered, sent_real_us=real_us, real_us=real_us)
        admitted = self.left > 0
        if admitted:
            self.spend(1)
            self.spent_lately += 1.0
        return bucket, admitted
