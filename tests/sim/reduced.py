"""The grid that the tests run: coarse, seeded, seconds long. The whole one is ``python -m benchmarks.simulate``."""

from __future__ import annotations

from collections.abc import Iterable
from statistics import mean

from enforcer.core.dials import DEFAULT_DIALS, Dials
from enforcer.types import Plan
from tests.sim.figures import Figures
from tests.sim.fleet import Fleet
from tests.sim.owners import OwnerRule, specified
from tests.sim.traffic import IN_PLAN, PATTERNS, Traffic, traffic
from tests.sim.world import World

STANDARD = Plan("standard", 100.0, 200)
LARGE = Plan("large", 20_000.0, 40_000)
KS = (1, 4, 30, 120)

Grid = dict[tuple[str, int], Figures]


def one(
    pattern: str,
    k: int,
    *,
    rule: OwnerRule | None = None,
    dials: Dials = DEFAULT_DIALS,
    world: World | None = None,
    plan: Plan = STANDARD,
    seconds: float = 30.0,
    seed: int = 1,
) -> Figures:
    """One caller with one pattern."""
    world = world or World()
    requests = traffic(PATTERNS[pattern], plan, k=k, seconds=seconds, seed=seed, fleet=world.fleet)
    return send(requests, rule=rule or specified(dials), world=world, plan=plan)


def send(
    requests: Traffic, *, rule: OwnerRule | None = None, world: World | None = None, plan: Plan = STANDARD
) -> Figures:
    """One caller whose requests the test has written down."""
    return Fleet(rule or specified(), [plan], world or World(), seed=1).run([requests])[0]


def written(requests: Iterable[tuple[float, int]], *, seconds: float) -> Traffic:
    """(second, copy) of each request, in any order."""
    ordered = sorted(requests)
    return Traffic([round(at_s * 1e6) for at_s, _ in ordered], [copy for _, copy in ordered], seconds)


def inside_the_plan(
    rule: OwnerRule | None = None, *, dials: Dials = DEFAULT_DIALS, world: World | None = None, ks: tuple[int, ...] = KS
) -> Grid:
    """Every pattern that keeps to its plan, at every k."""
    return {
        (pattern.name, k): one(pattern.name, k, rule=rule, dials=dials, world=world) for pattern in IN_PLAN for k in ks
    }


def wrongful_pct(grid: Grid) -> tuple[float, float]:
    """Mean and worst."""
    found = [figures.wrongful_pct for figures in grid.values()]
    return mean(found), max(found)
