"""``python -m benchmarks.pipeline [--rate R --seconds S --broker kafka|embedded] [--json FILE]``."""

from __future__ import annotations

import argparse
import sys

from benchmarks.pipeline import drain, live
from benchmarks.report import write
from tallygate.up import LocalStack, StackOptions


def main() -> int:
    """Measure live and draining; fails if a decision was lost, doubled or not made."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.pipeline")
    parser.add_argument("--rate", type=float, default=120_000.0, help="decisions per second, all copies (120000)")
    parser.add_argument("--seconds", type=float, default=60.0, help="how long (60)")
    parser.add_argument("--broker", choices=["kafka", "embedded"], default="kafka", help="kafka: Apache Kafka")
    parser.add_argument("--copies", type=int, default=16, help="enforcer copies (16)")
    parser.add_argument("--callers", type=int, default=20_000, help="callers, by Zipf's law (20000)")
    parser.add_argument("--backlog", type=int, default=6_000_000, help="decisions to drain; 0: skip it (6000000)")
    parser.add_argument("--json", metavar="FILE", help="write the results there, too")
    args = parser.parse_args()
    load = live.Load(args.rate, args.seconds, args.copies, args.callers)
    options = StackOptions(owner_port=0, kafka_port=0, clickhouse_port=0, dashboard_port=0, broker=args.broker)
    with LocalStack(options) as stack:
        results, faults = live.measure(stack, load)
    if args.backlog:
        drained, drain_faults = drain.measure(args.broker, args.backlog)
        results, faults = results + drained, faults + drain_faults
    write(results, args.json)
    for fault in faults:
        sys.stderr.write(f"WRONG: {fault}\n")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
