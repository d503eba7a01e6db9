"""A record to settle: decisions and journal as the recorder writes them, and a settler whose clock is set by hand."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from aggregator.config import AggregatorConfig
from aggregator.core.settled.settling import MINUTE_US
from aggregator.migrate import migrate
from aggregator.settler.loop import Settler
from aggregator.settler.passes.due import Pass
from aggregator.settler.passes.minutes import MinutesPass
from aggregator.settler.passes.totals import Totals
from aggregator.store import ColumnStore
from aggregator.store_clickhouse import ClickHouseStore
from enforcer.types import Reason, Source

_TIME = pa.timestamp("us", "UTC")
LOG_ID = "log-1"
_AGEING = ("decisions", "recorded", "settled_minutes", "settled_fleet", "settled_days", "disagreements", "live")


def utc_us(text: str) -> int:
    """A time such as ``2026-11-30T10:00`` in UTC, in unix microseconds."""
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()) * 1_000_000


class SettlingScene:
    """One database. Every flush takes one offset of its partition."""

    def __init__(self, dsn: str) -> None:
        migrate(dsn)
        self.dsn = dsn
        self.store = ClickHouseStore.connect(dsn)
        for table in _AGEING:
            # Scenes play on fixed days, which grow old.
            self.store.command(f"SYSTEM STOP TTL MERGES {table}")
        self.now_us = 0
        self._offsets: dict[int, int] = {}
        self._seqs: dict[str, int] = {}

    def close(self) -> None:
        """Let go of the database."""
        self.store.close()

    def settler(
        self, *, store: ColumnStore | None = None, made: Sequence[Pass] | None = None, **settings: str
    ) -> Settler:
        """A settler of the totals that has just started; it reads `now_us` as its clock."""
        environ = {"TALLYGATE_CLICKHOUSE": self.dsn, **{f"TALLYGATE_{k.upper()}": v for k, v in settings.items()}}
        return Settler(
            AggregatorConfig.from_env(environ),
            lambda: store or ClickHouseStore.connect(self.dsn),
            [MinutesPass([Totals()])] if made is None else made,
            logging.getLogger("test.settler"),
            unix_us=lambda: self.now_us,
        )

    def limit(self) -> None:
        """From now on a retention is in force, as a recorder's start has it; what it takes is up to the scene."""
        self.store.command("INSERT INTO retention VALUES (now64(6), 10000, 10000, 10000, 10)")

    def settle(self, at: str, settler: Settler | None = None) -> Settler:
        """Run rounds at this time until nothing is due."""
        self.now_us = utc_us(at)
        settler = settler or self.settler()
        while settler.round():
            pass
        return settler

    def flush(self, *rows: dict[str, Any], partition: int = 0, stored_at: str, journal: bool = True) -> int:
        """Store decisions as one flush of the recorder, and say so in the journal; returns their offset."""
        offset = self._offsets.get(partition, 0)
        self._offsets[partition] = offset + 1
        for day in sorted({row["at_us"] // 86_400_000_000 for row in rows}):
            of_day = [row for row in rows if row["at_us"] // 86_400_000_000 == day]
            self.store.insert("decisions", self._table(of_day, partition, offset))
        if journal:
            self.journal(rows, partition, offset, stored_at)
        return offset

    def journal(self, rows: Sequence[dict[str, Any]], partition: int, offset: int, stored_at: str) -> None:
        """The last row of a flush."""
        row = {
            "log_id": pa.array([LOG_ID]),
            "topic": pa.array(["tallygate.decisions"]),
            "log_partition": pa.array([partition], pa.uint16()),
            "first_offset": pa.array([offset], pa.uint64()),
            "next_offset": pa.array([offset + 1], pa.uint64()),
            "stored_at": pa.array([utc_us(stored_at)], _TIME),
            "decisions": pa.array([len(rows)], pa.uint64()),
            "minutes": pa.array([sorted({row["at_us"] // MINUTE_US for row in rows})], pa.list_(pa.uint32())),
        }
        self.store.insert("recorded", pa.table(row))

    def decisions(
        self,
        number: int,
        at: str,
        *,
        caller: str = "acme",
        scope: str = "GET /",
        copy_id: str = "gw-1",
        reason: Reason = Reason.NONE,
        source: Source = Source.LOCAL,
        cost: int = 1,
    ) -> list[dict[str, Any]]:
        """So many decisions from a time on, a millisecond apart."""
        first = self._seqs.get(copy_id, 0)
        self._seqs[copy_id] = first + number
        return [
            {
                "caller": caller, "at_us": utc_us(at) + place * 1_000, "copy_id": copy_id, "epoch": 1,
                "seq": first + place, "scope": scope, "reason": reason, "source": source, "cost": cost,
            }
            for place in range(number)
        ]  # fmt: skip

    def rows(self, sql: str, **parameters: Any) -> list[tuple[Any, ...]]:
        """What a SELECT gives."""
        return list(self.store.rows(sql, parameters))

    def totals(self, *, table: str = "settled_minutes", unit: str = "minute") -> dict[Any, tuple[int, ...]]:
        """The current (offered, admitted, cost_admitted) of each (caller, time, scope)."""
        found = self.rows(
            f"SELECT caller, {unit}, scope, argMax((offered, admitted, cost_admitted), (version, stored_at)) "
            f"FROM {table} GROUP BY ALL ORDER BY ALL"
        )
        return {
            (caller, f"{time:%Y-%m-%dT%H:%M}" if unit == "minute" else f"{time:%Y-%m-%d}", scope): tuple(counts)
            for caller, time, scope, counts in found
        }

    @staticmethod
    def _table(rows: Sequence[dict[str, Any]], partition: int, offset: int) -> pa.Table:
        return pa.table(
            {
                "caller": pa.array([row["caller"] for row in rows]),
                "at": pa.array([row["at_us"] for row in rows], _TIME),
                "copy_id": pa.array([row["copy_id"] for row in rows]),
                "epoch": pa.array([row["epoch"] for row in rows], pa.uint64()),
                "seq": pa.array([row["seq"] for row in rows], pa.uint64()),
                "scope": pa.array([row["scope"] for row in rows]),
                "limit": pa.array(["rate"] * len(rows)),
                "plan": pa.array(["standard"] * len(rows)),
                "allowed": pa.array([row["reason"] is Reason.NONE for row in rows]),
                "source": pa.array([row["source"] for row in rows], pa.int8()),
                "reason": pa.array([row["reason"] for row in rows], pa.int8()),
                "cost_tokens": pa.array([row["cost"] for row in rows], pa.uint32()),
                "policy_version": pa.array([1] * len(rows), pa.uint32()),
                "grant_id": pa.array([1] * len(rows), pa.uint64()),
                "log_partition": pa.array([partition] * len(rows), pa.uint16()),
                "log_offset": pa.array([offset] * len(rows), pa.uint64()),
            }
        )
