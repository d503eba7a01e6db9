"""A recorder and a worker as real processes over real engines, to be killed; and their audit from outside."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from aggregator.store_clickhouse import ClickHouseStore
from stream.admin import ensure_topics
from tests.keeping import KEEP_ALL
from tests.logfill import Fill, send_messages
from tests.processes import is_running, wait_until

PARTITIONS = 4


class Supervised:
    """One of our processes, started again by the test whenever the test has killed it."""

    def __init__(self, module: str, environ: Mapping[str, str], folder: Path) -> None:
        self._module = module
        self._environ = {**os.environ, **environ}
        self.log_path = folder / f"{module}.log"
        self.process = self._start()

    def kill_and_restart(self) -> None:
        """End it as a crash would, and start the next one at once."""
        assert is_running(self.process.pid), f"{self._module} ended by itself:\n{self.log_path.read_text()[-3000:]}"
        self.process.kill()
        self.process.wait()
        self.process = self._start()

    def end(self) -> int:
        """SIGTERM, as an operator would; returns its exit code."""
        self.process.terminate()
        try:
            return self.process.wait(40)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise

    def _start(self) -> subprocess.Popen[bytes]:
        with self.log_path.open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-m", self._module], env=self._environ, stdout=log, stderr=subprocess.STDOUT
            )


@contextmanager
def pipeline(bootstrap: str, dsn: str, folder: Path) -> Iterator[tuple[Supervised, Supervised]]:
    """A recorder and a worker over this broker and database, with topics made; both ended at the end."""
    ensure_topics(bootstrap, partitions=PARTITIONS, timeout_s=30)
    environ = {
        "TALLYGATE_KAFKA": bootstrap,
        "TALLYGATE_CLICKHOUSE": dsn,
        "TALLYGATE_PARTITIONS": str(PARTITIONS),
        # Takeover after a kill waits for the dead member's session to end.
        "TALLYGATE_SESSION_TIMEOUT_MS": "5000",
        "TALLYGATE_FLUSH_DECISIONS": "100000",
        "TALLYGATE_STATE_DIR": str(folder / "state"),
        **KEEP_ALL,
    }
    running: list[Supervised] = []
    try:
        running.extend(Supervised(module, environ, folder) for module in ("aggregator.recorder", "aggregator.worker"))
        yield running[0], running[1]
    except BaseException as fault:
        for supervised in running:
            fault.add_note(f"{supervised.log_path.name} ends:\n{supervised.log_path.read_text()[-4000:]}")
        raise
    finally:
        for supervised in running:
            if supervised.process.poll() is None:
                supervised.process.kill()
                supervised.process.wait()


class PacedFill:
    """Sends a fill from a thread, spread over some seconds, so that a kill finds the stream in its middle."""

    def __init__(self, bootstrap: str, fill: Fill, *, seconds: float) -> None:
        self._fault: Exception | None = None
        self._thread = threading.Thread(target=self._run, args=(bootstrap, fill, seconds), daemon=True)
        self._thread.start()

    def join(self) -> None:
        """Return once the broker has everything; raises what the thread met."""
        self._thread.join(180)
        assert not self._thread.is_alive(), "the stream was not sent in time"
        if self._fault is not None:
            raise self._fault

    def _run(self, bootstrap: str, fill: Fill, seconds: float) -> None:
        start_s = time.monotonic()

        def paced() -> Iterator[tuple[str, bytes]]:
            for number, message in enumerate(fill.messages()):
                due_s = start_s + seconds * number / fill.blocks
                time.sleep(max(0.0, due_s - time.monotonic()))
                yield message

        try:
            send_messages(bootstrap, paced())
        except Exception as fault:  # noqa: BLE001  not swallowed: `join` raises it in the test
            self._fault = fault


class Audit:
    """What the database holds, asked from outside of the processes under test."""

    def __init__(self, dsn: str) -> None:
        self._store = ClickHouseStore.connect(dsn)

    def close(self) -> None:
        """Release the connection."""
        self._store.close()

    def raw(self) -> int:
        """Decisions in the exact record, each identity once."""
        return self._number("SELECT count() FROM decisions FINAL")

    def live(self) -> int:
        """Decisions in the live totals."""
        return self._number("SELECT sum(offered) FROM live FINAL WHERE kind = 'usage'")

    def raw_cells(self) -> Counter[tuple[str, str, int, int]]:
        """(caller, scope, minute, outcome code) → decisions, from the record."""
        return Counter(
            {
                (caller, scope, int(minute), int(code)): int(count)
                for caller, scope, minute, code, count in self._store.rows(
                    "SELECT caller, scope, toUnixTimestamp(toStartOfMinute(at)),"
                    " bitShiftLeft(toUInt8(source), 4) + toUInt8(reason) AS code, count()"
                    " FROM decisions FINAL GROUP BY 1, 2, 3, 4"
                )
            }
        )

    def live_usage(self) -> dict[str, tuple[int, int, int]]:
        """caller → (offered, admitted, cost offered), from the live totals."""
        return {
            caller: (int(offered), int(admitted), int(cost))
            for caller, offered, admitted, cost in self._store.rows(
                "SELECT caller, sum(offered), sum(admitted), sum(cost_offered)"
                " FROM live FINAL WHERE kind = 'usage' GROUP BY caller"
            )
        }

    def live_fleet(self) -> Counter[tuple[str, int, int]]:
        """(scope, minute, outcome code) → decisions, from the live totals."""
        return Counter(
            {
                (scope, int(minute), int(code)): int(count)
                for scope, minute, code, count in self._store.rows(
                    "SELECT scope, toUnixTimestamp(minute), code, sum(offered)"
                    " FROM live FINAL WHERE kind = 'fleet' GROUP BY 1, 2, 3"
                )
            }
        )

    def wait_for(self, decisions: int, *, timeout_s: float) -> None:
        """Return once record and live totals both hold at least so many; more is for the caller to find."""
        wait_until(
            lambda: self.raw() >= decisions, timeout_s, what=f"{decisions:,} decisions in the record", poll_s=0.3
        )
        wait_until(lambda: self.live() >= decisions, timeout_s, what=f"{decisions:,} in the live totals", poll_s=0.3)

    def _number(self, sql: str, parameters: Mapping[str, Any] | None = None) -> int:
        return int(self._store.rows(sql, parameters)[0][0])
