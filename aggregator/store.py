"""The port to the accounting database: named queries in, Arrow batches in, rows out.

One implementation, `store_clickhouse`, speaks ClickHouse's HTTP interface through clickhouse-connect, and serves a
real server and the embedded engine alike. Nothing here builds SQL from a value.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import pyarrow as pa


class StoreUnavailable(Exception):
    """The database did not answer, or would not take the rows: try again later, acknowledge nothing meanwhile."""


class StoreRefused(Exception):
    """The database answered that the statement itself is wrong: trying again will not help."""


class Store(Protocol):
    """What the recorder and the worker write to and read their state from. One handle serves one thread."""

    def insert(self, table: str, batch: pa.Table) -> None:
        """Write all rows in one INSERT, or none; returns only once they are stored.

        At most 1,000,000 rows, all of one table partition, so that they become one part.

        Raises:
            StoreUnavailable: nothing can be said of the rows; write the same ones again.
            StoreRefused: the rows do not fit the table.
        """
        ...

    def rows(self, sql: str, parameters: Mapping[str, Any] | None = None) -> Sequence[tuple[Any, ...]]:
        """Run one SELECT with server-side bound parameters (``{name:Type}``) and return its rows."""
        ...

    def command(self, sql: str) -> None:
        """Run one statement without a result."""
        ...

    def close(self) -> None:
        """Release connections; safe to call twice."""
        ...
