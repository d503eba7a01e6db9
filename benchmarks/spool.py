"""An outage of the log, in small: ``python -m benchmarks.spool [--decisions N] [--rate R] [--json FILE]``.

One copy decides at a steady rate while no broker is there (the traffic of `benchmarks.wire` with 20,000 callers), so
that its record goes to the spool; then the embedded broker comes up, and the backlog is shipped. What memory the copy
takes beyond what it had before the outage, what the disk takes, and how fast the backlog leaves. A decision that is
neither delivered nor counted fails the run.
"""

from __future__ import annotations

import argparse
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Final

from benchmarks.report import Result, WrongCount, report
from benchmarks.traffic import zipf_blocks
from enforcer.identity import CopyIdentity
from enforcer.types import Verdict
from stream import KafkaSink, StreamConfig
from tallygate.engines.tansu import start_tansu

_BLOCKS: Final = 50
_DECISIONS: Final = 2_000
_LIMIT_S: Final = 120.0


def measure(decisions: int, rate: int) -> list[Result]:
    """Run the outage and what follows it.

    Raises:
        WrongCount: a decision is neither delivered nor counted, or something stays on disk.
    """
    made = zipf_blocks(_BLOCKS, decisions=_DECISIONS, callers=20_000, scopes=12, rate_per_s=500)
    verdicts = [one for block in made for one in block]
    with socket.socket() as probe, tempfile.TemporaryDirectory(prefix="tallygate-spool-") as folder:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
        probe.close()
        config = StreamConfig(bootstrap=f"127.0.0.1:{port}", spool_dir=Path(folder))
        sink = KafkaSink(config, CopyIdentity("bench-1", 1))
        before = _resident_bytes()
        count = _feed(sink, verdicts, decisions, rate)
        _wait(sink, lambda: sink.stats.spooled + sink.stats.lost == count)
        outage, taken = sink.stats, _resident_bytes() - before
        broker = start_tansu(port=port)
        try:
            started_s = time.monotonic()
            _wait(sink, lambda: sink.stats.delivered + sink.stats.lost == count)
            took_s = time.monotonic() - started_s
            sink.close(10.0)
        finally:
            broker.stop()
        if (sink.stats.queued, sink.stats.delivered) != (0, count - sink.stats.lost) or list(Path(folder).iterdir()):
            raise WrongCount(f"{count} decisions, and then {sink.stats}")
    return [
        Result("spooled_decisions", outage.spooled, ""),
        Result("lost_decisions", outage.lost, "", must="<= 0"),
        Result("spool_bytes_per_decision", outage.spool_bytes / max(outage.spooled, 1), "B"),
        Result("memory_in_outage_mib", taken / 2**20, "MiB"),
        Result("drain_per_s", (count - outage.lost) / took_s, "/s"),
    ]


def _feed(sink: KafkaSink, verdicts: list[Verdict], decisions: int, rate: int) -> int:
    """Capture so many, numbered anew, at that rate."""
    started_s = time.monotonic()
    seq = 0
    while seq < decisions:
        for _ in range(min(_DECISIONS, decisions - seq)):
            one = verdicts[seq % len(verdicts)]
            sink.capture(
                Verdict(seq, one.at_ns, one.basis, one.allowed, one.code, one.cost, one.remaining, one.ready_at_ns)
            )
            seq += 1
        time.sleep(max(seq / rate - (time.monotonic() - started_s), 0.0))
    return seq


def _wait(sink: KafkaSink, is_so: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + _LIMIT_S
    while not is_so():
        if time.monotonic() > deadline_s:
            raise WrongCount(f"after {_LIMIT_S:g} s still {sink.stats}")
        time.sleep(0.02)


def _resident_bytes() -> int:
    """Memory of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4_096


def main(arguments: Sequence[str] | None = None) -> int:
    """Run, print the table, write the JSON; 1 if the counts are wrong. A missed bound is marked in the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.spool", description=__doc__)
    parser.add_argument("--decisions", type=int, default=2_000_000, help="how many are made without a broker")
    parser.add_argument("--rate", type=int, default=100_000, help="how many a second")
    parser.add_argument("--json", metavar="FILE", help="write the results there as well")
    options = parser.parse_args(arguments)
    return report(partial(measure, options.decisions, options.rate), options.json)


if __name__ == "__main__":
    sys.exit(main())
