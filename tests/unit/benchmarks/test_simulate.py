"""What the simulation reports: every figure of every design, and limits for ours alone."""

from __future__ import annotations

from benchmarks.simulate.grid import FULL, QUICK, Cell, Run, runs
from benchmarks.simulate.measures import results
from tests.sim.designs import DESIGNS
from tests.sim.figures import Figures


def _figures(wrongful: int) -> Figures:
    return Figures(
        offered=1_000,
        admitted=900,
        oracle_admitted=900,
        wrongful=wrongful,
        waited=10,
        asks=20,
        worst_excess=50.0,
        burst=200,
        seconds=10.0,
    )


def _cells(wrongful: int) -> list[Cell]:
    return [Cell(run, _figures(wrongful)) for run in runs(QUICK)]


def test_every_design_has_every_figure_of_the_standard_plan() -> None:
    """A design without a figure could not be compared."""
    names = {result.name for result in results(_cells(0))}
    ours = {name.removeprefix("ours.") for name in names if name.startswith("ours.") and "large" not in name}
    assert len(ours) >= 15
    assert {f"{design}.{figure}" for design in DESIGNS for figure in ours} <= names


def test_limits_hold_for_ours_alone_and_can_be_missed() -> None:
    """The command fails by these, and by nothing that another design does."""
    missed = [result.name for result in results(_cells(5)) if result.must_met is False]
    assert ["ours.wrongful_mean_pct", "ours.wrongful_worst_pct"] == missed
    assert not [result for result in results(_cells(0)) if result.must_met is False]


def test_worst_is_of_the_pattern_and_k_over_all_seeds() -> None:
    """One unlucky second of one seed is not what a caller lives with."""
    cells = [Cell(run, _figures(30 if run.seed == 1 and run.k == 4 else 0)) for run in runs(FULL)]
    found = {result.name: result.value for result in results(cells)}
    assert 1.0 == found["ours.wrongful_worst_pct"]


def test_a_run_is_named_by_what_decides_it() -> None:
    """Two runs of one name would be the same run twice."""
    for size in (FULL, QUICK):
        assert len(set(runs(size))) == len(runs(size))
    assert Run("ours", "standard", "abuse", 120, 1, 60.0) in runs(QUICK)
