"""Fairness alone on the embedded engine: reading a minute of everybody's decisions, replaying them, writing the rows.

20,000 callers over four copies each; one in two hundred floods a small plan and is refused three times in four.
Minutes are filled in flushes, as the recorder stores them. CPU time is that of the database, whose merges go on
meanwhile, and of the pass. Counts that do not agree with what was filled in, and a repetition that writes anything,
fail the run.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

from aggregator.core.settled.settling import MINUTE_US
from aggregator.migrate import migrate
from aggregator.settler.passes.due import Due
from aggregator.settler.passes.fairness import Fairness
from aggregator.settler.passes.minutes import MinutesPass
from aggregator.store import ColumnStore
from aggregator.store_clickhouse import ClickHouseStore
from benchmarks.pipeline.measures import cpu_s
from benchmarks.report import Result, WrongCount
from tallygate.engines.clickhouse import start_clickhouse

_FIRST_MINUTE = 29_833_920
_CALLERS, _COPIES, _FLOODS = 20_000, 240, 200
_FLUSH = 500_000
_FILL = """
INSERT INTO decisions (
    caller, at, copy_id, epoch, seq, scope, limit, plan, allowed, source, reason, cost_tokens, retry_after_ms,
    policy_version, grant_id, k, log_partition, log_offset
)
WITH cityHash64(number, {offset:UInt64}) AS chance, chance % {callers:UInt32} AS caller_no,
    caller_no % {floods:UInt32} = 0 AS floods, floods AND number % 4 != 0 AS refused
SELECT concat('caller-', toString(caller_no)),
    fromUnixTimestamp64Micro({start_us:Int64} + intDiv(number * {span_us:UInt64}, {rows:UInt64}), 'UTC'),
    concat('gw-', toString((caller_no * 7 + intDiv(chance, {callers:UInt32}) % 4) % {copies:UInt32})), 1,
    {offset:UInt64} * 1000000 + number, 'GET /', 'rate', if(floods, 'small', 'standard'), NOT refused, 'local',
    if(refused, 'spent', 'none'), 1, if(refused, 250, 0), 1, 1000 + intDiv(number, 50), 4, 0, {offset:UInt64}
FROM numbers({rows:UInt64})
SETTINGS max_insert_block_size = 1000001, min_insert_block_size_rows = 1000001, min_insert_block_size_bytes = 0,
    optimize_on_insert = 0
"""
_TERMS = """
INSERT INTO terms (caller, limit, policy_version, plan, rate_per_s, burst)
SELECT concat('caller-', toString(number)), 'rate', 1, if(number % {floods:UInt32} = 0, 'small', 'standard'),
    if(number % {floods:UInt32} = 0, 1, 100), if(number % {floods:UInt32} = 0, 2, 200)
FROM numbers({callers:UInt64})
"""


def results(decisions: int, minutes: int) -> list[Result]:
    """Fill so many decisions a minute, settle the minutes one after the other, and once more."""
    with tempfile.TemporaryDirectory() as folder:
        engine = start_clickhouse(Path(folder))
        try:
            dsn = engine.dsn_for("fairness")
            migrate(dsn)
            with closing(ClickHouseStore.connect(dsn, answer_timeout_s=600)) as store:
                return _measured(store, engine.child.pid, decisions, minutes)
        finally:
            engine.stop()


def _measured(store: ColumnStore, engine_pid: int, decisions: int, minutes: int) -> list[Result]:
    sizes = {"callers": _CALLERS, "copies": _COPIES, "floods": _FLOODS}
    store.command(_TERMS, sizes)
    for minute in range(minutes):
        _fill(store, _FIRST_MINUTE + minute, decisions, sizes)
    pass_ = MinutesPass([], Fairness())
    first = _settle(store, engine_pid, pass_, minutes, version=1)
    _check(store, decisions * minutes)
    again = _settle(store, engine_pid, pass_, minutes, version=2)
    if store.rows("SELECT count() FROM fairness WHERE version = 2")[0][0]:
        raise WrongCount("settling the same again wrote rows")
    millions = decisions * minutes / 1e6
    size, rows = store.rows(
        "SELECT sum(bytes_on_disk), sum(rows) FROM system.parts WHERE active AND table = 'fairness' "
        "AND database = currentDatabase()"
    )[0]
    return [
        Result("pass_cpu_s_per_million", sum(first[:2]) / millions, "s"),
        Result("pass_of_this_process_cpu_s_per_million", first[0] / millions, "s"),
        Result("pass_of_the_database_cpu_s_per_million", first[1] / millions, "s"),
        Result("pass_again_cpu_s_per_million", sum(again[:2]) / millions, "s"),
        Result("pass_wall_s_per_million", first[2] / millions, "s"),
        Result("row_bytes", size / rows, "B"),
    ]


def _fill(store: ColumnStore, minute: int, decisions: int, sizes: Mapping[str, Any]) -> None:
    flushes = -(-decisions // _FLUSH)
    span_us = MINUTE_US // flushes
    for number in range(flushes):
        rows = min(_FLUSH, decisions - number * _FLUSH)
        place = {"start_us": minute * MINUTE_US + number * span_us, "span_us": span_us, "rows": rows}
        store.command(_FILL, {**sizes, **place, "offset": minute * 1_000 + number})


def _settle(
    store: ColumnStore, engine_pid: int, pass_: MinutesPass, minutes: int, *, version: int
) -> tuple[float, float, float]:
    """CPU seconds here and of the database, and seconds by the clock."""
    here, there, started = process_time(), cpu_s(engine_pid), perf_counter()
    for minute in range(minutes):
        pass_.settle(store, Due([_FIRST_MINUTE + minute], version, 0))
    return process_time() - here, cpu_s(engine_pid) - there, perf_counter() - started


def _check(store: ColumnStore, decisions: int) -> None:
    found = store.rows("SELECT sum(offered), sum(refused), uniqExact(caller), sum(wrongful) FROM fairness FINAL")[0]
    raw = store.rows("SELECT count(), countIf(NOT allowed), uniqExact(caller) FROM decisions FINAL")[0]
    if tuple(found[:3]) != tuple(raw) or raw[0] != decisions or not found[3]:
        raise WrongCount(f"offered, refused, callers are {found[:3]}; in the record {raw}, of {decisions}")
