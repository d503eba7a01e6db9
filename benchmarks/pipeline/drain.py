"""Draining: a backlog is on the topic, one reader works it off alone, and afterwards holds exactly what was there."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable
from contextlib import ExitStack
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
_BOUNDS = {"recorder": (">= 400000", ">= 1000000"), "faust": (">= 500000", ">= 1500000")}


def measure(broker: str, decisions: int) -> tuple[list[Result], list[str]]:
    """Fill the topic, then let the recorder and the worker drain it, one after the other."""
    fill = Fill(decisions=decisions, copies=16, callers=20_000, minutes=5)
    results: list[Result] = []
    faults: list[str] = []
    with ExitStack() as ends, tempfile.TemporaryDirectory(prefix="tallygate-drain-") as name:
        folder = Path(name)
        kafka = start_tansu(log_dir=folder) if broker == "embedded" else start_apache_kafka(folder / "kafka")
        ends.callback(kafka.stop)
        clickhouse = start_clickhouse(folder / "clickhouse")
        ends.callback(clickhouse.stop)
        ensure_topics(kafka.bootstrap, partitions=_PARTITIONS, timeout_s=30)
        send(kafka.bootstrap, fill)
        counters: dict[str, tuple[str, Callable[[Database], int]]] = {
            "recorder": ("aggregator.recorder", Database.raw_count),
            "faust": ("aggregator.worker", Database.live_count),
        }
        for reader, (module, held) in counters.items():
            dsn = clickhouse.dsn_for(f"drain_{uuid.uuid4().hex[:8]}")
            migrate(dsn)
            per_cpu_s, per_s, found = _drain(
                module, held, bootstrap=kafka.bootstrap, dsn=dsn, decisions=fill.total, folder=folder
            )
            must, goal = _BOUNDS[reader]
            results.append(Result(f"drain_{reader}_per_s", per_cpu_s, "decisions/s per core", must, goal))
            results.append(Result(f"drain_{reader}_wall_per_s", per_s, "decisions/s, database beside it"))
            if found != fill.total:
                faults.append(f"the {reader} drained {found:,} decisions of {fill.total:,}")
    return results, faults


def _drain(
    module: str, held: Callable[[Database], int], *, bootstrap: str, dsn: str, decisions: int, folder: Path
) -> tuple[float, float, int]:
    """Decisions per CPU second and per second from the first stored to the last, and how many were found."""
    environ = {
        **current_environ(),
        "TALLYGATE_KAFKA": bootstrap,
        "TALLYGATE_CLICKHOUSE": dsn,
        "TALLYGATE_PARTITIONS": str(_PARTITIONS),
        "TALLYGATE_STATE_DIR": str(folder / "state"),
    }
    database = Database(dsn)
    with (folder / f"{module}.log").open("ab") as log:
        process = subprocess.Popen([sys.executable, "-m", module], env=environ, stdout=log, stderr=log)
    try:
        limit_s = time.monotonic() + _LIMIT_S
        seen, first_s, first_cpu_s, first = 0, 0.0, 0.0, 0
        while seen < decisions and time.monotonic() < limit_s and process.poll() is None:
            seen = held(database)
            if seen and not first:
                first, first_s, first_cpu_s = seen, time.monotonic(), cpu_s(process.pid)
            time.sleep(0.05)
        took_s = max(time.monotonic() - first_s, 1e-9)
        used_s = max(cpu_s(process.pid) - first_cpu_s, 1e-9)
    finally:
        process.terminate()
        process.wait(60)
        found = held(database)
        database.close()
    return (decisions - first) / used_s, (decisions - first) / took_s, found
