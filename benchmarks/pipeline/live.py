"""Live: copies decide at a steady rate, everything else keeps up, and afterwards every decision is accounted for."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from http import HTTPStatus

import httpx
import numpy as np

from benchmarks.pipeline.measures import Database, cpu_s, difference
from benchmarks.report import Result
from dashboard.links import sign_in_link
from tallygate.up import LocalStack

#: The stack and the copies start together: freshness is judged from so long after every copy was first seen in both.
_WARM_UP_S = 6.0
_SAMPLE_S = 0.25
#: A page is read at every fourth sample: once a second, as one that follows live totals is.
_PAGE_EVERY = 4
_DRAINED_S = 90.0


@dataclass(frozen=True, slots=True)
class Load:
    """What the copies do."""

    rate_per_s: float
    seconds: float
    copies: int
    callers: int


class _Watch:
    """Samples freshness and page times from a thread while the traffic runs."""

    def __init__(self, stack: LocalStack, load: Load) -> None:
        self.live_s: list[float] = []
        self.record_s: list[float] = []
        self.page_s: list[float] = []
        #: Pages that said that the record answers too slowly: they wait for it a second or two, not longer.
        self.refused = 0
        #: From about the start of the copies' process until each of them was in the live totals and on record.
        self.first_seen_s: float | None = None
        self._stack = stack
        self._load = load
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(30)

    def _run(self) -> None:
        database = Database(self._stack.environ["TALLYGATE_CLICKHOUSE"])
        link = sign_in_link(self._stack.dashboard_url, self._stack.secret, "customer", caller="acct_00040")
        with httpx.Client(follow_redirects=True, timeout=30) as pages:
            pages.get(link).raise_for_status()
            started_s = time.monotonic()
            samples = 0
            while not self._stop.wait(_SAMPLE_S):
                samples += 1
                self._sample(database, time.monotonic() - started_s)
                if samples % _PAGE_EVERY:
                    continue
                before_s = time.perf_counter()
                answer = pages.get(f"{self._stack.dashboard_url}/usage")
                self.page_s.append(time.perf_counter() - before_s)
                self.refused += answer.status_code == HTTPStatus.SERVICE_UNAVAILABLE
                if answer.status_code != HTTPStatus.SERVICE_UNAVAILABLE:
                    answer.raise_for_status()
        database.close()

    def _sample(self, database: Database, since_start_s: float) -> None:
        # Each age is that of an answer as it comes: the one question's time is not in the other's.
        live_s = _age_s(database.live_sealed_us(self._load.copies))
        record_s = _age_s(database.record_sealed_us(self._load.copies))
        if live_s is None or record_s is None:
            return
        if self.first_seen_s is None:
            self.first_seen_s = since_start_s
        if since_start_s - self.first_seen_s > _WARM_UP_S:
            self.live_s.append(live_s)
            self.record_s.append(record_s)


def _age_s(sealed_us: int | None) -> float | None:
    return None if sealed_us is None else (time.time_ns() // 1000 - sealed_us) / 1e6


def measure(stack: LocalStack, load: Load) -> tuple[list[Result], list[str]]:
    """Run the load; returns the figures, and what did not add up."""
    cpu_before = {name: cpu_s(pid) for name, pid in stack.processes.items()}
    watch = _Watch(stack, load)
    truth = _decide(stack, load)
    watch.stop()
    if not watch.live_s:
        raise SystemExit(f"--seconds {load.seconds:g}: too few; freshness is judged {_WARM_UP_S:g} s after all is seen")
    cpu_after = {name: cpu_s(pid) for name, pid in stack.processes.items()}
    database = Database(stack.environ["TALLYGATE_CLICKHOUSE"])
    decisions = int(truth["decisions"])
    caught_up_s = _wait_drained(database, decisions)
    stack.check()
    counts = np.array([truth["admitted"], truth["refused"]], dtype=np.int64)
    raw, live = (
        difference(counts, database.raw_by_caller(load.callers)),
        difference(counts, database.live_by_caller(load.callers)),
    )
    rate = decisions / truth["seconds"]
    results = [
        Result("live_per_s", rate, "decisions/s", ">= 120000" if load.rate_per_s >= 120_000 else None, ">= 200000"),
        Result("live_seconds", truth["seconds"], "s"),
        Result("live_lost", max(raw.lost, live.lost), "decisions", "<= 0"),
        Result("live_doubled", max(raw.doubled, live.doubled), "decisions", "<= 0"),
        Result("first_seen_s", watch.first_seen_s or 0.0, "s after the copies' start"),
        Result("freshness_p50_s", float(np.percentile(watch.live_s, 50)), "s"),
        Result("freshness_p99_s", float(np.percentile(watch.live_s, 99)), "s", "<= 3", "<= 1.5"),
        Result("freshness_max_s", max(watch.live_s), "s"),
        Result("record_freshness_p99_s", float(np.percentile(watch.record_s, 99)), "s", "<= 3", "<= 1.5"),
        Result("caught_up_s", caught_up_s, "s after the last decision"),
        Result("page_p95_ms", float(np.percentile(watch.page_s, 95)) * 1000, "ms", None, "<= 300"),
        Result("pages_refused", watch.refused, f"of {len(watch.page_s)}", "<= 0"),
        Result("record_bytes", database.bytes_per_decision(), "B/decision on disk", "<= 12", "<= 8"),
        Result("cpu_copies", truth["cpu_s"] / truth["seconds"], "cores"),
        *(
            Result(f"cpu_{name.replace(' ', '_')}", (cpu_after[name] - before) / truth["seconds"], "cores")
            for name, before in cpu_before.items()
        ),
    ]
    database.close()
    faults = [f"the record: {raw.lost} lost, {raw.doubled} doubled"] if raw.lost or raw.doubled else []
    faults += [f"the live totals: {live.lost} lost, {live.doubled} doubled"] if live.lost or live.doubled else []
    faults += [f"the copies lost {truth['lost']} decisions"] if truth["lost"] else []
    if rate < 0.98 * load.rate_per_s:
        faults.append(f"the copies reached {rate:,.0f} decisions/s of {load.rate_per_s:,.0f}")
    return results, faults


def _decide(stack: LocalStack, load: Load) -> dict[str, float]:
    settings = stack.environ
    command = [
        *(sys.executable, "-m", "benchmarks.pipeline.traffic"),
        *("--bootstrap", settings["TALLYGATE_KAFKA"], "--partitions", settings["TALLYGATE_PARTITIONS"]),
        *("--rate", str(load.rate_per_s), "--seconds", str(load.seconds)),
        *("--copies", str(load.copies), "--callers", str(load.callers)),
    ]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    truth: dict[str, float] = json.loads(done.stdout)
    return truth


def _wait_drained(database: Database, decisions: int) -> float:
    started_s = time.monotonic()
    while time.monotonic() - started_s < _DRAINED_S:
        if database.raw_count() >= decisions and database.live_count() >= decisions:
            break
        time.sleep(0.1)
    return time.monotonic() - started_s
