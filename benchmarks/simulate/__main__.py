"""``python -m benchmarks.simulate [--quick | --trials] [--json FILE] [--pictures DIR]``.

Six designs of a limiter over the same traffic; or this one with other dials and in worse worlds.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from benchmarks.report import write
from benchmarks.simulate.grid import FULL, QUICK, runs, simulate_all
from benchmarks.simulate.measures import results
from benchmarks.simulate.pictures import draw
from benchmarks.simulate.trials import trials


def main() -> int:
    """Simulate, report; fails if the product misses what it must reach."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.simulate")
    parser.add_argument("--quick", action="store_true", help="a coarse grid, about a minute; the full one takes some")
    parser.add_argument("--trials", action="store_true", help="instead: other dials, and worlds where things go wrong")
    parser.add_argument("--processes", type=int, help="how many work at once (one for each core)")
    parser.add_argument("--json", metavar="FILE", help="write the results there, too")
    parser.add_argument("--pictures", metavar="DIR", type=Path, help="draw them there, as SVG")
    args = parser.parse_args()
    if args.trials:
        write(trials(processes=args.processes), args.json)
        return 0
    cells = simulate_all(runs(QUICK if args.quick else FULL), processes=args.processes)
    if args.pictures is not None:
        draw(cells, args.pictures)
    return 0 if write(results(cells), args.json) else 1


if __name__ == "__main__":
    sys.exit(main())
