"""Workers as processes, and what the `live` table says, for tests on real engines."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka import Consumer, TopicPartition

from aggregator.migrate import migrate
from aggregator.store_clickhouse import ClickHouseStore
from stream.admin import ensure_topics
from stream.contract.topics import DECISIONS
from tests.logfill import Fill, Totals
from tests.processes import kill, wait_until

PARTITIONS = 4
_SESSION_MS = 5_000
#: How long anything may take on a slow machine. Nothing waits for so long: it waits for what it names.
_LIMIT_S = 120.0


class WorkerProcess:
    """One `python -m aggregator.worker`, or another module; its log is in a file."""

    def __init__(self, settings: Mapping[str, str], log_file: Path, module: str = "aggregator.worker") -> None:
        self._log_file = log_file
        with log_file.open("ab") as sink:
            self._process = subprocess.Popen(
                [sys.executable, "-m", module], env={**os.environ, **settings}, stderr=sink, stdout=sink
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def log(self) -> str:
        return self._log_file.read_text()

    def kill(self) -> None:
        """As a crash would."""
        if self._process.poll() is None:
            kill(self._process.pid)
        self._process.wait(_LIMIT_S)

    def stop(self) -> int:
        """SIGTERM; returns its exit code."""
        self._process.send_signal(signal.SIGTERM)
        return self.wait()

    def wait(self, timeout_s: float = _LIMIT_S) -> int:
        """Its exit code, once it has ended."""
        return self._process.wait(timeout_s)

    def wait_for_log(self, *texts: str, timeout_s: float = _LIMIT_S) -> None:
        """Return once the log contains one of `texts`."""

        def said() -> bool:
            return any(text in self.log for text in texts)

        what = f"{' or '.join(map(repr, texts))} in the log"
        wait_until(lambda: said() or self._process.poll() is not None, timeout_s, what=what)
        assert said(), self.log


class Counting:
    """A broker with topics, a database with tables, and any number of workers."""

    def __init__(self, bootstrap: str, dsn: str, folder: Path) -> None:
        self.bootstrap = bootstrap
        self._dsn = dsn
        self._folder = folder
        self._workers: list[WorkerProcess] = []
        migrate(dsn)
        ensure_topics(bootstrap, partitions=PARTITIONS, timeout_s=60)
        self.store = ClickHouseStore.connect(dsn)

    def worker(self, *, module: str = "aggregator.worker", **settings: str) -> WorkerProcess:
        """Start one more worker."""
        started = WorkerProcess(
            {
                "TALLYGATE_KAFKA": self.bootstrap,
                "TALLYGATE_CLICKHOUSE": self._dsn,
                "TALLYGATE_PARTITIONS": str(PARTITIONS),
                "TALLYGATE_SESSION_TIMEOUT_MS": str(_SESSION_MS),
                "TALLYGATE_WORKER_FLUSH_MS": "100",
                "TALLYGATE_STATE_DIR": str(self._folder / "state"),
                **settings,
            },
            self._folder / f"worker-{len(self._workers)}.log",
            module,
        )
        self._workers.append(started)
        return started

    def counted(self) -> int:
        """Decisions in the table."""
        return int(self.store.rows("SELECT sum(offered) FROM live FINAL WHERE kind = 'usage'")[0][0])

    def wait_for(self, decisions: int, timeout_s: float = _LIMIT_S) -> None:
        """Return once so many decisions are counted, at least."""
        wait_until(lambda: self.counted() >= decisions, timeout_s, what=f"{decisions:,} counted decisions", poll_s=0.1)

    def by_caller(self) -> dict[str, tuple[int, int, int]]:
        """Offered, admitted and cost of each caller."""
        rows = self.store.rows(
            "SELECT caller, sum(offered), sum(admitted), sum(cost_offered) FROM live FINAL "
            "WHERE kind = 'usage' GROUP BY caller"
        )
        return {caller: (offered, admitted, cost) for caller, offered, admitted, cost in rows}

    def fleet_cells(self) -> dict[tuple[str, int, int], int]:
        """Decisions by scope, minute (unix seconds) and code."""
        rows = self.store.rows(
            "SELECT scope, toUInt32(minute), code, sum(offered) FROM live FINAL "
            "WHERE kind = 'fleet' GROUP BY scope, minute, code"
        )
        return {(scope, minute, code): offered for scope, minute, code, offered in rows}

    def reached(self) -> dict[str, set[str]]:
        """The copies that each caller reached."""
        rows = self.store.rows(
            "SELECT caller, arrayDistinct(arrayFlatten(groupArray(copies))) FROM live FINAL "
            "WHERE kind = 'caller' GROUP BY caller"
        )
        return {caller: set(copies) for caller, copies in rows}

    def committed(self, group: str) -> int:
        """Messages of the decisions topic that the group has committed."""
        reader = Consumer({"bootstrap.servers": self.bootstrap, "group.id": group})
        try:
            places = [TopicPartition(DECISIONS.name, number) for number in range(PARTITIONS)]
            return sum(max(place.offset, 0) for place in reader.committed(places, timeout=60))
        finally:
            reader.close()

    def close(self) -> None:
        """End what is still running."""
        for worker in self._workers:
            worker.kill()
        self.store.close()


@contextmanager
def counting(bootstrap: str, dsn: str, folder: Path) -> Iterator[Counting]:
    """Everything for one test, ended with it."""
    made = Counting(bootstrap, dsn, folder)
    try:
        yield made
    finally:
        made.close()


def expected_callers(totals: Totals) -> dict[str, tuple[int, int, int]]:
    """What `Counting.by_caller` must say."""
    return {caller: (sums.offered, sums.admitted, sums.cost) for caller, sums in totals.by_caller.items()}


def expected_fleet(totals: Totals) -> dict[tuple[str, int, int], int]:
    """What `Counting.fleet_cells` must say."""
    cells: dict[tuple[str, int, int], int] = {}
    for (_, scope, minute, code), count in totals.by_cell.items():
        cells[scope, minute, code] = cells.get((scope, minute, code), 0) + count
    return cells


def assert_exact(made: Counting, fill: Fill) -> None:
    """The live totals are those of the fill, to the last decision."""
    totals = fill.totals()
    assert made.counted() == totals.decisions
    assert made.by_caller() == expected_callers(totals)
    assert made.fleet_cells() == expected_fleet(totals)
