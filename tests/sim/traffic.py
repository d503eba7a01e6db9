"""What callers send: arrival times, and the copy that each request reaches. Seeded; the same seed is the same traffic.

Loads are given in parts of the plan, so that one pattern fits every plan. Knows nothing of limits.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from enforcer.types import Plan

FLEET = 240
_US = 1_000_000.0

Times = npt.NDArray[np.float64]
#: Sorted arrival times in seconds, for a plan, a length in seconds and a source of chance.
Load = Callable[[Plan, float, np.random.Generator], Times]


@dataclass(frozen=True)
class Traffic:
    """Requests of one token each, in order: when, in microseconds from the start, and at which copy."""

    at_us: list[int]
    copy: list[int]
    seconds: float


@dataclass(frozen=True)
class Pattern:
    """How a caller behaves.

    Attributes:
        name: as the tables name it.
        load: when requests arrive.
        lives_s: how long a connection stays with its copy; 0 for ever.
        together: whether all connections change at once; otherwise each in its turn.
        skewed: whether the n-th connection carries 1/n of what the first does.
        in_plan: whether the exact bucket refuses next to nothing of it.
    """

    name: str
    load: Load
    lives_s: float = 0.0
    together: bool = True
    skewed: bool = False
    in_plan: bool = True


def steady(part: float) -> Load:
    """Poisson arrivals at a part of the plan."""
    return switching((part, 1e9))


def metronome(part: float) -> Load:
    """Equal distances, at a part of the plan."""

    def arrivals(plan: Plan, seconds: float, chance: np.random.Generator) -> Times:
        step_s = 1.0 / (part * plan.rate_per_s)
        return np.arange(step_s * chance.random(), seconds, step_s)

    return arrivals


def switching(*phases: tuple[float, float]) -> Load:
    """Poisson arrivals at rates by turns: (part of the plan, seconds) each; 0 for silence."""

    def arrivals(plan: Plan, seconds: float, chance: np.random.Generator) -> Times:
        spans: list[Times] = []
        begin_s = 0.0
        while begin_s < seconds:
            for part, lasts_s in phases:
                length_s = max(0.0, min(lasts_s, seconds - begin_s))
                count = chance.poisson(part * plan.rate_per_s * length_s)
                spans.append(np.sort(chance.uniform(begin_s, begin_s + length_s, count)))
                begin_s += length_s
        return np.concatenate(spans)

    return arrivals


def spikes(part: float, every_s: float) -> Load:
    """A part of the burst within a tenth of a second, again and again."""

    def arrivals(plan: Plan, seconds: float, chance: np.random.Generator) -> Times:
        begins = np.arange(0.5, seconds - 0.1, every_s)
        count = round(part * plan.burst)
        return np.sort((begins[:, None] + chance.uniform(0.0, 0.1, (len(begins), count))).ravel())

    return arrivals


_SPIKES = spikes(0.85, 3.0)

IN_PLAN = (
    Pattern("poisson 0.5x", steady(0.5)),
    Pattern("poisson 0.9x", steady(0.9)),
    Pattern("exact 1.0x", metronome(1.0)),
    Pattern("zipf", steady(0.9), skewed=True),
    Pattern("onoff", switching((2.8, 1.0), (0.0, 2.0))),
    Pattern("spike", _SPIKES),
    Pattern("move", steady(0.9), lives_s=5.0),
    Pattern("rolling", steady(0.9), lives_s=5.0, together=False),
    Pattern("spike_move", _SPIKES, lives_s=5.0),
)
ABUSIVE = (
    Pattern("poisson 2x", steady(2.0), in_plan=False),
    Pattern("flood", switching((0.5, 4.0), (8.0, 1.0)), in_plan=False),
    Pattern("quietflood", switching((0.05, 4.0), (8.0, 1.0)), in_plan=False),
    Pattern("abuse", switching((50.0, 4.0), (0.5, 6.0)), in_plan=False),
)
PATTERNS = {pattern.name: pattern for pattern in (*IN_PLAN, *ABUSIVE)}


def traffic(pattern: Pattern, plan: Plan, *, k: int, seconds: float, seed: int, fleet: int = FLEET) -> Traffic:
    """One caller with k connections on k of the fleet's copies."""
    chance = np.random.default_rng([zlib.crc32(pattern.name.encode()), k, seed])
    at_s = pattern.load(plan, seconds, chance)
    weights = 1.0 / np.arange(1, k + 1) if pattern.skewed else np.ones(k)
    connection = chance.choice(k, len(at_s), p=weights / weights.sum())
    if pattern.lives_s:
        first_s = np.zeros(k) if pattern.together else np.arange(k) * pattern.lives_s / k
        life = np.floor((at_s + first_s[connection]) / pattern.lives_s).astype(np.int64)
    else:
        life = np.zeros(len(at_s), np.int64)
    lives = int(life.max(initial=0)) + 1
    places = np.array([chance.permutation(fleet)[:k] for _ in range(lives)])
    at_us = np.rint(at_s * _US).astype(np.int64)
    return Traffic(at_us.tolist(), places[life, connection].tolist(), seconds)
