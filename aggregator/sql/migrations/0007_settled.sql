-- The settled totals: what the exact record says of each closed minute, recounted from `decisions` whenever late blocks
-- have changed it. Every version is kept. version = a position in the log (the sum of what the journal `recorded` had
-- reached in every partition before the recount began), so a settler that lags writes lower versions, and they lose.
-- The current totals of a cell are those of its highest (version, stored_at); the totals as they were reported at a time T
-- are the same among the rows with stored_at <= T. A row is written only where totals have changed.
--
-- caller first: a page, a dispute and a bill read one caller's span. Recounts find their minute by the parts' own
-- range of `minute`, and which callers changed by by_version.
CREATE TABLE IF NOT EXISTS settled_minutes (
    caller LowCardinality(String),
    minute DateTime('UTC') CODEC(Delta, ZSTD(1)),
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
    INDEX by_version version TYPE minmax GRANULARITY 1
) ENGINE = ReplacingMergeTree
PARTITION BY toYYYYMM(minute)
ORDER BY (caller, minute, scope, version, stored_at)
TTL minute + INTERVAL 400 DAY
SETTINGS ttl_only_drop_parts = 1, auto_statistics_types = '';

-- settled_fleet: the same decisions without their callers, by what alarms look at.
CREATE TABLE IF NOT EXISTS settled_fleet (
    minute DateTime('UTC') CODEC(Delta, ZSTD(1)),
    scope LowCardinality(String),
    policy_version UInt32,
    source Enum8('local' = 0, 'shared' = 1, 'degraded' = 2, 'cap' = 3),
    reason Enum8('none' = 0, 'spent' = 1, 'never' = 2, 'emergency' = 3, 'closed' = 4, 'ceiling' = 5),
    version UInt64 CODEC(Delta, ZSTD(1)),
    stored_at DateTime64(6, 'UTC') CODEC(Delta, ZSTD(1)),
    offered UInt64 CODEC(T64, ZSTD(1)),
    admitted UInt64 CODEC(T64, ZSTD(1)),
    cost_offered UInt64 CODEC(T64, ZSTD(1)),
    cost_admitted UInt64 CODEC(T64, ZSTD(1))
) ENGINE = ReplacingMergeTree
PARTITION BY toYYYYMM(minute)
ORDER BY (minute, scope, policy_version, source, reason, version, stored_at)
TTL minute + INTERVAL 400 DAY
SETTINGS ttl_only_drop_parts = 1;

-- settled_days: sums of the current settled minutes of a UTC day, written once it is over. They outlive the minutes.
CREATE TABLE IF NOT EXISTS settled_days (
    caller LowCardinality(String),
    day Date CODEC(Delta, ZSTD(1)),
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
    cost_admitted UInt64 CODEC(T64, ZSTD(1))
) ENGINE = ReplacingMergeTree
PARTITION BY toYear(day)
ORDER BY (caller, day, scope, version, stored_at);

-- settled_progress: everything that the journal says up to these positions is settled, except what is listed as still to be
-- done. One row, written after the passes of a round: a settler that is killed before repeats the round.
-- minutes: unix minutes that are dirty; days: unix days whose minutes changed at or after a version;
-- unchecked: unix minutes that are settled and not yet compared with the live totals.
CREATE TABLE IF NOT EXISTS settled_progress (
    name LowCardinality(String),
    version UInt64,
    stored_at DateTime64(6, 'UTC'),
    positions Array(Tuple(log_id String, log_partition UInt16, next_offset UInt64)),
    minutes Array(UInt32),
    days Array(Tuple(day UInt32, since UInt64)),
    unchecked Array(UInt32)
) ENGINE = ReplacingMergeTree(version)
ORDER BY name;

-- disagreements: where the live totals stayed apart from the settled ones although both had read the same log ('live'),
-- and minutes that changed after their raw decisions may have been deleted, so that they were not recounted
-- ('too_late', without a caller). gone_at is 1970 as long as it lasts.
CREATE TABLE IF NOT EXISTS disagreements (
    kind Enum8('live' = 1, 'too_late' = 2),
    minute DateTime('UTC'),
    caller LowCardinality(String),
    found_at DateTime64(6, 'UTC'),
    gone_at DateTime64(6, 'UTC'),
    live_offered UInt64,
    live_admitted UInt64,
    settled_offered UInt64,
    settled_admitted UInt64,
    version UInt64
) ENGINE = ReplacingMergeTree(gone_at)
PARTITION BY toYYYYMM(minute)
ORDER BY (kind, minute, caller, found_at);
