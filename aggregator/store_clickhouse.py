"""The accounting database through clickhouse-connect: a ClickHouse server, or the embedded engine behind an HTTP front.

Never builds SQL from a value, never waits for an outage to end, and never shows a password.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

import clickhouse_connect
import pyarrow as pa
from clickhouse_connect.driver.client import Client
from clickhouse_connect.driver.exceptions import ClickHouseError, DataError, ProgrammingError

from aggregator.config import ClickHouseDsn, parse_dsn
from aggregator.store import StoreRefused, StoreTooMuch, StoreUnavailable

#: More rows than this would become more than one part, and an INSERT of several parts is not atomic.
MAX_ROWS = 1_000_000

#: One INSERT, one block, one part. Repetitions are folded when parts merge and when they are read with FINAL; folding
#: them at insert as well would cost twice as much as the insert itself.
_INSERT_SETTINGS: dict[str, Any] = {
    "async_insert": 0,
    "max_insert_block_size": MAX_ROWS + 1,
    "min_insert_block_size_rows": MAX_ROWS + 1,
    "min_insert_block_size_bytes": 0,
    "optimize_on_insert": 0,
}

#: Of every statement on a handle. `decisions` is partitioned by the day of a column whose minute is in the sort key,
#: but not the column: with FINAL the engine (26.3 and later) else reads all days that are kept, whatever span is asked
#: for, because versions of a row might lie in several. They never do.
_HANDLE_SETTINGS: dict[str, Any] = {"defer_partition_pruning_after_final": 0}

#: The name that servers of before 25.9 know too.
_NICE_SETTING: Final = "os_thread_priority"

#: The server keeps the answer until it is whole: a stream that an error cuts off could be taken for its end.
_ARROW_SETTINGS: dict[str, Any] = {"output_format_arrow_low_cardinality_as_dictionary": 1, "wait_end_of_query": 1}

#: Error codes after which the same statement may succeed later: the server is full, busy, starting or going away.
_TRANSIENT_CODES = frozenset(
    {
        3,  # UNEXPECTED_END_OF_FILE
        74,  # CANNOT_READ_FROM_FILE_DESCRIPTOR
        75,  # CANNOT_WRITE_TO_FILE_DESCRIPTOR: what a full disk says in the middle of a write
        76,  # CANNOT_OPEN_FILE
        159,  # TIMEOUT_EXCEEDED
        173,  # CANNOT_ALLOCATE_MEMORY
        198,  # DNS_ERROR
        202,  # TOO_MANY_SIMULTANEOUS_QUERIES
        203,  # NO_FREE_CONNECTION
        209,  # SOCKET_TIMEOUT
        210,  # NETWORK_ERROR
        225,  # NO_ZOOKEEPER
        236,  # ABORTED
        241,  # MEMORY_LIMIT_EXCEEDED
        242,  # TABLE_IS_READ_ONLY: a replica without its keeper
        243,  # NOT_ENOUGH_SPACE
        252,  # TOO_MANY_PARTS
        285,  # TOO_FEW_LIVE_REPLICAS
        319,  # UNKNOWN_STATUS_OF_INSERT
        394,  # QUERY_WAS_CANCELLED
        412,  # NETLINK_ERROR
        425,  # SYSTEM_ERROR
        439,  # CANNOT_SCHEDULE_TASK
        476,  # CANNOT_SET_THREAD_PRIORITY
        999,  # KEEPER_EXCEPTION
    }
)
_DISK_FULL_CODES = frozenset({243})
_TOO_MUCH_CODES = frozenset({158})  # TOO_MANY_ROWS: a bound on rows or groups that the statement set itself
_DISK_FULL_TEXTS = ("No space left on device", "errno: 28", "Disk quota exceeded", "NOT_ENOUGH_SPACE")
_HINTS = {
    60: "run `tallygate migrate`",
    81: "create it with `tallygate migrate`",
    193: "check the user and password in TALLYGATE_CLICKHOUSE",
    194: "check the user and password in TALLYGATE_CLICKHOUSE",
    516: "check the user and password in TALLYGATE_CLICKHOUSE",
}
_SHOWN_CHARACTERS = 600


class ClickHouseStore:
    """A `Store` on ClickHouse's HTTP interface. One handle serves one thread."""

    def __init__(self, client: Client, address: str) -> None:
        self._client = client
        self.address = address

    @classmethod
    def connect(cls, dsn: str, *, connect_timeout_s: float = 5.0, answer_timeout_s: float = 60.0) -> ClickHouseStore:
        """Open ``http://user:password@host:port/database``.

        Raises:
            ConfigError: the address is malformed.
            StoreUnavailable: nobody answers there, or not yet.
            StoreRefused: the database or the user is unknown.
        """
        return cls.open(parse_dsn(dsn), connect_timeout_s=connect_timeout_s, answer_timeout_s=answer_timeout_s)

    @classmethod
    def open(
        cls,
        dsn: ClickHouseDsn,
        *,
        database: str | None = None,
        connect_timeout_s: float = 5.0,
        answer_timeout_s: float = 60.0,
        nice: int = 0,
        wait_for_rewrites: bool = True,
    ) -> ClickHouseStore:
        """The same from an address that was read already.

        Args:
            dsn: the address.
            database: instead of its own, which may not exist yet.
            connect_timeout_s: how long to wait for the connection.
            answer_timeout_s: how long to wait for each answer.
            nice: priority (1 to 19, lower the higher) of the threads that run its statements, where the server may set
                it; 0: as all others.
            wait_for_rewrites: whether an ALTER is answered only when what is on disk is rewritten; else that happens in
                the background, and reads see the new form at once.
        """
        with _explained(dsn.address):
            client = clickhouse_connect.get_client(
                host=dsn.host,
                port=dsn.port,
                username=dsn.user,
                password=dsn.password,
                database=dsn.database if database is None else database,
                secure=dsn.secure,
                connect_timeout=connect_timeout_s,
                send_receive_timeout=answer_timeout_s,
                autogenerate_session_id=False,
                dedicated_pool=True,
                tz_mode="aware",
                settings=_HANDLE_SETTINGS
                | ({_NICE_SETTING: nice} if nice else {})
                | ({} if wait_for_rewrites else {"alter_sync": 0}),
            )
        return cls(client, dsn.address)

    def insert(self, table: str, batch: pa.Table, *, token: str | None = None) -> None:
        """See `Store.insert`.

        Args:
            table: name of a table of ours.
            batch: its rows; the order of the columns does not matter, their names do.
            token: deduplication token; an INSERT that carries one already seen is dropped. Needs the table's
                deduplication window, and must name the exact same rows each time.

        Raises:
            ValueError: more than 1,000,000 rows.
        """
        if batch.num_rows > MAX_ROWS:
            raise ValueError(f"batch has {batch.num_rows:,} rows; allowed: at most {MAX_ROWS:,}, or it is not one part")
        if batch.num_rows == 0:
            return
        settings = _INSERT_SETTINGS if token is None else {**_INSERT_SETTINGS, "insert_deduplication_token": token}
        with _explained(self.address):
            self._client.raw_insert(
                table,
                column_names=batch.column_names,
                insert_block=arrow_stream(batch),
                fmt="ArrowStream",
                settings=settings,
            )

    def rows(self, sql: str, parameters: Mapping[str, Any] | None = None) -> Sequence[tuple[Any, ...]]:
        """See `Store.rows`; times come back aware, in UTC."""
        with _explained(self.address):
            found = self._client.query(sql, parameters=dict(parameters) if parameters else None).result_rows
        return [tuple(row) for row in found]

    def arrow(self, sql: str, parameters: Mapping[str, Any] | None = None) -> pa.Table:
        """See `ColumnStore.arrow`."""
        with _explained(self.address):
            return self._client.query_arrow(
                sql, parameters=dict(parameters) if parameters else None, settings=_ARROW_SETTINGS, use_strings=True
            )

    def command(self, sql: str, parameters: Mapping[str, Any] | None = None) -> None:
        """See `Store.command`."""
        with _explained(self.address):
            self._client.command(sql, parameters=dict(parameters) if parameters else None)

    def close(self) -> None:
        """See `Store.close`."""
        self._client.close()


def arrow_stream(batch: pa.Table) -> bytes:
    """The rows as one Arrow stream of one record batch."""
    target = pa.BufferOutputStream()
    combined = batch.combine_chunks()
    with pa.ipc.new_stream(target, combined.schema) as writer:
        writer.write_table(combined, max_chunksize=max(combined.num_rows, 1))
    stream: bytes = target.getvalue().to_pybytes()
    return stream


def classify(address: str, error: Exception) -> StoreUnavailable | StoreRefused:
    """What a failure of the client means: come back later, or correct the statement.

    Without an error code of the server nothing can be said about what it did, so that is `StoreUnavailable`.
    """
    code = getattr(error, "code", None)
    text = " ".join(str(error).split())[:_SHOWN_CHARACTERS]
    if code in _DISK_FULL_CODES or any(mark in str(error) for mark in _DISK_FULL_TEXTS):
        return StoreUnavailable(f"the disk of ClickHouse at {address} is full: {text}")
    if code in _TRANSIENT_CODES:
        return StoreUnavailable(f"ClickHouse at {address} cannot do it now: {text}")
    if code is None and not isinstance(error, ProgrammingError | DataError):
        return StoreUnavailable(f"ClickHouse at {address} does not answer: {_cause(error)}")
    if code in _TOO_MUCH_CODES:
        return StoreTooMuch(f"ClickHouse at {address} refused: {text}")
    hint = f" ({_HINTS[code]})" if code in _HINTS else ""
    return StoreRefused(f"ClickHouse at {address} refused{hint}: {text}")


def _cause(error: Exception) -> str:
    """The innermost reason of a transport error, which says more than the outermost."""
    inner: BaseException = error
    while (deeper := inner.__cause__ or inner.__context__) is not None:
        inner = deeper
    return " ".join(f"{type(inner).__name__}: {inner}".split())[:_SHOWN_CHARACTERS]


@contextmanager
def _explained(address: str) -> Iterator[None]:
    """Turn whatever the client raises into the two errors of the port."""
    try:
        yield
    except (ClickHouseError, OSError) as error:
        raise classify(address, error) from error
