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


class StoreTooMuch(StoreRefused):
    """The statement would go beyond a bound that it names itself: less at a time will do. Nothing was written."""


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

    def command(self, sql: str, parameters: Mapping[str, Any] | None = None) -> None:
        """Run one statement without a result, with server-side bound parameters."""
        ...

    def close(self) -> None:
        """Release connections; safe to call twice."""
        ...


def values_of(row: Any) -> tuple[Any, ...]:
    """The values of a named tuple inside a row, which comes as a mapping or as a tuple."""
    return tuple(row.values()) if isinstance(row, Mapping) else tuple(row)


class ColumnStore(Store, Protocol):
    """A store that gives millions of rows at once."""

    def arrow(self, sql: str, parameters: Mapping[str, Any] | None = None) -> pa.Table:
        """`rows` as columns. Names of low cardinality come as dictionaries."""
        ...
