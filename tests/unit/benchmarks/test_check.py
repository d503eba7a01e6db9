"""The benchmark of a decision runs, and its own counts agree; what it measures here is of no interest."""

from __future__ import annotations

from pathlib import Path

from benchmarks.check import main


def test_the_benchmark_of_a_decision_counts_right(tmp_path: Path) -> None:
    """One that does not run any more is noticed when somebody needs its figures."""
    report = tmp_path / "check.json"
    assert main(["--rounds", "1", "--decisions", "500", "--json", str(report)]) == 0
    assert report.exists()
