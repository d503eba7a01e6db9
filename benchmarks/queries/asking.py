"""The product's own queries on a filled record, each so many times, through the handles that pages and commands use."""

from __future__ import annotations

import random
import statistics
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from time import monotonic, perf_counter
from zoneinfo import ZoneInfo

from aggregator.config import parse_dsn
from aggregator.sql import load_queries
from aggregator.store import Store
from aggregator.store_clickhouse import ClickHouseStore
from benchmarks.queries.filling import COPIES, DAY_S, Sizes, insert_more
from benchmarks.report import Result, WrongCount
from dashboard.reader import find_decision, read_caller, read_marks
from dashboard.spans import SPANS, cut
from dashboard.store import Limits, Record
from dashboard.views import Frame
from enforcer.identity import CopyIdentity

MUST, GOAL = "<= 100", "<= 20"
#: INSERTs a second of the writer that is at work meanwhile, as of one recorder.
_INSERTS_PER_S = 2


class Questions:
    """What is asked, each as a call that does it once. `until_s`: the end of the filled month, as of which is asked."""

    def __init__(self, dsn: str, store: Store, sizes: Sizes, until_s: int, *, seed: int = 7) -> None:
        self._store, self._sizes, self._until_s = store, sizes, until_s
        # Measured is how long it takes; the bound of a page would end it.
        self._record = Record(parse_dsn(dsn), Limits(seconds=60, page_s=60))
        self._random = random.Random(seed)
        self._signals = load_queries("aggregator.sql", "signals.sql")
        self._totals = load_queries("aggregator.sql", "audit_totals.sql")

    def close(self) -> None:
        """Give the handles back."""
        self._record.close()

    def all(self) -> dict[str, Callable[[], int]]:
        """By name; each returns how many rows or decisions it found."""
        minute_s = self._until_s - 600
        return {
            "page_30d": lambda: self._page(self._rank()),
            "page_30d_busiest_caller": lambda: self._page(1),
            "refusals_of_an_hour": self._refusals,
            "request_id": self._request_id,
            "completeness": lambda: len(read_marks(self._record, self._frame("30d"))[0]),
            "hot_keys": lambda: self._signal("signals_hot_keys", minute_s=minute_s),
            "movers": lambda: self._signal("signals_movers", minute_s=minute_s, least=50, most=20),
            "caller_7d": lambda: self._signal(
                "signals_caller", caller=self._caller(), since_s=self._until_s - 7 * DAY_S
            ),
            "fleet_7d": lambda: self._signal("signals_fleet", since_s=self._until_s - 7 * DAY_S),
            "as_of_30d": self._as_of,
        }

    def _caller(self) -> str:
        return f"caller-{self._rank()}"

    def _rank(self) -> int:
        """Any but the busiest and those that sent next to nothing."""
        return self._random.randint(50, max(50, min(2_000, self._sizes.rolled // 25_000)))

    def _frame(self, key: str) -> Frame:
        span, zone = SPANS[key], ZoneInfo("UTC")
        return Frame(span, zone, self._until_s * 1_000_000 - 1, tuple(cut(span, now_s=self._until_s - 1, zone=zone)))

    def _page(self, rank: int) -> int:
        found = read_caller(self._record, f"caller-{rank}", self._frame("30d"), refusals=25)
        return sum(counts.offered for counts in found.series.values())

    def _refusals(self) -> int:
        from_s = self._until_s - 3_600 * self._random.randint(1, 24 * (self._sizes.days - 1))
        with self._record.of_caller(f"caller-{self._random.randint(2, 20) * 5}") as ask:
            return 1 + len(ask("caller_refusals", from_s=from_s, to_s=from_s + 3_600, rows=25))

    def _request_id(self) -> int:
        number = self._random.randrange(self._sizes.decisions // self._sizes.days * self._sizes.days)
        found = find_decision(self._record, CopyIdentity(f"gw-{number % COPIES}", 1), number // COPIES)
        return int(found is not None)

    def _signal(self, name: str, **values: int | str) -> int:
        return len(self._store.rows(self._signals[name].sql, values))

    def _as_of(self) -> int:
        span = {"from_s": self._until_s - self._sizes.days * DAY_S, "to_s": self._until_s}
        at_us = (self._until_s - self._sizes.days * DAY_S // 3) * 1_000_000
        values = {"caller": self._caller(), "at_us": at_us, "by": "hour", **span}
        return len(self._store.rows(self._totals["totals_as_of"].sql, values))


def measured(
    questions: Questions, times: int, *, suffix: str = "", cpu: Callable[[], float] | None = None
) -> list[Result]:
    """First, p50 and p95 in milliseconds; with `cpu` (the engine's seconds so far) what a question takes of that.

    The first time, when the engine has nothing of these tables in memory, stands by itself and is in no other figure.
    What is said of CPU time holds where nothing else is asked meanwhile.

    Raises:
        WrongCount: a question found nothing.
    """
    found: list[Result] = []
    for name, ask in questions.all().items():
        first_ms = _took_ms(name, ask)
        used_s = cpu() if cpu is not None else 0.0
        took_ms = [_took_ms(name, ask) for _ in range(times)]
        p95 = statistics.quantiles(took_ms, n=20, method="inclusive")[-1] if times > 1 else took_ms[0]
        found.append(Result(f"{name}{suffix}_p50_ms", statistics.median(took_ms), "ms", MUST, GOAL))
        found.append(Result(f"{name}{suffix}_p95_ms", p95, "ms", MUST, GOAL))
        if cpu is not None:
            found.append(Result(f"{name}{suffix}_first_ms", first_ms, "ms"))
            found.append(Result(f"{name}{suffix}_cpu_ms", (cpu() - used_s) * 1e3 / times, "ms"))
    return found


def _took_ms(name: str, ask: Callable[[], int]) -> float:
    started = perf_counter()
    if not ask():
        raise WrongCount(f"{name} found nothing")
    return (perf_counter() - started) * 1e3


@contextmanager
def inserting(dsn: str, per_s: int, before: int, at_s: int) -> Iterator[Callable[[], float]]:
    """A recorder at work beside the questions; the call tells how many rows a second it has written so far."""
    ended, began, written = threading.Event(), monotonic(), [0]

    def work() -> None:
        with closing(ClickHouseStore.connect(dsn, answer_timeout_s=60)) as store:
            while not ended.is_set():
                rows = per_s // _INSERTS_PER_S
                insert_more(store, rows, before + written[0], at_s)
                written[0] += rows
                ended.wait(max(0.0, began + written[0] / per_s - monotonic()))

    writer = threading.Thread(target=work, name="inserting")
    writer.start()
    try:
        yield lambda: written[0] / (monotonic() - began)
    finally:
        ended.set()
        writer.join()
