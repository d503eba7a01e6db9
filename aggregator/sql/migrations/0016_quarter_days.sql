-- The quarters of a day in a few rows of a caller: a page of thirty days reads some hundred rows in place of tens of
-- thousands, and few columns, for what a page costs is columns times parts. Made of the table quarters whenever quarters of a
-- day are rolled up; totals under an identity, the highest version is current. A day has four parts of six hours, so that a
-- quarter that is rolled up makes one of them anew and not the day.
--
-- at: quarters of the day (0 to 95) that a row speaks of, ascending. names: of what. numbers: for each name, one after the
-- other, a number for each quarter of at; a name whose numbers are all 0 is left out.
--
-- kind total:     what all scopes together have; names are the columns of quarters
-- kind caller:    reached, k_counted, busiest_minute, …, of quarters of that kind
-- kind plan:      scope = a plan: in which quarters it was the caller's; rate_per_s (its bits) and burst
-- kind copies:    names = copies; numbers: bits of the quarters in which each was reached, first 0 to 63 of all, then 64 to
--                 95 of all; no at
-- kind endpoints: names = scopes; numbers: the ten counts of the whole part in the order of the columns of quarters, offered of
--                 all scopes first; no at
-- kind usage:     scope: the same as total for one scope, of which pages read days that lie in their span in part only
CREATE TABLE IF NOT EXISTS quarter_days (
    caller LowCardinality(String),
    kind Enum8('total' = 1, 'caller' = 2, 'plan' = 3, 'copies' = 4, 'endpoints' = 5, 'usage' = 6),
    day Date CODEC(Delta, ZSTD(1)),
    part UInt8,
    scope LowCardinality(String),
    version UInt64 CODEC(Delta, ZSTD(1)),
    stored_at DateTime64(6, 'UTC') CODEC(Delta, ZSTD(1)),
    at Array(UInt8) CODEC(ZSTD(1)),
    names Array(LowCardinality(String)) CODEC(ZSTD(1)),
    numbers Array(UInt64) CODEC(T64, ZSTD(1))
) ENGINE = ReplacingMergeTree(version)
PARTITION BY toYYYYMM(day)
ORDER BY (caller, kind, day, part, scope)
TTL day + INTERVAL 400 DAY
SETTINGS ttl_only_drop_parts = 1, auto_statistics_types = '', index_granularity = 256;

-- Of quarters only those of a few hours are read now, of all callers, so a day has a partition of its own: in one of a month
-- all of it had to be read for that. What it holds is rolled up once more.
DROP TABLE IF EXISTS quarters;

CREATE TABLE IF NOT EXISTS quarters (
    caller LowCardinality(String),
    quarter DateTime('UTC') CODEC(Delta, ZSTD(1)),
    kind Enum8('usage' = 1, 'caller' = 2),
    scope LowCardinality(String),
    version UInt64 CODEC(Delta, ZSTD(1)),
    stored_at DateTime64(6, 'UTC') CODEC(Delta, ZSTD(1)),
    offered UInt64 CODEC(T64, ZSTD(1)),
    admitted UInt64 CODEC(T64, ZSTD(1)),
    refused_spent UInt64 CODEC(T64, ZSTD(1)),
    refused_never UInt64 CODEC(T64, ZSTD(1)),
    refused_emergency UInt64 CODEC(T64, ZSTD(1)),
    refused_closed UInt64 CODEC(T64, ZSTD(1)),
    refused_ceiling UInt64 CODEC(T64, ZSTD(1)),
    degraded UInt64 CODEC(T64, ZSTD(1)),
    cost_offered UInt64 CODEC(T64, ZSTD(1)),
    cost_admitted UInt64 CODEC(T64, ZSTD(1)),
    plan LowCardinality(String),
    rate_per_s Float64 CODEC(ZSTD(1)),
    burst UInt64 CODEC(T64, ZSTD(1)),
    copies Array(LowCardinality(String)) CODEC(ZSTD(1)),
    reached UInt64 CODEC(T64, ZSTD(1)),
    k_counted UInt32 CODEC(T64, ZSTD(1)),
    busiest_minute UInt64 CODEC(T64, ZSTD(1)),
    busiest_minute_at DateTime('UTC') CODEC(Delta, ZSTD(1)),
    busiest_second UInt64 CODEC(T64, ZSTD(1)),
    busiest_second_at DateTime('UTC') CODEC(Delta, ZSTD(1)),
    second_at_most UInt64 CODEC(T64, ZSTD(1))
) ENGINE = ReplacingMergeTree(version)
PARTITION BY toDate(quarter)
ORDER BY (caller, quarter, kind, scope)
TTL quarter + INTERVAL 400 DAY
SETTINGS ttl_only_drop_parts = 1, auto_statistics_types = '';

-- by_day: whether quarter_days has the quarter too. False in rows of before, so that these are rolled up once more.
ALTER TABLE rolled_quarters ADD COLUMN IF NOT EXISTS by_day Bool;
