"""Drops one month of the raw record by hand: whole partitions, so that nothing else is touched or rewritten.

Never drops totals, blocks or control events, and never a month that is not over.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta

import pyarrow as pa

from aggregator.retention.kept import month_span
from aggregator.retention.tiers import RAW
from aggregator.sql import load_queries
from aggregator.store import Store

_QUERIES = load_queries("aggregator.sql", "retention.sql")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class MonthNotOver(Exception):
    """The month may still be written to."""


@dataclass(frozen=True, slots=True)
class Partition:
    """One partition of one table, with what it holds on disk."""

    table: str
    partition_id: str
    rows: int
    size_bytes: int


def partitions(store: Store, year: int, month: int) -> list[Partition]:
    """What a month of the raw tables consists of.

    Raises:
        MonthNotOver: the database's clock has not reached its end.
    """
    now_us = int(store.rows(_QUERIES["now"].sql)[0][0])
    if month_span(year, month)[1] > now_us:
        raise MonthNotOver(f"{year}-{month:02d} is not over at {_EPOCH + timedelta(microseconds=now_us):%Y-%m-%d}")
    found = store.rows(_QUERIES["month_partitions"].sql, {"tables": list(RAW), "month": f"{year}{month:02d}"})
    return [Partition(str(table), str(name), int(rows), int(size)) for table, name, rows, size in found]


def drop(store: Store, year: int, month: int) -> list[Partition]:
    """Drop it, and return what it was. Ended half way, a repetition drops the rest.

    Raises:
        MonthNotOver: see `partitions`.
    """
    found = partitions(store, year, month)
    now_us = int(store.rows(_QUERIES["now"].sql)[0][0])
    # First, so that nobody takes a month that is half gone for whole.
    store.insert(
        "retention_drops",
        pa.table(
            {
                "month": pa.array([date(year, month, 1)], pa.date32()),
                "dropped_at": pa.array([now_us], pa.timestamp("us", "UTC")),
            }
        ),
    )
    for one in found:
        # Both names come from the engine's own list: a table of ours, and digits.
        store.command(f"ALTER TABLE {one.table} DROP PARTITION ID '{one.partition_id}'")
    return found
