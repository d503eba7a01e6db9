"""Draining: a backlog is on the topic, one reader works it off alone, and afterwards holds exactly what was there."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from aggregator.migrate import migrate
from benchmarks.pipeline.measures import Database, cpu_s
from benchmarks.report import Result
from stream.admin import ensure_topics
from tallygate.config import current_environ
from tallygate.engines.apache_kafka import start_apache_kafka
from tallygate.engines.clickhouse import start_clickhouse
from tallygate.engines.tansu import start_tansu
from tests.logfill import Fill, send

_PARTITIONS = 4
_LIMIT_S = 300.0
_READERS: dict[str, tuple[str, Callable[[Database], int]]] = {
    "recorder": ("aggregator.recorder", Database.raw_count),
    "faust": ("aggregator.worker", Database.live_count),
}
_BOUNDS = {"recorder": (">= 400000", ">= 1000000"), "faust": (">= 500000", ">= 1500000")}


@dataclass(frozen=True, slots=True)
class Drained:
    """What one reader did with a backlog.

    Attributes:
        per_cpu_s: decisions per CPU second of the reader.
        per_s: decisions a second.
        database_us: CPU time of the database, microseconds a decision.
        found: how many decisions were counted at the end.
    """

    per_cpu_s: float
    per_s: float
    database_us: float
    found: int


def measure(broker: str, decisions: int) -> tuple[list[Result], list[str]]:
    """Fill the topic, then let the recorder and the worker drain it, one after the other."""
    fill = Fill(decisions=decisions, copies=16, callers=20_000, minutes=5, start_us=recent_us())
    results: list[Result] = []
    faults: list[str] = []
    for reader, drained in drains(broker, fill, partitions=_PARTITIONS).items():
        must, goal = _BOUNDS[reader]
        results.append(Result(f"drain_{reader}_per_s", drained.per_cpu_s, "decisions/s per core", must, goal))
        results.append(Result(f"drain_{reader}_wall_per_s", drained.per_s, "decisions/s, database beside it"))
        if drained.found != fill.total:
            faults.append(f"the {reader} drained {drained.found:,} decisions of {fill.total:,}")
    return results, faults


def recent_us() -> int:
    """A full minute an hour ago, unix microseconds: what is older than the retention would be deleted as it comes."""
    return (int(time.time()) // 60 - 60) * 60_000_000


def drains(broker: str, fill: Fill, *, partitions: int) -> dict[str, Drained]:
    """One backlog on a fresh broker, worked off by each reader alone into a database of its own."""
    with ExitStack() as ends, tempfile.TemporaryDirectory(prefix="tallygate-drain-") as name:
        folder = Path(name)
        kafka = start_tansu(log_dir=folder) if broker == "embedded" else start_apache_kafka(folder / "kafka")
        ends.callback(kafka.stop)
        clickhouse = start_clickhouse(folder / "clickhouse")
        ends.callback(clickhouse.stop)
        ensure_topics(kafka.bootstrap, partitions=partitions, timeout_s=30)
        send(kafka.bootstrap, fill)
        done = {}
        for reader, (module, held) in _READERS.items():
            dsn = clickhouse.dsn_for(f"drain_{uuid.uuid4().hex[:8]}")
            migrate(dsn)
            environ = {
                **current_environ(),
                "TALLYGATE_KAFKA": kafka.bootstrap,
                "TALLYGATE_CLICKHOUSE": dsn,
                "TALLYGATE_PARTITIONS": str(partitions),
                "TALLYGATE_STATE_DIR": str(folder / "state"),
            }
            done[reader] = _drain(
                module, held, environ, database_pid=clickhouse.pid, decisions=fill.total, folder=folder
            )
        return done


def _drain(
    module: str,
    held: Callable[[Database], int],
    environ: dict[str, str],
    *,
    database_pid: int,
    decisions: int,
    folder: Path,
) -> Drained:
    """From the first decisions stored to the last."""
    database = Database(environ["TALLYGATE_CLICKHOUSE"])
    with (folder / f"{module}.log").open("ab") as log:
        process = subprocess.Popen([sys.executable, "-m", module], env=environ, stdout=log, stderr=log)
    try:
        limit_s = time.monotonic() + _LIMIT_S
        seen, first_s, first_cpu_s, first, database_s = 0, 0.0, 0.0, 0, 0.0
        while seen < decisions and time.monotonic() < limit_s and process.poll() is None:
            seen = held(database)
            if seen and not first:
                first, first_s, first_cpu_s = seen, time.monotonic(), cpu_s(process.pid)
                database_s = cpu_s(database_pid)
            time.sleep(0.05)
        took_s = max(time.monotonic() - first_s, 1e-9)
        used_s = max(cpu_s(process.pid) - first_cpu_s, 1e-9)
        database_s = cpu_s(database_pid) - database_s
    finally:
        process.terminate()
        process.wait(60)
        found = held(database)
        database.close()
    counted = max(decisions - first, 1)
    return Drained(counted / used_s, counted / took_s, database_s * 1e6 / counted, found)
