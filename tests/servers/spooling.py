"""A copy that decides at a steady rate, and says how far it got: ``python -m tests.servers.spooling RATE FILE``.

Every decision is timed. It ends in order at a SIGTERM, and then writes what the slowest of a hundred checks took.
"""

from __future__ import annotations

import json
import signal
import sys
import threading
import time
from pathlib import Path

from enforcer import build_limiter
from stream import kafka_sink

_TICK_S = 0.02


def main(rate: int, file: Path) -> None:
    """Decide until the SIGTERM."""
    ends = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: ends.set())
    limiter = build_limiter(sink=kafka_sink)
    took_s: list[float] = []
    started_s = time.monotonic()
    with file.open("a") as progress:
        while not ends.wait(_TICK_S):
            for _ in range(int(rate * (time.monotonic() - started_s)) - len(took_s)):
                before_s = time.perf_counter()
                limiter.check("acme")
                took_s.append(time.perf_counter() - before_s)
            print(json.dumps([time.time(), len(took_s)]), file=progress, flush=True)
        limiter.close()
        slowest = sorted(took_s)[len(took_s) * 99 // 100]
        print(json.dumps([time.time(), len(took_s), slowest]), file=progress, flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]))
