"""The simulation as pictures: one file for each question that a reader asks. Measures nothing."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import mean

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks.simulate.grid import STANDARD, Cell
from benchmarks.simulate.measures import pooled_wrongful_pct

_LABELS = {
    "full_plan_per_copy": "full plan in each copy",
    "divided": "plan ÷ copies",
    "divided_floor_1": "plan ÷ copies, at least 1/s",
    "ask_per_request": "ask for each request",
    "burst_over_k": "grants of burst ÷ k",
    "ours": "Tallygate",
}
_COLOURS = dict(zip(_LABELS, ("#9467bd", "#8c564b", "#c49c94", "#7f7f7f", "#ff7f0e", "#1f77b4"), strict=True))


def draw(cells: Sequence[Cell], folder: Path) -> list[Path]:
    """Draw all of them as SVG; the same runs give the same bytes.

    Raises:
        OSError: the folder cannot be written.
    """
    mpl.rcParams.update({"svg.hashsalt": "tallygate", "svg.fonttype": "none", "font.size": 9,
                         "font.family": "sans-serif", "axes.spines.top": False})  # fmt: skip
    folder.mkdir(parents=True, exist_ok=True)
    standard = [cell for cell in cells if cell.run.plan == STANDARD.name]
    drawn = {
        "three-errors.svg": _three_errors(standard),
        "wrongful-by-k.svg": _by_k(standard, "wrongful"),
        "asks-by-k.svg": _by_k(standard, "asks"),
        "by-pattern.svg": _by_pattern(standard),
    }
    for name, figure in drawn.items():
        figure.tight_layout()
        figure.savefig(folder / name, metadata={"Date": None})
    return [folder / name for name in drawn]


def _three_errors(cells: Sequence[Cell]) -> Figure:
    figure = Figure(figsize=(10, 3.2))
    panels = [figure.add_subplot(1, 3, number) for number in (1, 2, 3)]
    rate, burst, refusals = {}, {}, {}
    for design in _LABELS:
        own = [cell for cell in cells if cell.run.design == design]
        twice = [cell.figures.rate_ratio for cell in own if cell.run.pattern == "poisson 2x"]
        rate[design] = 100.0 * (max(twice) - 1.0)
        burst[design] = max(cell.figures.over_pct_of_burst for cell in own)
        refusals[design] = pooled_wrongful_pct([cell for cell in own if cell.in_plan])
    _bars(panels[0], rate, "wrong about the rate\n% admitted too much at 2 × the plan, worst k")
    _bars(panels[1], burst, "wrong about the burst\nworst window, % of the burst")
    _bars(panels[2], refusals, "wrong refusals\n% of what is inside the plan")
    for panel in panels[1:]:
        panel.set_yticklabels([])
    return figure


def _bars(panel: Axes, values: dict[str, float], title: str) -> None:
    names = list(values)
    panel.barh([_LABELS[name] for name in names], [max(0.0, values[name]) for name in names],
               color=[_COLOURS[name] for name in names])  # fmt: skip
    panel.set_xscale("symlog", linthresh=0.1)
    panel.set_xlim(0.0, max(1.0, *values.values()) * 30)
    panel.set_title(title, fontsize=9)
    for row, name in enumerate(names):
        panel.text(max(0.0, values[name]) * 1.2 + 0.01, row, _figure(values[name]), va="center", fontsize=8)


def _figure(value: float) -> str:
    if value < 1e-6:
        return "0"
    return f"{value:,.0f}" if value >= 100 else f"{value:.2g}"


def _by_k(cells: Sequence[Cell], what: str) -> Figure:
    figure = Figure(figsize=(6, 3.6))
    panel = figure.add_subplot()
    ks = sorted({cell.run.k for cell in cells})
    for design in ("divided", "burst_over_k", "ask_per_request", "ours"):
        own = [cell for cell in cells if cell.run.design == design]
        if what == "wrongful":
            line = [pooled_wrongful_pct([c for c in own if c.in_plan and c.run.k == k]) for k in ks]
        elif design == "divided":
            continue
        else:
            line = [mean(c.figures.asks_per_s for c in own if c.run.pattern == "poisson 0.9x" and c.run.k == k)
                    for k in ks]  # fmt: skip
        panel.plot([str(k) for k in ks], line, marker="o", color=_COLOURS[design], label=_LABELS[design])
    panel.set_xlabel("copies that the caller reaches (k), of 240")
    if what == "wrongful":
        panel.set_yscale("symlog", linthresh=0.01)
        panel.set_ylabel("refused wrongfully, % of requests")
    else:
        panel.set_ylabel("calls/s at the owner, at 0.9 of the plan")
    panel.set_ylim(bottom=0.0)
    panel.legend(frameon=False)
    return figure


def _by_pattern(cells: Sequence[Cell]) -> Figure:
    figure = Figure(figsize=(8, 3.6))
    panel = figure.add_subplot()
    patterns = list(dict.fromkeys(cell.run.pattern for cell in cells if cell.in_plan))
    for offset, design in enumerate(("burst_over_k", "ours")):
        values = [
            pooled_wrongful_pct([c for c in cells if c.run.design == design and c.run.pattern == pattern])
            for pattern in patterns
        ]
        places = [number + 0.4 * offset - 0.2 for number in range(len(patterns))]
        panel.bar(places, values, 0.4, color=_COLOURS[design], label=_LABELS[design])
    panel.set_xticks(range(len(patterns)), patterns, rotation=30, ha="right")
    panel.set_yscale("symlog", linthresh=0.01)
    panel.set_ylim(0.0, 30.0)
    panel.set_ylabel("refused wrongfully, % of requests")
    panel.legend(frameon=False)
    return figure
