"""One copy under test: a real limiter with a real owner and a real sink, deciding at a steady rate.

Run as ``python -m tests.chaos.copy``; settings come from the environment. It notes each decision in a truth file, and
ends in good order by SIGTERM.
"""

from __future__ import annotations

import argparse
import random
import signal
import time
from pathlib import Path
from types import FrameType

from enforcer import build_limiter
from stream import kafka_sink
from tests.chaos.truth import TruthFile

CALLERS = 200
SCOPES = ("GET /search", "GET /orders/{number}", "GET /reports/daily")
_TICK_S = 0.02


def caller_name(number: int) -> str:
    """The caller of a number, as it stands on the record."""
    return f"acct-{number:04d}"


def caller_number(name: str) -> int:
    """And back."""
    return int(name.rpartition("-")[2])


def main() -> int:
    """Decide until told to stop."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--truth", type=Path, required=True)
    parser.add_argument("--rate", type=float, required=True)
    parser.add_argument("--seed", type=int, required=True)
    options = parser.parse_args()
    stopping: list[int] = []

    def stop(number: int, _frame: FrameType | None) -> None:
        stopping.append(number)

    signal.signal(signal.SIGTERM, stop)
    limiter = build_limiter(sink=kafka_sink)
    truth = TruthFile(options.truth, copy_id=limiter.identity.copy_id, epoch=limiter.identity.epoch)
    dice = random.Random(options.seed)
    start_s, made = time.monotonic(), 0
    while not stopping:
        owed = int((time.monotonic() - start_s) * options.rate) - made
        # A copy that was frozen does not make up for it.
        for _ in range(min(owed, int(options.rate))):
            number = int(dice.random() ** 3 * CALLERS)
            verdict = limiter.check(caller_name(number), SCOPES[number % len(SCOPES)])
            truth.note(verdict, number)
        made += owed
        time.sleep(_TICK_S)
    limiter.close()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
