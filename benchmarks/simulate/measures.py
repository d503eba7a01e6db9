"""From runs to named figures: what each design gets wrong, and what it costs. Makes no run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import mean

from benchmarks.report import Result
from benchmarks.simulate.grid import LARGE, STANDARD, Cell
from tests.sim.designs import DESIGNS
from tests.sim.figures import Figures

_FLOODS = ("flood", "quietflood")
#: (must, goal) of what the product is held to; the other designs are held to nothing.
_BOUNDS: dict[str, tuple[str | None, str | None]] = {
    "wrongful_mean_pct": ("<= 0.02", "<= 0.005"),
    "wrongful_worst_pct": ("<= 0.2", "<= 0.05"),
    "over_worst_pct_of_burst": ("<= 100", None),
    "over_mean_pct_of_burst": (None, "<= 25"),
    "rate_2x_pct": ("<= 100.5", None),
    "asks_per_s_k4": ("<= 3", None),
    "asks_per_s_k30": ("<= 18", None),
    "asks_per_s_k120": ("<= 55", None),
    "asks_per_s_2x_k4": ("<= 60", None),
    "asks_per_s_abuse": ("<= 150", "<= 50"),
    "asks_per_s_large_2x": ("<= 4000", "<= 1000"),
    "wait_pct_k4": ("<= 4", None),
    "wait_pct_k30": ("<= 20", None),
}


def pooled_wrongful_pct(cells: Sequence[Cell]) -> float:
    """Wrongful refusals of some runs, of what they were offered."""
    return 100.0 * sum(cell.figures.wrongful for cell in cells) / max(1, sum(cell.figures.offered for cell in cells))


def results(cells: Sequence[Cell]) -> list[Result]:
    """The figures of every design that was run, ours first."""
    found: list[Result] = []
    for design in reversed(DESIGNS):
        figures = _standard([cell for cell in cells if cell.run.design == design and cell.run.plan == STANDARD.name])
        figures |= _large([cell for cell in cells if cell.run.design == design and cell.run.plan == LARGE.name])
        for name, (value, unit) in figures.items():
            must, goal = _BOUNDS.get(name, (None, None)) if design == "ours" else (None, None)
            found.append(Result(f"{design}.{name}", value, unit, must, goal))
    return found


def _standard(cells: Sequence[Cell]) -> dict[str, tuple[float, str]]:
    if not cells:
        return {}
    in_plan = [cell for cell in cells if cell.in_plan]
    kinds = sorted({(cell.run.pattern, cell.run.k) for cell in in_plan})
    wrongful = [pooled_wrongful_pct([c for c in in_plan if (c.run.pattern, c.run.k) == kind]) for kind in kinds]
    floods = [cell.figures.over_pct_of_burst for cell in cells if cell.run.pattern in _FLOODS]
    found = {
        "wrongful_mean_pct": (mean(wrongful), "%"),
        "wrongful_worst_pct": (max(wrongful), "%"),
        "over_worst_pct_of_burst": (max(cell.figures.over_pct_of_burst for cell in cells), "% of burst"),
        "over_mean_pct_of_burst": (mean(floods), "% of burst, floods"),
        "rate_2x_pct": (max(cell.figures.rate_ratio for cell in _of(cells, "poisson 2x")) * 100.0, "% of the rate"),
        "asks_per_s_in_plan": (mean(cell.figures.asks_per_s for cell in in_plan), "/s"),
        "wait_pct_in_plan": (mean(cell.figures.wait_pct for cell in in_plan), "%"),
    }
    for k in (4, 30, 120):
        steady = _of(cells, "poisson 0.9x", k)
        found[f"asks_per_s_k{k}"] = (_mean(steady, lambda figures: figures.asks_per_s), "/s")
        found[f"wait_pct_k{k}"] = (_mean(steady, lambda figures: figures.wait_pct), "%")
    found["asks_per_s_2x_k4"] = (_mean(_of(cells, "poisson 2x", 4), lambda figures: figures.asks_late_per_s), "/s")
    found["asks_per_s_abuse"] = (_mean(_of(cells, "abuse", 120), lambda figures: figures.asks_per_s), "/s")
    return found


def _large(cells: Sequence[Cell]) -> dict[str, tuple[float, str]]:
    found: dict[str, tuple[float, str]] = {}
    if twice := _of(cells, "poisson 2x", 240):
        found["asks_per_s_large_2x"] = (_mean(twice, lambda figures: figures.asks_late_per_s), "/s")
        found["asks_per_s_large_2x_with_ramp"] = (_mean(twice, lambda figures: figures.asks_per_s), "/s")
    if steady := _of(cells, "poisson 0.9x", 240):
        found["asks_per_s_large"] = (_mean(steady, lambda figures: figures.asks_per_s), "/s")
    if in_plan := [cell for cell in cells if cell.in_plan]:
        found["wrongful_large_worst_pct"] = (max(cell.figures.wrongful_pct for cell in in_plan), "%")
    return found


def _of(cells: Sequence[Cell], pattern: str, k: int | None = None) -> list[Cell]:
    return [cell for cell in cells if cell.run.pattern == pattern and k in (None, cell.run.k)]


def _mean(cells: Sequence[Cell], value: Callable[[Figures], float]) -> float:
    return mean(value(cell.figures) for cell in cells)
