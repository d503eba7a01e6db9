"""A month of a large fleet, made inside the database: the exact record, totals by minute, and what says how complete.

Callers are drawn by rank to the power of -0.9, so that the busiest sends four requests in a hundred. Days are written
one after the other, each as one part or a few, as a record that grew has them; the engine merges them as it likes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from aggregator.settler.passes.due import Sliced
from aggregator.settler.quarters import part_of
from aggregator.sql import composed
from aggregator.store import ColumnStore, Store

CALLERS, COPIES, SCOPES, PARTITIONS = 20_000, 240, 12, 4
DAY_S = 86_400
#: Decisions of a block: what a copy makes in a minute, so that there are as many blocks as 50,000,000 decisions have.
BLOCK = 4
#: Of a hundred rows that are not raw decisions.
SHARES = {"usage": 52, "caller": 14, "settled": 20, "signals": 14}
#: How long signals are kept: of callers, and of hot keys and the fleet.
_SIGNAL_DAYS, _FLEET_DAYS = 3, 28

#: The rank of the caller of row `number`, which of its rows it is, and how many it has: rows stand by caller.
_BY_CALLER = """
    pow({callers:UInt32} + 1, 0.1) - 1 AS whole,
    toUInt32(least({callers:UInt32}, floor(pow(1 + number / {rows:UInt64} * whole, 10)))) AS rank,
    toUInt64(ceil({rows:UInt64} * (pow(rank, 0.1) - 1) / whole)) AS first,
    greatest(1, toUInt64(ceil({rows:UInt64} * (pow(rank + 1, 0.1) - 1) / whole)) - first) AS held,
    if(number > first, number - first, 0) AS place,
    intDiv(place * {slots:UInt64}, greatest(held, {slots:UInt64})) AS spread,
    if(held < {slots:UInt64}, intDiv(place * {slots:UInt64}, held), spread) AS slot,
    concat('caller-', toString(rank)) AS name
"""
_WHOLE = """
SETTINGS max_insert_block_size = 2000000, min_insert_block_size_rows = 2000000, min_insert_block_size_bytes = 0,
    optimize_on_insert = 0, max_insert_threads = 1
"""
_DECISIONS = """
INSERT INTO decisions (
    caller, at, copy_id, epoch, seq, scope, limit, plan, allowed, source, reason, cost_tokens, remaining_tokens,
    retry_after_ms, policy_version, grant_id, k, log_partition, log_offset
)
WITH number + {before:UInt64} AS n, cityHash64(n) AS chance,
    pow({callers:UInt32} + 1, 0.1) - 1 AS whole,
    toUInt32(least({callers:UInt32}, floor(pow(1 + chance / exp2(64) * whole, 10)))) AS rank,
    rank % 5 = 0 AND chance % 4 != 0 AS refused,
    {day_s:UInt32} * 1000000 + intDiv(number * 86400000000, {rows:UInt64}) AS at_us
SELECT concat('caller-', toString(rank)), fromUnixTimestamp64Micro(toInt64(at_us), 'UTC'),
    concat('gw-', toString(n % {copies:UInt32})), 1, intDiv(n, {copies:UInt32}),
    concat('GET /v1/', toString(chance % {scopes:UInt32})), 'rate', 'standard', NOT refused, 'local',
    if(refused, 'spent', 'none'), 1, if(refused, 0, chance % 40), if(refused, 1 + chance % 900, 0), 41,
    if(refused, 0, at_us - at_us % 1000000 + rank), 4, n % {partitions:UInt32}, intDiv(n, 1000)
FROM numbers({rows:UInt64})
"""
_USAGE = """
INSERT INTO live (
    kind, caller, minute, scope, log_partition, version, offered, admitted, refused_spent, cost_offered, cost_admitted
)
WITH {by_caller}, 1 + (rank + place) % 50 AS sent, if(rank % 5 = 0, intDiv(sent, 4), 0) AS refused
SELECT 'usage', name, toDateTime({day_s:UInt32} + 60 * intDiv(slot, {scopes:UInt32} * {partitions:UInt32}), 'UTC'),
    concat('GET /v1/', toString(intDiv(slot, {partitions:UInt32}) % {scopes:UInt32})), slot % {partitions:UInt32},
    {day_s:UInt32}, sent, sent - refused, refused, sent, sent - refused
FROM numbers({rows:UInt64})
"""
_CALLER = """
INSERT INTO live (kind, caller, minute, log_partition, version, copies, plan, rate_per_s, burst, k_counted)
WITH {by_caller}
SELECT 'caller', name, toDateTime({day_s:UInt32} + 60 * intDiv(slot, {partitions:UInt32}), 'UTC'),
    slot % {partitions:UInt32}, {day_s:UInt32},
    arrayMap(n -> concat('gw-', toString((rank * 7 + n) % {copies:UInt32})), range(1 + place % 4)), 'standard', 5, 30, 4
FROM numbers({rows:UInt64})
"""
_SETTLED = """
INSERT INTO settled_minutes (
    caller, minute, scope, version, stored_at, offered, admitted, refused_spent, cost_offered, cost_admitted
)
WITH {by_caller}, 1 + (rank + place) % 200 AS sent, if(rank % 5 = 0, intDiv(sent, 4), 0) AS refused,
    toDateTime({day_s:UInt32} + 60 * intDiv(slot, {scopes:UInt32}), 'UTC') AS minute
SELECT name, minute, concat('GET /v1/', toString(slot % {scopes:UInt32})), {day_s:UInt32},
    toDateTime64(minute + INTERVAL 95 SECOND, 6, 'UTC'), sent, sent - refused, refused, sent, sent - refused
FROM numbers({rows:UInt64})
"""
#: As the settler rolls them up, but of the live totals: here the settled ones are rows of their own.
_QUARTERS = """
INSERT INTO quarters (
    kind, caller, quarter, scope, version, offered, admitted, refused_spent, cost_offered, cost_admitted
)
SELECT 'usage', caller, toStartOfFifteenMinutes(minute) AS quarter, scope, {day_s:UInt32}, sum(offered), sum(admitted),
    sum(refused_spent), sum(cost_offered), sum(cost_admitted)
FROM live
WHERE kind = 'usage' AND toDate(minute) = toDate({day_s:UInt32}, 'UTC')
GROUP BY caller, quarter, scope
"""
_CALLER_QUARTERS = """
INSERT INTO quarters (
    kind, caller, quarter, version, plan, rate_per_s, burst, copies, reached, k_counted, busiest_minute,
    busiest_minute_at, busiest_second, busiest_second_at
)
SELECT 'caller', caller, toStartOfFifteenMinutes(minute) AS quarter, {day_s:UInt32}, any(live.plan),
    any(live.rate_per_s), any(live.burst), groupUniqArrayArray(live.copies),
    max(length(live.copies)), max(live.k_counted),
    10 + cityHash64(caller, quarter) % 50, quarter, 1 + cityHash64(caller, quarter) % 9, quarter + 7
FROM live
WHERE kind = 'caller' AND toDate(minute) = toDate({day_s:UInt32}, 'UTC')
GROUP BY caller, quarter
"""
#: All but the last half hour, which the settler has not come to yet.
_ROLLED = """
INSERT INTO rolled_quarters (quarter, version, whole, by_day)
SELECT toDateTime({day_s:UInt32} + 900 * number, 'UTC'), 1, true, true FROM numbers({days:UInt32} * 96 - 2)
"""
_SIGNALS = """
INSERT INTO signals (
    kind, minute, caller, log_partition, version, offered, admitted, refused_spent, cost_offered, cost_admitted, k,
    base_minutes, base_offered, base_refused
)
WITH cityHash64(number) AS chance, 50 + chance % 500 AS sent, chance % 50 AS refused,
    greatest(1, intDiv({rows:UInt64}, 1440)) AS each
SELECT 'caller', toDateTime({day_s:UInt32} + 60 * (intDiv(number, each) % 1440), 'UTC'),
    concat('caller-', toString(1 + (number % each) * 3)), number % {partitions:UInt32}, {day_s:UInt32}, sent,
    sent - refused, refused, sent, sent - refused, 4, 10, 10 * sent, chance % 600
FROM numbers({rows:UInt64})
"""
_FLEET = """
INSERT INTO signals (kind, minute, place, log_partition, version, name, offered, admitted, cost_offered, callers)
WITH intDiv(number, 11 * {partitions:UInt32}) AS minute_no, intDiv(number, {partitions:UInt32}) % 11 AS nth
SELECT if(nth = 0, 'fleet', 'hot'), toDateTime({day_s:UInt32} + 60 * minute_no, 'UTC'), nth,
    number % {partitions:UInt32}, {day_s:UInt32}, if(nth = 0, '', concat('caller-', toString(nth * 4 + number % 4))),
    1000000 - nth * 1000, 900000, 1000000, 20000
FROM numbers(1440 * 11 * {partitions:UInt32})
"""
_BLOCKS = """
INSERT INTO blocks (copy_id, epoch, first_seq, decisions, sealed_at, first_at, last_at, log_partition, log_offset)
WITH number % {copies:UInt32} AS copy, intDiv(number, {copies:UInt32}) * {block:UInt32} AS first,
    least(first + {block:UInt32}, intDiv({decisions:UInt64}, {copies:UInt32})) AS end,
    intDiv({decisions:UInt64}, {days:UInt32}) AS a_day,
    seq -> fromUnixTimestamp64Micro(toInt64(
        ({day_s:UInt32} + 86400 * intDiv(seq * {copies:UInt32} + copy, a_day)) * 1000000
        + intDiv((seq * {copies:UInt32} + copy) % a_day * 86400000000, a_day)
    ), 'UTC') AS decided_at
SELECT concat('gw-', toString(copy)), 1, first, {block:UInt32}, decided_at(end), decided_at(first), decided_at(end - 1),
    copy % {partitions:UInt32}, number
FROM numbers(toUInt64(ceil({decisions:UInt64} / {block:UInt32} / {copies:UInt32})) * {copies:UInt32})
"""
#: Every copy began again each day; its last life is at work, the one before has stopped.
_COPIES = """
INSERT INTO live (kind, copy_id, epoch, log_partition, version, next_seq, sealed_at)
SELECT 'copy', concat('gw-', toString(number % {copies:UInt32})), intDiv(number, {copies:UInt32}),
    number % {partitions:UInt32}, 1, 1000,
    toDateTime64({day_s:UInt32} + 86399 - 86400 * ({days:UInt32} - 1 - intDiv(number, {copies:UInt32})), 6, 'UTC')
FROM numbers({copies:UInt32} * {days:UInt32})
"""
_CONTROL = """
INSERT INTO control (kind, copy_id, epoch, at, body, log_partition, log_offset)
WITH intDiv(number, {copies:UInt32}) AS hour_no
SELECT if(number % 5000 = 0, 'decisions_lost', if(hour_no % 24 = 23, 'copy_stopped', 'anchor')),
    concat('gw-', toString(number % {copies:UInt32})), intDiv(hour_no, 24),
    toDateTime64({day_s:UInt32} + 3600 * hour_no, 6, 'UTC'), '{{"count": 3, "next_seq": 1000}}', 0, number
FROM numbers(({days:UInt32} * 24 - 1) * {copies:UInt32})
"""
_MISSING = """
INSERT INTO missing_minutes (minute, copy_id, epoch, version, stored_at, missing)
SELECT toDateTime({day_s:UInt32} + 60 * 43 * number, 'UTC'), 'gw-1', 1, 1, now64(6), 3 FROM numbers(1000)
"""
_DISAGREEMENTS = """
INSERT INTO disagreements (kind, minute, caller, found_at, gone_at, version)
SELECT 'live', toDateTime({day_s:UInt32} + 60 * number, 'UTC'), concat('caller-', toString(number % 100)), now64(6),
    if(number % 10 = 0, 0, now64(6)), 1
FROM numbers(10000)
"""


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is filled in: raw decisions; rows of totals, settled totals and signals together; over how many days."""

    decisions: int
    rolled: int
    days: int = 30

    def a_day(self, kind: str) -> int:
        """Rows of one kind in one day that has any."""
        days = min(self.days, _SIGNAL_DAYS) if kind == "signals" else self.days
        return max(1, self.rolled * SHARES[kind] // 100 // days)


def fill(store: ColumnStore, sizes: Sizes, first_s: int) -> None:
    """Write all days from `first_s` on, a UTC midnight in unix seconds."""
    fixed = {"callers": CALLERS, "copies": COPIES, "scopes": SCOPES, "partitions": PARTITIONS, "days": sizes.days}
    fixed |= {"decisions": sizes.decisions, "block": BLOCK}
    rows, days = sizes.decisions // sizes.days, Sliced(composed("rollup.sql", "roll_days"))
    for day in range(sizes.days):
        of_day = {**fixed, "day_s": first_s + day * DAY_S}
        _write(store, _DECISIONS, {**of_day, "rows": rows, "before": day * rows})
        _write(store, _USAGE, {**of_day, "rows": sizes.a_day("usage"), "slots": 1440 * SCOPES * PARTITIONS})
        _write(store, _CALLER, {**of_day, "rows": sizes.a_day("caller"), "slots": 1440 * PARTITIONS})
        _write(store, _SETTLED, {**of_day, "rows": sizes.a_day("settled"), "slots": 1440 * SCOPES})
        _write(store, _QUARTERS, of_day)
        _write(store, _CALLER_QUARTERS, of_day)
        for part in range(4):
            span = part_of(int(of_day["day_s"]) * 4 // DAY_S + part)
            days.run(store, {**span, "since": 0, "version": of_day["day_s"], "stored_at_us": 0})
        if day >= sizes.days - _SIGNAL_DAYS:
            _write(store, _SIGNALS, {**of_day, "rows": sizes.a_day("signals")})
        if day >= sizes.days - _FLEET_DAYS:
            _write(store, _FLEET, of_day)
    for statement in (_BLOCKS, _CONTROL, _MISSING, _DISAGREEMENTS, _ROLLED):
        _write(store, statement, {**fixed, "day_s": first_s})
    _write(store, _COPIES, {**fixed, "day_s": first_s + (sizes.days - 1) * DAY_S})


def insert_more(store: Store, rows: int, before: int, at_s: int) -> None:
    """So many decisions more, spread over the day of `at_s` as the others are: an INSERT of a recorder at work."""
    fixed = {"callers": CALLERS, "copies": COPIES, "scopes": SCOPES, "partitions": PARTITIONS}
    _write(store, _DECISIONS, {**fixed, "day_s": at_s, "rows": rows, "before": before})


def _write(store: Store, statement: str, values: Mapping[str, Any]) -> None:
    text = statement.replace("{by_caller}", _BY_CALLER.strip()).replace("{{", "{").replace("}}", "}")
    store.command(text + _WHOLE, {name: value for name, value in values.items() if f"{{{name}:" in text})
