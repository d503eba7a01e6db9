"""The second stage's side of the database: what it begins from in `live`, and the `signals` that it writes.

Blocking, for one thread. Holds no totals, and decides nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, cast

import pyarrow as pa

from aggregator.core.live.usage_blocks import CallerUsageRow
from aggregator.sql import load_queries
from aggregator.store import Store

_SECONDS_PER_MINUTE = 60


class SignalsTable(Protocol):
    """What `SignalsJob` needs; every method blocks and may raise `StoreUnavailable` or `StoreRefused`."""

    def load(self, partition: int, minute: int) -> Sequence[CallerUsageRow]:
        """Totals of a minute, of the callers that a partition of the usage topic carries."""
        ...

    def write(self, rows: pa.Table) -> None:
        """Write rows; afterwards they are stored."""
        ...


class SignalsStore:
    """`SignalsTable` on a `Store`; `partitions` is the partition count of the usage topic."""

    def __init__(self, store: Store, *, partitions: int) -> None:
        self._store = store
        self._partitions = partitions
        self._queries = {**load_queries("aggregator.sql", "live.sql"), **load_queries("aggregator.sql", "signals.sql")}

    def table_id(self) -> str:
        """The identity of the `live` table; empty if the database has none."""
        rows = self._store.rows(self._queries["live_table_id"].sql)
        return str(rows[0][0]) if rows else ""

    def load(self, partition: int, minute: int) -> Sequence[CallerUsageRow]:
        """See `SignalsTable.load`."""
        parameters = {
            "partition": partition,
            "partitions": self._partitions,
            "minute_s": max(minute, 0) * _SECONDS_PER_MINUTE,
        }
        return cast("Sequence[CallerUsageRow]", self._store.rows(self._queries["signals_load"].sql, parameters))

    def write(self, rows: pa.Table) -> None:
        """See `SignalsTable.write`."""
        self._store.insert("signals", rows)

    def close(self) -> None:
        """Release the store's connections."""
        self._store.close()
