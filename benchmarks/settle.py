"""What a settler's round costs: ``python -m benchmarks.settle [--decisions N] [--minutes N] [--json FILE]``.

Fills an embedded database as the pipeline does: decisions in flushes of two seconds each, numbers of a copy without
gaps, four copies a caller, a grant every twenty seconds of each; terms; the live totals; an hour of blocks. Then the
settler itself settles them with all that it computes (totals, sums by grant, what is missing, fairness, the
comparison with the live totals), and once more after one late block per minute.
CPU time is that of the settler and of the database together, with the merges of what is written; what was filled in has
been merged before as far as it goes, and rests. Counts that do not agree fail the run.
"""

from __future__ import annotations

import argparse
import logging
import os
import resource
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from time import perf_counter, sleep

from aggregator.config import AggregatorConfig
from aggregator.core.settled.settling import MINUTE_US
from aggregator.migrate import migrate
from aggregator.settler.loop import Settler
from aggregator.settler.process import passes
from aggregator.store import ColumnStore
from aggregator.store_clickhouse import ClickHouseStore
from benchmarks.report import Result, WrongCount, write
from tallygate.engines.clickhouse import start_clickhouse

_FIRST_MINUTE = 29_833_920
_FLUSH_S = 2
_LATE = 1_000
_REST_S = 300.0
_FILLED = ("decisions", "recorded", "terms", "blocks", "live")
_FILL = """
INSERT INTO decisions (
    caller, at, copy_id, epoch, seq, scope, limit, plan, allowed, source, reason, cost_tokens, retry_after_ms,
    policy_version, grant_id, k, log_partition, log_offset
)
WITH cityHash64(number, {offset:UInt64}) AS chance, number % {copies:UInt32} AS copy,
    intDiv({copies:UInt32}, {k:UInt32}) AS groups,
    intDiv(toUInt32({callers:UInt32} * pow(chance / exp2(64), 2)), groups) * groups + copy % groups AS caller_no,
    caller_no % 200 = 0 AS floods, floods AND number % 4 != 0 AS refused,
    {start_us:UInt64} + intDiv(number * {span_us:UInt64}, {rows:UInt64}) AS at_us
SELECT concat('caller-', toString(caller_no)), fromUnixTimestamp64Micro(toInt64(at_us), 'UTC'),
    concat('gw-', toString(copy)), 1, {number:UInt64} + intDiv(number, {copies:UInt32}),
    concat('GET /v1/', toString(intDiv(chance, 7) % {scopes:UInt32})), 'rate', if(floods, 'small', 'standard'),
    NOT refused, 'local', if(refused, 'spent', 'none'), 1, if(refused, 250, 0), 1,
    if(refused, 0, intDiv(at_us, 20000000) * 20000000 + copy), {k:UInt32}, 0, {offset:UInt64}
FROM numbers({rows:UInt64})
SETTINGS max_insert_block_size = 1000001, min_insert_block_size_rows = 1000001, min_insert_block_size_bytes = 0,
    optimize_on_insert = 0
"""
_JOURNAL = """
INSERT INTO recorded (log_id, topic, log_partition, first_offset, next_offset, stored_at, decisions, minutes)
SELECT 'log', 'tallygate.decisions', 0, {offset:UInt64}, {offset:UInt64} + 1, now64(6), {rows:UInt64}, [{minute:UInt32}]
"""
_TERMS = """
INSERT INTO terms (caller, limit, policy_version, plan, rate_per_s, burst)
SELECT concat('caller-', toString(number)), 'rate', 1, if(number % 200 = 0, 'small', 'standard'),
    if(number % 200 = 0, 1, 100), if(number % 200 = 0, 2, 200)
FROM numbers({callers:UInt64})
"""
_BLOCKS = """
INSERT INTO blocks (copy_id, epoch, first_seq, decisions, sealed_at, log_offset)
SELECT concat('gw-', toString(number % {copies:UInt32})), 1, intDiv(number, {copies:UInt32}) * 800, 800,
    fromUnixTimestamp64Micro({end_us:Int64} - 3600000000 + toInt64(intDiv(number, {copies:UInt32})) * 1000000, 'UTC'),
    number
FROM numbers(toUInt64({copies:UInt32}) * 3600)
"""
_LIVE = """
INSERT INTO live (kind, caller, minute, scope, version, offered, admitted, cost_admitted)
SELECT 'usage', caller, toStartOfMinute(at) AS minute, scope, {offset:UInt64}, count(), countIf(allowed),
    sumIf(cost_tokens, allowed)
FROM decisions FINAL
GROUP BY caller, minute, scope
"""
_PROGRESS = "INSERT INTO live (kind, scope, version, next_seq) SELECT 'progress', 'log', {offset:UInt64}, 0"


class Scene:
    """A database full of decisions, and a settler."""

    def __init__(self, folder: Path, options: argparse.Namespace) -> None:
        self._sizes = {name: getattr(options, name) for name in ("callers", "copies", "scopes", "k")}
        self.engine = start_clickhouse(folder)
        dsn = self.engine.dsn_for("settle")
        migrate(dsn)
        self.store: ColumnStore = ClickHouseStore.connect(dsn, answer_timeout_s=600)
        self._offset = self._number = 0
        config = AggregatorConfig.from_env({"TALLYGATE_CLICKHOUSE": dsn})
        self._now_us = (_FIRST_MINUTE + options.minutes + 1) * MINUTE_US
        self.settler = Settler(
            config, lambda: self.store, passes(), logging.getLogger("benchmark"), unix_us=lambda: self._now_us
        )

    def flush(self, minute: int, start_s: int, rows: int) -> None:
        """Store so many decisions of two seconds, and say so in the journal."""
        start_us = minute * MINUTE_US + start_s * 1_000_000
        values = {"offset": self._offset, "rows": rows, "minute": minute, "number": self._number}
        self.store.command(_FILL, {**values, **self._sizes, "start_us": start_us, "span_us": _FLUSH_S * 1_000_000})
        self.store.command(_JOURNAL, values)
        self._offset += 1
        self._number += -(-rows // self._sizes["copies"])

    def surround(self) -> None:
        """What else stands there: terms, blocks, and the live totals of all that is stored."""
        self.store.command(_TERMS, self._sizes)
        self.store.command(_BLOCKS, {**self._sizes, "end_us": self._now_us - MINUTE_US})
        self.count_live()

    def count_live(self) -> None:
        """The live totals of all that is stored."""
        self.store.command(_LIVE, {"offset": self._offset})
        self.store.command(_PROGRESS, {"offset": self._offset})

    def rest(self) -> None:
        """Wait until nothing is being merged, and let nothing of what was filled in be merged any more."""
        until_s = perf_counter() + _REST_S
        while self.number("SELECT count() FROM system.merges") and perf_counter() < until_s:
            sleep(0.2)
        for table in _FILLED:
            self.store.command(f"SYSTEM STOP MERGES {table}")

    def settle(self) -> tuple[float, float, float]:
        """Settle all that is due; CPU seconds of the settler and of the database, and seconds by the clock."""
        self._now_us += 60_000_000
        self.rest()
        started, here, there = perf_counter(), _cpu_s(os.getpid()), _cpu_s(self.engine.child.pid)
        while self.settler.round():
            self._now_us += 1_000_000
        return _cpu_s(os.getpid()) - here, _cpu_s(self.engine.child.pid) - there, perf_counter() - started

    def number(self, sql: str) -> int:
        """What a SELECT of one number gives."""
        return int(self.store.rows(sql)[0][0])

    def check(self) -> None:
        """Compare what was settled with the record."""
        recorded = self.number("SELECT count() FROM decisions FINAL")
        paid = self.number("SELECT sum(cost_tokens) FROM decisions FINAL WHERE allowed")
        cells = "SELECT argMax(offered, (version, stored_at)) AS n FROM settled_minutes GROUP BY caller, minute, scope"
        fleet = (
            "SELECT argMax(offered, (version, stored_at)) AS n FROM settled_fleet "
            "GROUP BY minute, scope, policy_version, source, reason"
        )
        found = {
            "totals": (self.number(f"SELECT sum(n) FROM ({cells})"), recorded),
            "fleet": (self.number(f"SELECT sum(n) FROM ({fleet})"), recorded),
            "fairness": (self.number("SELECT sum(offered) FROM fairness FINAL"), recorded),
            "grants": (self.number("SELECT sum(spent) FROM grant_minutes FINAL"), paid),
            "disagreements": (self.number("SELECT count() FROM disagreements FINAL WHERE gone_at = 0"), 0),
        }
        for name, (settled, expected) in found.items():
            if settled != expected:
                raise WrongCount(f"{name} say {settled:,}, the record {expected:,}")

    def bytes_on_disk(self) -> int:
        """What the settled totals take, merged."""
        for table in ("settled_minutes", "settled_fleet"):
            self.store.command(f"OPTIMIZE TABLE {table} FINAL")
        return self.number(
            "SELECT sum(bytes_on_disk) FROM system.parts "
            "WHERE active AND database = 'settle' AND startsWith(table, 'settled_')"
        )


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def measure(options: argparse.Namespace, folder: Path) -> list[Result]:
    """Fill, settle, add late blocks, settle again."""
    scene = Scene(folder, options)
    try:
        minutes = range(_FIRST_MINUTE, _FIRST_MINUTE + options.minutes)
        starts = range(0, 60, _FLUSH_S)
        rows = options.decisions // options.minutes // len(starts)
        for minute in minutes:
            for start_s in starts:
                scene.flush(minute, start_s, rows)
        scene.surround()
        millions = rows * len(starts) * options.minutes / 1e6
        here_s, there_s, wall_s = scene.settle()
        peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        scene.check()
        cells, grants = (scene.number(f"SELECT count() FROM {table}") for table in ("settled_minutes", "grant_minutes"))
        size = scene.bytes_on_disk()
        for minute in minutes:
            scene.flush(minute, 0, _LATE)
        scene.count_live()
        late_s = sum(scene.settle()[:2])
        scene.check()
    finally:
        scene.store.close()
        scene.engine.stop()
    return [
        Result("round_cpu_s_per_million", (here_s + there_s) / millions, "s", must="<= 1.0", goal="<= 0.5"),
        Result("round_of_the_settler_cpu_s_per_million", here_s / millions, "s"),
        Result("round_of_the_database_cpu_s_per_million", there_s / millions, "s"),
        Result("round_decisions_per_s", millions * 1e6 / wall_s, "/s"),
        Result("round_again_cpu_s_per_million", late_s / millions, "s"),
        Result("settler_peak_mb", peak_mb, "MB"),
        Result("cells_per_decision", cells / millions / 1e6, "×"),
        Result("grants_per_decision", grants / millions / 1e6, "×"),
        Result("settled_bytes_per_decision", size / millions / 1e6, "B"),
        Result("settled_bytes_per_cell", size / cells, "B"),
    ]


def main(words: Sequence[str] | None = None) -> int:
    """Measure, print, and write what was asked for."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.settle", description=(__doc__ or "").partition(":")[0])
    parser.add_argument("--decisions", type=int, default=4_000_000, metavar="N", help="in all (%(default)s)")
    parser.add_argument("--minutes", type=int, default=2, metavar="N", help="that they are spread over (%(default)s)")
    parser.add_argument("--callers", type=int, default=20_000, metavar="N", help="(%(default)s)")
    parser.add_argument("--copies", type=int, default=240, metavar="N", help="(%(default)s)")
    parser.add_argument("--k", type=int, default=4, metavar="N", help="copies that each caller reaches (%(default)s)")
    parser.add_argument("--scopes", type=int, default=12, metavar="N", help="(%(default)s)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there")
    options = parser.parse_args(words)
    with tempfile.TemporaryDirectory(prefix="tallygate-settle-") as folder:
        results = measure(options, Path(folder))
    write(results, options.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
