"""``python -m benchmarks.fairness [--decisions N] [--minutes N] [--replay-only] [--json FILE]``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from benchmarks.fairness import passing, replaying
from benchmarks.report import Result, report


def main(argv: Sequence[str] | None = None) -> int:
    """Measure the replay, then the pass around it."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.fairness", description=__doc__)
    parser.add_argument("--decisions", type=int, default=2_500_000, help="in each minute of the pass (%(default)s)")
    parser.add_argument("--minutes", type=int, default=2, help="minutes that the pass settles (%(default)s)")
    parser.add_argument("--replay-only", action="store_true", help="without the pass, which needs the embedded engine")
    parser.add_argument("--json", metavar="FILE", help="write the results there too")
    options = parser.parse_args(argv)

    def measure() -> list[Result]:
        found = replaying.results()
        return found if options.replay_only else found + passing.results(options.decisions, options.minutes)

    return report(measure, options.json)


if __name__ == "__main__":
    sys.exit(main())
