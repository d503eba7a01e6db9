"""The worker's side of the `live` table: its named queries and its one INSERT, on top of `Store`.

Blocking, for one thread. Holds no totals, and decides nothing.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any, Protocol, cast

import pyarrow as pa

from aggregator.core.live.arrow import RowNames, rows_table
from aggregator.core.live.load import CallerRow, CopyRow, FleetRow, ProgressRow, UsageRow
from aggregator.core.live.rows import Cut
from aggregator.core.live.shard import CopyKey
from aggregator.core.live.usage_blocks import CallerUsageRow
from aggregator.sql import load_queries
from aggregator.store import Store
from stream.contract.topics import DECISIONS

_SECONDS_PER_MINUTE = 60


class LiveTable(Protocol):
    """What `LiveJob` needs of the database; every method blocks and may raise `StoreUnavailable` or `StoreRefused`."""

    def progress(self, partition: int) -> Sequence[ProgressRow]:
        """How far each log of this partition is covered."""
        ...

    def minutes(
        self, partition: int, minutes: Sequence[int]
    ) -> tuple[Sequence[UsageRow], Sequence[FleetRow], Sequence[CallerRow]]:
        """The rows of these unix minutes."""
        ...

    def stored_minutes(self, partition: int, first: int, last: int) -> Sequence[int]:
        """Those of the minutes `first` to `last` of which there is any row."""
        ...

    def recent_copies(self, partition: int) -> Sequence[CopyRow]:
        """Rows of the copies heard of last."""
        ...

    def copies(self, partition: int, keys: Sequence[CopyKey]) -> Sequence[CopyRow]:
        """Rows of these copies, as far as there are any."""
        ...

    def write(self, cuts: Iterable[Cut]) -> int:
        """Write the cuts in one INSERT and return how many rows they were; afterwards they are stored."""
        ...

    def write_loss(self, partition: int, first_offset: int, next_offset: int, at_us: int) -> None:
        """Record that the log's offsets from `first_offset` to before `next_offset` are gone, uncounted."""
        ...


class LiveStore:
    """`LiveTable` on a `Store`."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._names = RowNames()
        self._queries = load_queries("aggregator.sql", "live.sql")

    def table_id(self) -> str:
        """The identity of the `live` table; empty if the database has none."""
        rows = self._rows("live_table_id")
        return str(rows[0][0]) if rows else ""

    def has_other_logs(self, log_id: str) -> bool:
        """Whether the totals are of other logs than this one as well."""
        return bool(self._rows("live_other_logs", log_id=log_id)[0][0])

    def progress(self, partition: int) -> Sequence[ProgressRow]:
        """See `LiveTable.progress`."""
        return cast("Sequence[ProgressRow]", self._rows("live_progress", partition=partition))

    def minutes(
        self, partition: int, minutes: Sequence[int]
    ) -> tuple[Sequence[UsageRow], Sequence[FleetRow], Sequence[CallerRow]]:
        """See `LiveTable.minutes`."""
        seconds = [minute * _SECONDS_PER_MINUTE for minute in minutes]
        span = {"partition": partition, "low_s": min(seconds), "high_s": max(seconds), "minutes_s": seconds}
        return (
            cast("Sequence[UsageRow]", self._rows("live_usage", **span)),
            cast("Sequence[FleetRow]", self._rows("live_fleet", **span)),
            cast("Sequence[CallerRow]", self._rows("live_callers", **span)),
        )

    def stored_minutes(self, partition: int, first: int, last: int) -> Sequence[int]:
        """See `LiveTable.stored_minutes`: every minute has a fleet row, and those stand together."""
        span = {"low_s": first * _SECONDS_PER_MINUTE, "high_s": last * _SECONDS_PER_MINUTE}
        return [int(minute) for (minute,) in self._rows("live_minutes", partition=partition, **span)]

    def recent_copies(self, partition: int) -> Sequence[CopyRow]:
        """See `LiveTable.recent_copies`."""
        return cast("Sequence[CopyRow]", self._rows("live_recent_copies", partition=partition))

    def copies(self, partition: int, keys: Sequence[CopyKey]) -> Sequence[CopyRow]:
        """See `LiveTable.copies`."""
        return [
            cast("CopyRow", row)
            for copy_id, epoch in keys
            for row in self._rows("live_copy", partition=partition, copy_id=copy_id, epoch=epoch)
        ]

    def sent(self, partition: int, log_id: str) -> int:
        """The version up to which the second stage was told of this log; 0 if never."""
        rows = self._rows("live_sent", partition=partition, log_id=log_id)
        return int(rows[0][0]) if rows else 0

    def untold_minutes(self, partition: int, sent: int, first_minute: int) -> Sequence[int]:
        """The minutes from `first_minute` on of which there is anything newer than `sent`."""
        given = {"partition": partition, "sent": sent, "low_s": max(first_minute, 0) * _SECONDS_PER_MINUTE}
        return [int(minute) for (minute,) in self._rows("live_untold_minutes", **given)]

    def untold(self, partition: int, sent: int, minute: int) -> Sequence[CallerUsageRow]:
        """Totals by caller of a minute that are newer than `sent`."""
        given = {"partition": partition, "sent": sent, "minute_s": max(minute, 0) * _SECONDS_PER_MINUTE}
        return cast("Sequence[CallerUsageRow]", self._rows("live_untold", **given))

    def write(self, cuts: Iterable[Cut]) -> int:
        """See `LiveTable.write`."""
        table = self.rows_of(cuts)
        self._store.insert("live", table)
        return int(table.num_rows)

    def rows_of(self, cuts: Iterable[Cut]) -> pa.Table:
        """What `write` writes of cuts."""
        return rows_table(cuts, self._names, lean=True)

    def write_loss(self, partition: int, first_offset: int, next_offset: int, at_us: int) -> None:
        """See `LiveTable.write_loss`: a row in `control`, the same one if it is written twice."""
        body = {"topic": DECISIONS.name, "first_offset": first_offset, "next_offset": next_offset}
        row = {
            "kind": pa.array(["live_offsets_lost"]),
            "copy_id": pa.array([""]),
            "epoch": pa.array([0], pa.uint64()),
            "at": pa.array([at_us], pa.timestamp("us", "UTC")),
            "body": pa.array([json.dumps(body)]),
            "log_partition": pa.array([partition], pa.uint16()),
            "log_offset": pa.array([first_offset], pa.uint64()),
        }
        self._store.insert("control", pa.table(row))

    def close(self) -> None:
        """Release the store's connections."""
        self._store.close()

    def _rows(self, name: str, **parameters: Any) -> Sequence[tuple[Any, ...]]:
        return self._store.rows(self._queries[name].sql, parameters)
