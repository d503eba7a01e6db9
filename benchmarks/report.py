"""The form in which every benchmark reports: a table for people, a JSON file for the gate.

Measures nothing itself. A run fails where its own counts are wrong; of missed bounds `write` tells, and the benchmark
chooses what to do about them.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

_BOUND = re.compile(r"\s*(<=|>=|<|>|==)?\s*(-?\d[\d_]*(?:\.\d+)?)\s*\Z")
_HEADINGS = ("name", "value", "unit", "must", "goal", "")


class WrongCount(Exception):
    """A benchmark's own check failed: its figures mean nothing."""


class Result(msgspec.Struct, frozen=True):
    """One measured figure.

    Attributes:
        name: as in the JSON file, for example ``script_k4_us``; the unit stands at its end.
        value: what was measured.
        unit: for people: ``µs``, ``/s``, ``×``.
        must: the bound that holds in every release, as text: ``<= 40``, ``>= 120000``; None if there is none.
        goal: the bound that we work towards, in the same form.
    """

    name: str
    value: float
    unit: str
    must: str | None = None
    goal: str | None = None

    @property
    def must_met(self) -> bool | None:
        """Whether `must` holds; None if there is none."""
        return None if self.must is None else is_within(self.value, self.must)

    @property
    def goal_met(self) -> bool | None:
        """Whether `goal` holds; None if there is none."""
        return None if self.goal is None else is_within(self.value, self.goal)


def is_within(value: float, bound: str) -> bool:
    """Whether a value keeps a bound such as ``<= 40``; a bare number means "at most".

    Raises:
        ValueError: the bound has another form.
    """
    match = _BOUND.match(bound)
    if match is None:
        raise ValueError(f"bound is {bound!r}; allowed: a comparison and a number, such as '<= 40'")
    operator, limit = match[1] or "<=", float(match[2].replace("_", ""))
    return {
        "<=": value <= limit,
        ">=": value >= limit,
        "<": value < limit,
        ">": value > limit,
        "==": value == limit,
    }[operator]


def table(results: Sequence[Result]) -> str:
    """The results as aligned text, with a word on each about its bounds."""
    rows = [_HEADINGS, *(_row(result) for result in results)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEADINGS))]
    lines = []
    for row in rows:
        cells = [row[0].ljust(widths[0]), row[1].rjust(widths[1])]
        cells += [text.ljust(width) for text, width in zip(row[2:], widths[2:], strict=True)]
        lines.append("  ".join(cells).rstrip())
    lines.insert(1, "  ".join("-" * width for width in widths[:-1]))
    return "\n".join(lines)


def write(results: Sequence[Result], json_path: str | Path | None = None) -> bool:
    """Print the table, write ``{"results": [...]}`` to `json_path` if one is given; tell whether every `must` is met.

    Raises:
        ValueError: two results have the same name, or a bound has a wrong form.
        OSError: the file cannot be written.
    """
    names = [result.name for result in results]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ValueError(f"results named twice: {', '.join(twice)}")
    print(table(results))
    if json_path is not None:
        document = msgspec.json.encode({"results": list(results)})
        Path(json_path).write_bytes(msgspec.json.format(document, indent=2) + b"\n")
    return all(result.must_met is not False for result in results)


def report(measure: Callable[[], Sequence[Result]], json_path: str | Path | None) -> int:
    """Measure and write; returns 1 if the benchmark's own counts were wrong, else 0, whatever the figures are."""
    try:
        results = measure()
    except WrongCount as error:
        print(f"the counts are wrong, the figures mean nothing: {error}", file=sys.stderr)
        return 1
    write(results, json_path)
    return 0


def _row(result: Result) -> tuple[str, ...]:
    must, goal = result.must or "", result.goal or ""
    return (result.name, _figure(result.value), result.unit, must, goal, _word(result))


def _word(result: Result) -> str:
    if result.must_met is False:
        return "MISSED"
    if result.goal_met is not None:
        return "goal" if result.goal_met else "not yet the goal"
    return "" if result.must_met is None else "ok"


def _figure(value: float) -> str:
    """Three significant digits below a hundred, whole thousands with separators above."""
    if value == int(value) or abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"
