"""What the raw record costs to keep: bytes a decision by tier, and what it takes to drop the admitted ones of a day.

``python -m benchmarks.keep --decisions 20000000`` fills one day of `decisions` the way the recorder does, on the
embedded engine, lets it merge, and then lets the retention of admitted decisions pass over it. ``--apart`` does the
same with admitted and refused rows in partitions of their own, which is what docs/decisions/0019 decided against.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute

from aggregator.migrate import migrate
from aggregator.sql import migrations
from aggregator.store_clickhouse import ClickHouseStore
from benchmarks.pipeline.measures import cpu_s
from benchmarks.report import Result, WrongCount, write
from tallygate.engines.clickhouse import ClickHouse, start_clickhouse

RATE_PER_S = 200_000
FLUSH_DECISIONS = 80_000
CALLERS, COPIES, SCOPES = 20_000, 240, 50
#: Noon of a day that both tiers still keep; and how long ago it is made to be when the admitted ones are to go.
DAY_US = 86_400_000_000
#: A caller in so many is over its plan, and refused three times in four.
OVER_ONE_IN = 5
_MINUTES = """
INSERT INTO live (kind, caller, minute, scope, version, offered, admitted, refused_spent, cost_offered, cost_admitted)
SELECT 'usage', caller, toStartOfMinute(at), scope, 1, count(), countIf(allowed), countIf(NOT allowed),
    sum(cost_tokens), sumIf(cost_tokens, allowed)
FROM decisions
GROUP BY ALL
"""
Numbers = npt.NDArray[np.int64]


@dataclass
class Fleet:
    """20,000 callers, some far busier than others, each on three to ten of 240 copies; makes flushes."""

    start_us: int
    random: np.random.Generator = field(default_factory=lambda: np.random.default_rng(7))

    def __post_init__(self) -> None:
        """Draw what stays the same from flush to flush."""
        weights = 1 / np.arange(1, CALLERS + 1) ** 0.9
        self._cumulated = np.cumsum(weights / weights.sum())
        self._reach = self.random.integers(3, 11, CALLERS)
        self._first_copy = self.random.integers(0, COPIES, CALLERS)
        self._next_seq = np.zeros(COPIES, np.int64)

    def flushes(self, decisions: int) -> Iterator[pa.Table]:
        """Rows of `decisions`, in flushes as the recorder cuts them at 200,000 decisions a second."""
        for first in range(0, decisions, FLUSH_DECISIONS):
            yield self._flush(first, min(FLUSH_DECISIONS, decisions - first))

    def _flush(self, first: int, rows: int) -> pa.Table:
        at_us = (
            self.start_us + ((first + np.arange(rows)) * 1_000_000 // RATE_PER_S) + self.random.integers(0, 3000, rows)
        )
        caller = np.searchsorted(self._cumulated, self.random.random(rows)).clip(0, CALLERS - 1)
        copy = (self._first_copy[caller] + 7 * self.random.integers(0, self._reach[caller])) % COPIES
        order = np.lexsort((at_us, copy))
        at_us, caller, copy = at_us[order], caller[order], copy[order]
        over = caller % OVER_ONE_IN == 0
        refused = over & (self.random.random(rows) < 0.75)
        # A grant lasts about a second in one copy; its id is the time at which the owner gave it.
        grant = at_us - (at_us + caller * 7919 + copy * 104_729) % 1_000_000
        second = (at_us - self.start_us) // 1_000_000
        return pa.table(
            {
                "caller": _named("acct-", caller), "at": pa.array(at_us, pa.timestamp("us", "UTC")),
                "copy_id": _named("gw-", copy), "epoch": pa.array((1_767_300_000_000 << 20) + copy, pa.uint64()),
                "seq": pa.array(self._seqs(copy), pa.uint64()),
                "scope": _named("/v1/route-", (caller * 31 + self.random.integers(0, 5, rows)) % SCOPES),
                "limit": _named("rate", np.zeros(rows, np.int64)), "plan": _named("plan-", caller % 4),
                "allowed": pa.array(~refused), "source": pa.array(np.zeros(rows, np.int8)),
                "reason": pa.array(refused.astype(np.int8)), "cost_tokens": pa.array(np.ones(rows, np.uint32)),
                "remaining_tokens": pa.array(np.where(refused, 0, self.random.integers(0, 40, rows))),
                "retry_after_ms": pa.array(np.where(refused, self.random.integers(1, 1000, rows), 0).astype(np.int32)),
                "policy_version": pa.array(np.full(rows, 41, np.uint32)),
                "grant_id": pa.array(np.where(refused, 0, grant), pa.uint64()),
                "k": pa.array(self._reach[caller].astype(np.uint32)),
                "log_partition": pa.array((copy % 4).astype(np.uint16)),
                "log_offset": pa.array(second * (COPIES // 4) + copy // 4, pa.uint64()),
            }
        )  # fmt: skip

    def _seqs(self, copy: Numbers) -> Numbers:
        """The next numbers of each copy; rows of one copy stand together."""
        counts = np.bincount(copy, minlength=COPIES)
        starts = np.cumsum(counts) - counts
        seqs = np.arange(len(copy)) - np.repeat(starts, counts) + np.repeat(self._next_seq, counts)
        self._next_seq += counts
        return seqs


def _named(stem: str, numbers: Numbers) -> pa.DictionaryArray:
    distinct, places = np.unique(numbers, return_inverse=True)
    return pa.DictionaryArray.from_arrays(
        pa.array(places.astype(np.int32)), pa.array([f"{stem}{number}" for number in distinct])
    )


def main() -> int:
    """Fill, merge, drop; print what each took."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.keep", description=__doc__)
    parser.add_argument("--decisions", type=int, default=20_000_000, metavar="N", help="how many (20,000,000)")
    parser.add_argument("--apart", action="store_true", help="admitted and refused rows in partitions of their own")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there too")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tallygate-keep-") as folder:
        server = start_clickhouse(Path(folder))
        try:
            migrate(server.dsn)
            with closing(ClickHouseStore.connect(server.dsn, answer_timeout_s=3600)) as store:
                results = Measurement(server, store, apart=options.apart).run(options.decisions)
        finally:
            server.stop()
    write(results, options.json)
    return 0


class Measurement:
    """One run on one engine."""

    def __init__(self, server: ClickHouse, store: ClickHouseStore, *, apart: bool) -> None:
        self._server, self._store, self._apart = server, store, apart
        if apart:
            created = next(
                one for step in migrations() for one in step.statements if "TABLE IF NOT EXISTS decisions " in one
            )
            store.command("DROP TABLE decisions SYNC")
            store.command(created.replace("PARTITION BY toDate(at)", "PARTITION BY (toDate(at), allowed)"))

    def run(self, decisions: int) -> list[Result]:
        """All figures."""
        now_us = int(self._store.rows("SELECT toUnixTimestamp64Micro(now64(6))")[0][0])
        fleet = Fleet(start_us=(now_us // DAY_US - 20) * DAY_US + DAY_US // 2)
        inserted = self._timed(lambda: self._fill(fleet, decisions))
        merged = self._timed(lambda: self._store.command("OPTIMIZE TABLE decisions FINAL"))
        whole, share = self._bytes(), self._number("SELECT countIf(NOT allowed) / count() FROM decisions")
        minutes = self._minutes()
        dropped = self._timed(self._drop)
        left, rows = self._bytes(), self._number("SELECT count() FROM decisions")
        if self._number("SELECT countIf(allowed) FROM decisions") or rows != round(share * decisions):
            raise WrongCount(f"{rows:,.0f} decisions are left, {share * decisions:,.0f} were refused")
        return [
            Result("keep_insert_cpu_s_per_million", inserted[1] / decisions * 1e6, "s"),
            Result("keep_merge_cpu_s_per_million", merged[1] / decisions * 1e6, "s"),
            Result("keep_bytes_per_decision", whole / decisions, "B", must="<= 12", goal="<= 8"),
            Result("keep_refused_share", share * 100, "%"),
            Result("keep_bytes_per_refused", left / rows, "B"),
            Result("keep_bytes_per_minute_row", minutes[1] / minutes[0], "B"),
            Result("keep_minute_rows_per_million", minutes[0] / decisions * 1e6, ""),
            Result("keep_drop_cpu_s_per_million", dropped[1] / decisions * 1e6, "s"),
            Result("keep_drop_wall_s_per_million", dropped[0] / decisions * 1e6, "s"),
        ]

    def _minutes(self) -> tuple[float, float]:
        """Totals by caller, scope and minute of all decisions: how many rows, and their bytes on disk."""
        self._store.command(_MINUTES)
        self._store.command("OPTIMIZE TABLE live FINAL")
        return self._number("SELECT count() FROM live"), self._bytes("live")

    def _fill(self, fleet: Fleet, decisions: int) -> None:
        for rows in fleet.flushes(decisions):
            if not self._apart:
                self._store.insert("decisions", rows)
                continue
            for value in (True, False):
                self._store.insert("decisions", rows.filter(pa.compute.equal(rows["allowed"], value)))

    def _drop(self) -> None:
        if self._apart:
            day = self._store.rows(
                "SELECT DISTINCT partition_id FROM system.parts WHERE active AND table = 'decisions' "
                "AND database = currentDatabase() AND partition LIKE '%true%'"
            )
            for (partition,) in day:
                self._store.command(f"ALTER TABLE decisions DROP PARTITION ID '{partition}'")
            return
        self._store.command("ALTER TABLE decisions MODIFY SETTING materialize_ttl_recalculate_only = 1")
        self._store.command("ALTER TABLE decisions MODIFY TTL toDate(at) + toIntervalDay(15) DELETE WHERE allowed")
        until_s = time.monotonic() + 3600
        while self._number("SELECT countIf(allowed) FROM decisions"):
            if time.monotonic() > until_s:
                raise WrongCount("the engine has not dropped the admitted decisions within an hour")
            time.sleep(0.5)

    def _timed(self, act: object) -> tuple[float, float]:
        assert callable(act)
        before, began = cpu_s(self._server.pid), time.monotonic()
        act()
        return time.monotonic() - began, cpu_s(self._server.pid) - before

    def _bytes(self, table: str = "decisions") -> float:
        return self._number(
            f"SELECT sum(bytes_on_disk) FROM system.parts WHERE active AND table = '{table}' "
            "AND database = currentDatabase()"
        )

    def _number(self, sql: str) -> float:
        return float(self._store.rows(sql)[0][0])


if __name__ == "__main__":
    raise SystemExit(main())
