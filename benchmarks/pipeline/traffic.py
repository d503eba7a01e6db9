"""Copies that decide at a steady rate: real verdicts through real sinks, and the exact count of what they were.

Run as ``python -m benchmarks.pipeline.traffic`` by the benchmark: one process holds several copies, each with its own
sink. It prints one JSON line at the end: decisions by caller and outcome, what the sinks say, and its CPU time.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import time
from dataclasses import dataclass
from itertools import accumulate
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from enforcer.identity import CopyIdentity, new_identity
from enforcer.types import Basis, Plan, Reason, Source, Standing, Terms, Verdict, outcome_code
from stream import KafkaSink, StreamConfig

Counts: TypeAlias = npt.NDArray[np.int64]
#: (basis, caller number, refused) of one decision after the other.
Round: TypeAlias = list[tuple[Basis, int, bool]]

SCOPES = tuple(f"GET /v1/resource-{number}" for number in range(12))
_TICK_S = 0.01
_POOL = 65_536
_ADMITTED = outcome_code(Source.LOCAL, Reason.NONE)
_REFUSED = outcome_code(Source.LOCAL, Reason.SPENT)
_WAIT_NS = 250_000_000
_CLOSE_TIMEOUT_S = 60.0


@dataclass(slots=True)
class Copy:
    """One copy: its sink, and the fixed round that it decides."""

    identity: CopyIdentity
    sink: KafkaSink
    round: Round
    seq: int = 0

    def decide(self, number: int) -> None:
        """Make this many decisions now."""
        capture, seq, rounds = self.sink.capture, self.seq, self.round
        now_ns = time.monotonic_ns()
        for place in range(seq, seq + number):
            # As `verdict`, without a call: the loop is in the figures.
            basis, _, refused = rounds[place % _POOL]
            if refused:
                capture(Verdict(place, now_ns, basis, False, _REFUSED, 1, 0, now_ns + _WAIT_NS))
            else:
                capture(Verdict(place, now_ns, basis, True, _ADMITTED, 1, place & 127, 0))
        self.seq = seq + number

    def totals(self, callers: int) -> tuple[Counts, Counts]:
        """Admitted and refused decisions by caller number, from the number of decisions alone."""
        whole, part = divmod(self.seq, _POOL)
        times = np.full(_POOL, whole, dtype=np.int64)
        times[:part] += 1
        who = np.array([caller for _, caller, _ in self.round])
        refused = np.array([refused for _, _, refused in self.round])
        admitted_by = np.bincount(who[~refused], weights=times[~refused], minlength=callers)
        refused_by = np.bincount(who[refused], weights=times[refused], minlength=callers)
        return admitted_by.astype(np.int64), refused_by.astype(np.int64)


def verdict(rounds: Round, seq: int, now_ns: int) -> Verdict:
    """The decision `seq` of a copy, made at this time."""
    basis, _, refused = rounds[seq % _POOL]
    if refused:
        return Verdict(seq, now_ns, basis, False, _REFUSED, 1, 0, now_ns + _WAIT_NS)
    return Verdict(seq, now_ns, basis, True, _ADMITTED, 1, seq & 127, 0)


def make_round(number: int, copies: int, callers: int) -> Round:
    """What one copy decides again and again: its own zipf-shaped slice of the callers, each at up to four copies."""
    dice = random.Random(number)
    mine = [caller for caller in range(callers) if (number - caller) % copies < 4]
    weights = list(accumulate(1 / (caller + 1) for caller in mine))
    picked = dice.choices(mine, cum_weights=weights, k=_POOL)
    terms = Terms("rate", Plan("standard", 100.0, 200), 7)
    standings = {caller: Standing(f"acct_{caller:05d}", terms) for caller in mine}
    bases: dict[tuple[int, int], Basis] = {}
    rounds: Round = []
    for caller in picked:
        scope = dice.randrange(len(SCOPES))
        basis = bases.get((caller, scope))
        if basis is None:
            grant_id = 1_700_000_000_000_000 + dice.randrange(10**9)
            basis = Basis(standings[caller], SCOPES[scope], grant_id, 4)
            bases[caller, scope] = basis
        rounds.append((basis, caller, dice.random() < 0.1))
    return rounds


def make_copy(number: int, copies: int, callers: int, bootstrap: str, partitions: int) -> Copy:
    """One copy, with a sink of its own."""
    identity = new_identity(f"bench-{number:03d}", unix_ms=int(time.time() * 1000), pid=os.getpid())
    config = StreamConfig.from_env({"TALLYGATE_KAFKA": bootstrap, "TALLYGATE_PARTITIONS": str(partitions)})
    return Copy(identity, KafkaSink(config, identity), make_round(number, copies, callers))


def run(copies: list[Copy], *, rate_per_s: float, seconds: float) -> float:
    """Pace all copies together, each tick up to its end; a late tick makes up what it owes.

    Returns:
        Seconds from the start until the last decision was made.
    """
    each = round(seconds * rate_per_s / len(copies))
    start = time.monotonic()
    made = 0
    while True:
        elapsed = time.monotonic() - start
        owed = min(each, int((elapsed + _TICK_S) * rate_per_s / len(copies))) - made
        for copy in copies:
            copy.decide(owed)
        made += owed
        now = time.monotonic() - start
        if made == each:
            return now
        time.sleep(max(0.0, _TICK_S - (now - elapsed)))


def main() -> int:
    """Decide at the rate asked for, close the sinks, and print the truth."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--partitions", type=int, required=True)
    parser.add_argument("--rate", type=float, required=True)
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--copies", type=int, required=True)
    parser.add_argument("--callers", type=int, required=True)
    args = parser.parse_args()
    copies = [make_copy(n, args.copies, args.callers, args.bootstrap, args.partitions) for n in range(args.copies)]
    seconds = run(copies, rate_per_s=args.rate, seconds=args.seconds)
    for copy in copies:
        copy.sink.close(_CLOSE_TIMEOUT_S)
    both = [copy.totals(args.callers) for copy in copies]
    truth = {
        "decisions": sum(copy.seq for copy in copies),
        "seconds": seconds,
        "lost": sum(copy.sink.stats.lost for copy in copies),
        "cpu_s": time.process_time(),
        "admitted": np.sum([admitted for admitted, _ in both], axis=0).tolist(),
        "refused": np.sum([refused for _, refused in both], axis=0).tolist(),
    }
    sys.stdout.write(json.dumps(truth) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
