"""How the cost of a decision grows with callers, copies and partitions: one at 2 and 4 times, the others as they are.

``python -m benchmarks.growth [--decisions 3000000] [--json FILE]``. CPU time alone is measured: of each reader while it
works off a backlog, and of the database beside it.
"""

from __future__ import annotations

import argparse
import sys

from benchmarks.pipeline.drain import drains, recent_us
from benchmarks.report import Result, WrongCount, write
from tests.logfill import Fill

_AS_IS = {"callers": 20_000, "copies": 16, "partitions": 4}
_TIMES = (2, 4)
#: Blocks that are really made; enough that all callers of the largest case are met.
_TEMPLATES = 240


def main() -> int:
    """Measure every case, on a fresh broker each; fails if a reader did not count what was there."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.growth", description=__doc__)
    parser.add_argument("--decisions", type=int, default=3_000_000, help="of each case (3000000)")
    parser.add_argument("--broker", choices=["kafka", "embedded"], default="embedded")
    parser.add_argument("--json", metavar="FILE", help="write the results there, too")
    args = parser.parse_args()
    cases = [("", 1), *((what, times) for what in _AS_IS for times in _TIMES)]
    results = [result for what, times in cases for result in _case(args.broker, args.decisions, what, times)]
    write(results, args.json)
    return 0


def _case(broker: str, decisions: int, what: str, times: int) -> list[Result]:
    sizes = {name: size * times if name == what else size for name, size in _AS_IS.items()}
    fill = Fill(
        decisions=decisions,
        copies=sizes["copies"],
        callers=sizes["callers"],
        minutes=5,
        start_us=recent_us(),
        templates=_TEMPLATES,
    )
    name = f"{what}_{times}x" if what else "as_is"
    results = []
    for reader, drained in drains(broker, fill, partitions=sizes["partitions"]).items():
        if drained.found != fill.total:
            raise WrongCount(f"{name}: the {reader} drained {drained.found:,} decisions of {fill.total:,}")
        results += [
            Result(f"{name}_{reader}_us", 1e6 / drained.per_cpu_s, "CPU µs/decision"),
            Result(f"{name}_{reader}_database_us", drained.database_us, "CPU µs/decision of the database"),
        ]
    return results


if __name__ == "__main__":
    sys.exit(main())
