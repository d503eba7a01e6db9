"""The way to the database for pages: a fixed catalogue, bound parameters, limits, and a row filter for each caller.

Never writes, never builds SQL from a value, never keeps a handle after an error. Handles are lent for one request.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import clickhouse_connect
from clickhouse_connect.driver.client import Client
from clickhouse_connect.driver.exceptions import ClickHouseError

from aggregator.config import ClickHouseDsn
from aggregator.sql import load_queries
from aggregator.store import StoreRefused, StoreUnavailable
from aggregator.store_clickhouse import classify
from dashboard.beside import Beside

_Read = TypeVar("_Read")

#: The tables that hold rows of callers. A query about one caller sees no other row of them, whatever its text says.
TENANT_TABLES = (
    "conflicts",
    "cost_changes",
    "decisions",
    "disagreements",
    "erasing",
    "fairness",
    "grant_minutes",
    "grants",
    "ledger_hours",
    "live",
    "quarter_days",
    "quarters",
    "settled_days",
    "settled_minutes",
    "settlements",
    "signals",
    "terms",
)
#: First word of a query's name: who may run it.
CALLER, FLEET, SUPPORT = "caller", "fleet", "support"

#: Queries that read so little that a second thread costs more than it brings.
_NARROW = frozenset({
    "caller_days", "caller_minutes", "fleet_complete", "fleet_stand", "support_block", "support_decision"
})  # fmt: skip

#: Handles kept for reuse; more may be open at the same time, but only so many are kept.
_KEPT_HANDLES = 12
#: Threads that read beside those of pages, of all pages together.
_BESIDE = 6


class RecordUnavailable(Exception):
    """The record cannot be read now. The message is for the log; a page says only that it is so, and since when.

    Attributes:
        since_us: when reading began to fail, if that is known; unix microseconds.
    """

    def __init__(self, message: str, *, since_us: int | None = None) -> None:
        super().__init__(message)
        self.since_us = since_us


@dataclass(frozen=True, slots=True)
class Limits:
    """What one query may take; beyond it the server stops it.

    Attributes:
        seconds: run time.
        result_rows: rows of the answer.
        memory_bytes: memory of the query.
        threads: how much of the machine it may have.
        page_s: how long all queries of one page may take together, waiting included.
    """

    seconds: int = 2
    result_rows: int = 200_000
    memory_bytes: int = 2_000_000_000
    threads: int = 2
    page_s: float = 2.7

    def settings(self) -> dict[str, Any]:
        """As settings of the server; `readonly` is not among them because it must come last."""
        return {
            "max_execution_time": self.seconds,
            "timeout_overflow_mode": "throw",
            "max_result_rows": self.result_rows,
            "result_overflow_mode": "throw",
            "max_memory_usage": self.memory_bytes,
            "max_threads": self.threads,
            # Rows of one identity have the same time, so a day that is not asked for holds none of them.
            "defer_partition_pruning_after_final": 0,
            # For the same reason days need not be merged with each other, but each with itself.
            "do_not_merge_across_partitions_select_final": 1,
        }


class Ask(Protocol):
    """Runs one query of the catalogue."""

    def __call__(self, name: str, **values: Any) -> Sequence[tuple[Any, ...]]:
        """Its rows. Raises `RecordUnavailable`; `PermissionError` for a query that this reader may not run."""
        ...


class _Here(threading.local):
    """What a thread reads for."""

    def __init__(self) -> None:
        self.given_up: Callable[[], bool] = lambda: False


class Record:
    """Lends handles to the record: one for one request, thrown away after any error. Safe to share among threads."""

    def __init__(self, dsn: ClickHouseDsn, limits: Limits) -> None:
        self._dsn = dsn
        self._limits = limits
        self._catalogue = load_queries("dashboard.sql", "queries.sql")
        self._free: list[Client] = []
        self._answers = 0
        self._lock = threading.Lock()
        self._here = _Here()
        self._beside = Beside(_BESIDE)

    @property
    def address(self) -> str:
        """Where the record is, without user and password."""
        return self._dsn.address

    @property
    def answers(self) -> int:
        """How often the database has answered so far, also by an error: it moves as long as somebody is there."""
        return self._answers

    @contextmanager
    def of_caller(self, caller: str) -> Iterator[Ask]:
        """A reader of one caller's rows and of nothing else."""
        with self._lent() as client:

            def ask(name: str, **values: Any) -> Sequence[tuple[Any, ...]]:
                self._permit(name, CALLER)
                fence = {"additional_table_filters": row_filter(caller)}
                return self._run(client, name, {**values, "caller": caller}, fence)

            yield ask

    @contextmanager
    def of_fleet(self) -> Iterator[Ask]:
        """A reader of what belongs to no caller."""
        with self._lent() as client:

            def ask(name: str, **values: Any) -> Sequence[tuple[Any, ...]]:
                self._permit(name, FLEET)
                return self._run(client, name, values, {})

            yield ask

    @contextmanager
    def of_support(self) -> Iterator[Ask]:
        """A reader across callers: only for requests that have shown the support role."""
        with self._lent() as client:

            def ask(name: str, **values: Any) -> Sequence[tuple[Any, ...]]:
                self._permit(name, SUPPORT)
                return self._run(client, name, values, {})

            yield ask

    def unless(self, given_up: Callable[[], bool], call: Callable[[], _Read]) -> _Read:
        """Run `call`; once `given_up`, no query of it that has not begun begins any more (on this thread).

        Raises:
            RecordUnavailable: it was given up, besides whatever `call` raises.
        """
        before = self._here.given_up
        self._here.given_up = given_up
        try:
            return call()
        finally:
            self._here.given_up = before

    def beside(self, call: Callable[[], _Read]) -> Callable[[], _Read]:
        """Begin `call` beside what this thread reads, and give it up together with that; returned waits for it."""
        given_up = self._here.given_up
        return self._beside.begin(lambda: self.unless(given_up, call))

    def probe(self, seconds: float) -> None:
        """Ask the least that can be asked, on a handle of its own: whether anybody is there.

        Raises:
            RecordUnavailable: nobody is, or each step took longer than so many seconds, or the answer was an error.
        """
        client = self._connect(seconds)
        try:
            self._query(client, "probe", "SELECT 1", {}, {"readonly": 1})
        finally:
            client.close()

    def close(self) -> None:
        """Close the handles that are not lent."""
        with self._lock:
            free, self._free = self._free, []
        for client in free:
            client.close()

    def _permit(self, name: str, audience: str) -> None:
        if name not in self._catalogue or not name.startswith(f"{audience}_"):
            raise PermissionError(f"query {name!r} is not in the catalogue of {audience}")

    def _run(
        self, client: Client, name: str, values: Mapping[str, Any], settings: Mapping[str, Any]
    ) -> Sequence[tuple[Any, ...]]:
        self._still_wanted()
        narrow = {"max_threads": 1} if name in _NARROW else {}
        allowed = {**self._limits.settings(), **narrow, **settings, "readonly": 1}
        return self._query(client, name, self._catalogue[name].sql, values, allowed)

    def _query(
        self, client: Client, name: str, sql: str, values: Mapping[str, Any], settings: Mapping[str, Any]
    ) -> Sequence[tuple[Any, ...]]:
        try:
            answer = client.query(sql, parameters=dict(values), settings=dict(settings))
        except (ClickHouseError, OSError) as error:
            raise RecordUnavailable(f"{name}: {self._fault(error)}") from error
        self._answered()
        return [tuple(row) for row in answer.result_rows]

    def _still_wanted(self) -> None:
        if self._here.given_up():
            raise RecordUnavailable("the page was given up before all was read")

    @contextmanager
    def _lent(self) -> Iterator[Client]:
        self._still_wanted()
        with self._lock:
            client = self._free.pop() if self._free else None
        # Longer than a page waits: the page's own time is what ends it.
        client = client or self._connect(self._limits.page_s + 0.5)
        try:
            yield client
        except BaseException:
            client.close()
            raise
        with self._lock:
            keep = len(self._free) < _KEPT_HANDLES
            if keep:
                self._free.append(client)
        if not keep:
            client.close()

    def _answered(self) -> None:
        with self._lock:
            self._answers += 1

    def _fault(self, error: Exception) -> StoreUnavailable | StoreRefused:
        if getattr(error, "code", None) is not None:
            self._answered()
        return classify(self.address, error)

    def _connect(self, silence_s: float) -> Client:
        dsn = self._dsn
        try:
            client = clickhouse_connect.get_client(
                host=dsn.host,
                port=dsn.port,
                username=dsn.user,
                password=dsn.password,
                database=dsn.database,
                secure=dsn.secure,
                connect_timeout=silence_s,
                send_receive_timeout=silence_s,
                query_retries=0,
                autogenerate_session_id=False,
                dedicated_pool=True,
            )
        except (ClickHouseError, OSError) as error:
            raise RecordUnavailable(str(self._fault(error))) from error
        self._answered()  # a handle is made by asking
        return client


def row_filter(caller: str) -> str:
    """The setting that shows one caller's rows only, table by table.

    The name goes in as hexadecimal digits: no character of it can end a literal.
    """
    condition = f"caller = unhex(\\'{caller.encode().hex()}\\')"
    return "{" + ", ".join(f"'{table}': '{condition}'" for table in TENANT_TABLES) + "}"
