-- What pages of a day and more are made from: totals of quarters of an hour, the step in which every time zone can be cut
-- (docs/operations/queries.md). Made of what is settled by the settler once a quarter is over, and again whenever one of its
-- minutes changes. Totals under an identity; the highest version is current. version = a position in the log, as in
-- settled_minutes.
--
-- kind usage:  caller, quarter, scope -> counts, sums of the current settled minutes
-- kind caller: caller, quarter -> plan, rate_per_s, burst, copies and k as the live totals have them; reached: the most copies
--              in one minute; busiest_minute, busiest_second: the most requests in one, and when that was first. The second
--              is counted by the replay of the caller's bucket. second_at_most: 0, or where that is not the whole truth
--              (requests that further limits refused, a bucket that could not be replayed) how many requests a second may
--              have had: then the exact record has to be asked.
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
PARTITION BY toYYYYMM(quarter)
ORDER BY (caller, quarter, kind, scope)
TTL quarter + INTERVAL 400 DAY
SETTINGS ttl_only_drop_parts = 1, auto_statistics_types = '';

-- rolled_quarters: which quarters the table above holds, of all callers. Where whole is false, or there is no row, pages
-- read the minutes.
CREATE TABLE IF NOT EXISTS rolled_quarters (
    quarter DateTime('UTC'),
    version UInt64,
    stored_at DateTime64(6, 'UTC'),
    whole Bool
) ENGINE = ReplacingMergeTree(version)
PARTITION BY toYYYYMM(quarter)
ORDER BY quarter
TTL quarter + INTERVAL 400 DAY
SETTINGS ttl_only_drop_parts = 1;

-- silent: how many of the missing numbers no loss record of their life names. Of older rows all, until the settler looks again.
ALTER TABLE missing_minutes ADD COLUMN IF NOT EXISTS silent UInt64 DEFAULT missing;

-- The blocks of a copy lie together in the order in which they were sealed: those of a minute are found without reading a month.
ALTER TABLE blocks ADD INDEX IF NOT EXISTS by_sealed sealed_at TYPE minmax GRANULARITY 1;
