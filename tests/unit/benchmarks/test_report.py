"""The common report of the benchmarks: bounds are read right, and nothing is written twice."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.report import Result, is_within, table, write


@pytest.mark.parametrize(
    ("value", "bound", "within"),
    [(40, "<= 40", True), (40.1, "40", False), (1.5, "< 1.5", False), (120_000, ">= 120_000", True), (0, "== 0", True)],
)
def test_bounds_are_compared_as_written(value: float, bound: str, within: bool) -> None:
    """A bound read the wrong way round would pass a release."""
    assert is_within(value, bound) is within


def test_unreadable_bound_is_refused() -> None:
    """Not taken for "no bound"."""
    with pytest.raises(ValueError, match="about 40"):
        is_within(1, "about 40")


def test_results_are_written_as_asked_and_misses_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The gate reads the file, people read the table."""
    results = [Result("script_k4_us", 12.5, "µs", "<= 40", "<= 25"), Result("live_lost", 3, "", "== 0")]
    assert write(results, tmp_path / "out.json") is False
    assert "MISSED" in capsys.readouterr().out
    assert json.loads((tmp_path / "out.json").read_text())["results"][0] == {
        "name": "script_k4_us",
        "value": 12.5,
        "unit": "µs",
        "must": "<= 40",
        "goal": "<= 25",
    }
    assert write(results[:1]) is True


def test_one_name_is_used_once(tmp_path: Path) -> None:
    """Else one figure hides the other."""
    with pytest.raises(ValueError, match="twice"):
        write([Result("a", 1, ""), Result("a", 2, "")], tmp_path / "out.json")


def test_table_has_a_line_for_each_result() -> None:
    """And says which goals are not reached yet."""
    text = table([Result("a_us", 1234.0, "µs", None, "<= 10"), Result("b", 0.25, "×")])
    assert "1,234" in text
    assert "not yet the goal" in text
    assert len(text.splitlines()) == 4
