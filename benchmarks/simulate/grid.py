"""Which runs are made: designs × patterns × k × seeds, over several processes. Judges nothing."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass

from enforcer.types import Plan
from tests.sim.designs import DESIGNS
from tests.sim.figures import Figures
from tests.sim.traffic import ABUSIVE, IN_PLAN, PATTERNS, traffic

STANDARD = Plan("standard", 100.0, 200)
LARGE = Plan("large", 20_000.0, 40_000)
_PLANS = {plan.name: plan for plan in (STANDARD, LARGE)}
_ASKING = ("ask_per_request", "burst_over_k", "ours")


@dataclass(frozen=True)
class Run:
    """One run to be made; all by name, so that it travels between processes."""

    design: str
    plan: str
    pattern: str
    k: int
    seed: int
    seconds: float


@dataclass(frozen=True)
class Cell:
    """A run and what it came to."""

    run: Run
    figures: Figures

    @property
    def in_plan(self) -> bool:
        """Whether the caller kept to its plan."""
        return PATTERNS[self.run.pattern].in_plan


@dataclass(frozen=True)
class Size:
    """How much is simulated.

    Attributes:
        ks: copies that the caller reaches, of 240.
        seeds: as many runs of each.
        seconds, large_seconds: length of a run with the standard and with the large plan.
        large: (designs, patterns, ks) of the large plan.
    """

    ks: tuple[int, ...]
    seeds: int
    seconds: float
    large_seconds: float
    large: tuple[tuple[str, ...], tuple[str, ...], tuple[int, ...]]


FULL = Size(
    ks=(1, 4, 12, 30, 50, 120, 240),
    seeds=3,
    seconds=60.0,
    large_seconds=16.0,
    large=(_ASKING, ("poisson 0.9x", "exact 1.0x", "onoff", "spike", "poisson 2x", "flood"), (60, 240)),
)
QUICK = Size(
    ks=(1, 4, 30, 120), seeds=1, seconds=60.0, large_seconds=8.0, large=(("ours",), ("poisson 2x", "flood"), (240,))
)


def runs(size: Size) -> list[Run]:
    """All of them, the longest first, so that the processes end together."""
    patterns = [pattern.name for pattern in (*IN_PLAN, *ABUSIVE)]
    seeds = range(1, size.seeds + 1)
    designs, large_patterns, large_ks = size.large
    large = [
        Run(design, LARGE.name, pattern, k, 1, size.large_seconds)
        for design in designs
        for pattern in large_patterns
        for k in large_ks
    ]
    standard = [
        Run(design, STANDARD.name, pattern, k, seed, size.seconds)
        for design in DESIGNS
        for pattern in patterns
        for k in size.ks
        for seed in seeds
    ]
    return [*large, *sorted(standard, key=lambda run: run.pattern != "abuse")]


def simulate(run: Run) -> Cell:
    """Make one run."""
    plan = _PLANS[run.plan]
    requests = traffic(PATTERNS[run.pattern], plan, k=run.k, seconds=run.seconds, seed=run.seed)
    return Cell(run, DESIGNS[run.design](requests, plan, run.seed))


def simulate_all(wanted: Sequence[Run], *, processes: int | None = None) -> list[Cell]:
    """Make them all; tells on stderr how far it is."""
    with ProcessPoolExecutor(processes or os.cpu_count()) as pool:
        return list(_told(pool.map(simulate, wanted, chunksize=4), len(wanted)))


def _told(cells: Iterable[Cell], count: int) -> Iterable[Cell]:
    for number, cell in enumerate(cells, 1):
        if number % max(1, count // 10) == 0:
            sys.stderr.write(f"{number} of {count} runs\n")
        yield cell
