"""Other dials, and worlds in which something goes wrong: what the product would do with them. Holds it to nothing."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from statistics import mean

from benchmarks.report import Result
from benchmarks.simulate.grid import STANDARD
from enforcer.core.dials import DEFAULT_DIALS, Dials
from tests.sim.figures import Figures
from tests.sim.fleet import Fleet
from tests.sim.owners import specified
from tests.sim.traffic import PATTERNS, traffic
from tests.sim.world import World

#: A world for k copies and a seed.
Worlds = Callable[[int, int], World]

DIALS: dict[str, Dials] = {
    "as_they_are": DEFAULT_DIALS,
    "expiry_2s": Dials(expiry_us=2_000_000),
    "expiry_3s": Dials(expiry_us=3_000_000),
    "expiry_8s": Dials(expiry_us=8_000_000),
    "overdraft_0": Dials(overdraft=0.0),
    "overdraft_0.1": Dials(overdraft=0.1),
    "overdraft_0.5": Dials(overdraft=0.5),
    "chunk_0.25s": Dials(chunk_us=250_000),
    "chunk_0.5s": Dials(chunk_us=500_000),
    "k_window_1s": Dials(k_window_us=1_000_000),
    "k_window_5s": Dials(k_window_us=5_000_000),
    "k_floor_1": Dials(k_floor=1),
    "k_floor_8": Dials(k_floor=8),
    "lent_decay_0.25s": Dials(lent_decay_us=250_000),
    "lent_decay_1s": Dials(lent_decay_us=1_000_000),
    "pause_min_0.2s": Dials(pause_min_us=200_000),
    "press_from_1.5": Dials(press_from=1.5),
}
_SECONDS = 60


def _world(**fields: object) -> Worlds:
    return lambda k, _: World(fleet=k, **fields)  # type: ignore[arg-type]  # each by its field's name and type


def _crashing(every_s: float) -> Worlds:
    def world(k: int, seed: int) -> World:
        chance = random.Random(seed)
        times = [every_s * (number + chance.random()) for number in range(int(_SECONDS / every_s))]
        return World(fleet=k, crashes=tuple((at_s, chance.randrange(k)) for at_s in times))

    return world


def _freezing(k: int, seed: int) -> World:
    chance = random.Random(seed)
    return World(
        fleet=k,
        freezes=tuple((at_s, chance.randrange(k), chance.uniform(1.0, 10.0)) for at_s in range(1, _SECONDS, 3)),
    )


WORLDS: dict[str, Worlds] = {
    "nothing_wrong": _world(),
    "rtt_5ms": _world(rtt_us=5_000),
    "rtt_20ms": _world(rtt_us=20_000),
    "rtt_80ms": _world(rtt_us=80_000),
    "rtt_80ms_never_ahead": _world(rtt_us=80_000, ahead_above_ms=1e12),
    "always_ahead": _world(ahead_above_ms=0.0),
    "lost_1_in_100": _world(lose=0.01),
    "lost_1_in_10": _world(lose=0.1),
    "a_crash_a_second": _crashing(1.0),
    "ten_crashes_a_second": _crashing(0.1),
    "copies_stopped_for_1_to_10s": _freezing,
    "owners_clock_30s_forward": _world(clock_steps=((20.0, 30.0),)),
    "owners_clock_5s_back": _world(clock_steps=((20.0, -5.0),)),
    "owners_clock_60s_back": _world(clock_steps=((20.0, -60.0),)),
    "owners_clock_swings_by_2s": _world(clock_steps=tuple((5.0 * n, 2.0 * (-1) ** n) for n in range(1, 11))),
    "owner_forgets_5_times": _world(restarts=tuple(float(at_s) for at_s in range(7, _SECONDS, 13))),
}

_Key = tuple[str, str, int, int]
_CALM = ("poisson 0.9x", "onoff", "spike")
_FLOODS = ("flood", "quietflood")


def trial(key: _Key) -> tuple[_Key, Figures]:
    """One run of one variant: (name, pattern, k, seed)."""
    name, pattern, k, seed = key
    dials = DIALS.get(name, DEFAULT_DIALS)
    world = WORLDS[name](k, seed) if name in WORLDS else World()
    requests = traffic(PATTERNS[pattern], STANDARD, k=k, seconds=_SECONDS, seed=seed, fleet=world.fleet)
    return key, Fleet(specified(dials), [STANDARD], world, seed=seed).run([requests])[0]


def trials(*, processes: int | None = None) -> list[Result]:
    """Every variant over five patterns, k = 4, 30, 120 and two seeds; and callers that share one owner."""
    names = [*DIALS, *WORLDS]
    patterns = (*_CALM, *_FLOODS)
    keys = [(name, pattern, k, seed) for name in names for pattern in patterns for k in (4, 30, 120) for seed in (1, 2)]
    with ProcessPoolExecutor(processes or os.cpu_count()) as pool:
        ran = list(pool.map(trial, keys, chunksize=8))
    found = [result for name in names for result in _results(name, [(key, one) for key, one in ran if key[0] == name])]
    return found + sharing()


def _results(name: str, ran: Sequence[tuple[_Key, Figures]]) -> list[Result]:
    calm = [figures for key, figures in ran if key[1] in _CALM]
    floods = [figures for key, figures in ran if key[1] in _FLOODS]
    values = {
        "wrongful_mean_pct": (mean(one.wrongful_pct for one in calm), "%"),
        "wrongful_worst_run_pct": (max(one.wrongful_pct for one in calm), "%"),
        "over_worst_pct_of_burst": (max(one.over_pct_of_burst for one in floods), "% of burst"),
        "over_mean_pct_of_burst": (mean(one.over_pct_of_burst for one in floods), "% of burst"),
        "asks_per_s": (mean(one.asks_per_s for one in calm), "/s"),
        "wait_pct": (mean(one.wait_pct for one in calm), "%"),
    }
    return [Result(f"{name}.{figure}", value, unit) for figure, (value, unit) in values.items()]


def sharing() -> list[Result]:
    """2,000 steady callers over 12 copies each, one owner that answers one ask after the other, 25 µs each."""
    callers, seconds, service_us = 2_000, 10.0, 25.0
    requests = [traffic(PATTERNS["poisson 0.9x"], STANDARD, k=12, seconds=seconds, seed=n) for n in range(callers)]
    ran = Fleet(specified(), [STANDARD] * callers, World(service_us=service_us), seed=1).run(requests)
    asks_per_s = sum(one.asks_late_per_s for one in ran)
    return [
        Result("sharing.asks_per_s", asks_per_s, "/s"),
        Result("sharing.owner_busy_pct", asks_per_s * service_us / 1e4, "%"),
        Result("sharing.wrongful", float(sum(one.wrongful for one in ran)), "requests"),
        Result("sharing.wait_p50_us", mean(one.wait_us_p50 for one in ran), "µs"),
        Result("sharing.wait_p99_us", mean(one.wait_us_p99 for one in ran), "µs"),
    ]
