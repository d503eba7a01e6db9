"""What the lock costs that a limiter takes for every decision on a build of Python without the GIL.

Thread CPU time per decision of one caller that holds a grant, with the lock and without it, interleaved rounds, minimum
and median; one thread, so nobody waits for the lock. It checks its own counts: events captured = decisions made.
Run: ``python -m benchmarks.lock [--json FILE]``.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from statistics import median

from benchmarks.report import Result, WrongCount, report
from benchmarks.stand_ins import CountingSink, GenerousOwner
from enforcer.identity import new_identity
from enforcer.limiting.limiter import Limiter
from enforcer.policies.model import Policy
from enforcer.settings import LimiterSettings


class Variant:
    """One limiter, warmed up."""

    def __init__(self, *, locked: bool) -> None:
        self.sink = CountingSink()
        self.times_us: list[float] = []
        policy = Policy.model_validate(
            {"version": 1, "plans": {"p": {"rate_per_s": 1e8, "burst": 100_000_000}}, "default_plan": "p"}
        )
        settings = LimiterSettings(threaded=False, locked=locked, idle_settle_s=3_600, evict_after_s=3_600)
        identity = new_identity("bench", unix_ms=1, pid=1)
        self.limiter = Limiter(policy, GenerousOwner(10_000_000), self.sink, identity, settings=settings)
        self.run(2)
        self.times_us.clear()

    def run(self, decisions: int) -> None:
        """One round."""
        check = self.limiter.check
        before = time.thread_time_ns()
        for _ in range(decisions):
            check("hot")
        self.times_us.append((time.thread_time_ns() - before) / decisions / 1e3)
        if self.sink.count() != decisions:
            raise WrongCount(f"{decisions} decisions, another number of events")
        self.sink.clear()


def measure(*, rounds: int, decisions: int) -> list[Result]:
    """Run interleaved rounds. Raises `WrongCount` if events and decisions do not agree."""
    variants = {"check_hot": Variant(locked=False), "check_hot_locked": Variant(locked=True)}
    for _ in range(rounds):
        for variant in variants.values():
            variant.run(decisions)
    results = [Result(f"{name}_us", min(variant.times_us), "µs") for name, variant in variants.items()]
    results += [Result(f"{name}_median_us", median(variant.times_us), "µs") for name, variant in variants.items()]
    pairs = zip(variants["check_hot_locked"].times_us, variants["check_hot"].times_us, strict=True)
    return [*results, Result("locked_to_check_ratio", median(one / other for one, other in pairs), "×")]


def main(arguments: Sequence[str] | None = None) -> int:
    """0 if the counts agree, whatever the figures are; 1 otherwise."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.lock", description=__doc__)
    parser.add_argument("--json", metavar="FILE", help="also write the results there")
    parser.add_argument("--rounds", type=int, default=9, help="interleaved rounds (default 9)")
    parser.add_argument("--decisions", type=int, default=40_000, help="decisions per round and kind (default 40,000)")
    options = parser.parse_args(arguments)
    return report(lambda: measure(rounds=options.rounds, decisions=options.decisions), options.json)


if __name__ == "__main__":
    sys.exit(main())
