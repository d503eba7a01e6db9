-- fairness: what the exact bucket, replayed over a caller's decisions, says of each minute: which refusals were inside
-- the plan and why they were made, what was admitted beyond it, and what was declared that might be (docs/fairness.md).
-- One row a bucket and minute with decisions, and a total under that identity; the highest version is current.
-- version = a position in the log, as in settled_minutes.
--
-- judged is false where a bucket cannot be replayed (a quota, a limit that callers share, terms that are not on record):
-- such a row counts and says nothing of wrongful or excess.
-- levels, marks: the state of the bucket after the minute's last decision, from which the next minute goes on; until
-- full_at. They are of no use once the raw decisions of the minute after are gone.
-- caller first: an audit and a page read one caller's span. by_full finds the states that still matter.
CREATE TABLE IF NOT EXISTS fairness (
    caller LowCardinality(String),
    limit LowCardinality(String),
    minute DateTime('UTC') CODEC(Delta, ZSTD(1)),
    version UInt64 CODEC(Delta, ZSTD(1)),
    stored_at DateTime64(6, 'UTC') CODEC(Delta, ZSTD(1)),
    judged Bool CODEC(ZSTD(1)),
    rate_per_s Float64 CODEC(ZSTD(1)),
    burst UInt32 CODEC(T64, ZSTD(1)),
    offered UInt64 CODEC(T64, ZSTD(1)),
    admitted UInt64 CODEC(T64, ZSTD(1)),
    refused UInt64 CODEC(T64, ZSTD(1)),
    wrongful UInt64 CODEC(T64, ZSTD(1)),
    wrongful_displaced UInt64 CODEC(T64, ZSTD(1)),
    wrongful_cap UInt64 CODEC(T64, ZSTD(1)),
    wrongful_closed UInt64 CODEC(T64, ZSTD(1)),
    wrongful_ceiling UInt64 CODEC(T64, ZSTD(1)),
    wrongful_degraded UInt64 CODEC(T64, ZSTD(1)),
    wrongful_policy UInt64 CODEC(T64, ZSTD(1)),
    wrongful_clock UInt64 CODEC(T64, ZSTD(1)),
    wrongful_divided UInt64 CODEC(T64, ZSTD(1)),
    wrongful_stranded UInt64 CODEC(T64, ZSTD(1)),
    wrongful_stale_empty UInt64 CODEC(T64, ZSTD(1)),
    wrongful_unknown UInt64 CODEC(T64, ZSTD(1)),
    over_admitted UInt64 CODEC(T64, ZSTD(1)),
    excess_tokens Float64 CODEC(ZSTD(1)),
    epsilon_tokens Float64 CODEC(ZSTD(1)),
    early_returns UInt64 CODEC(T64, ZSTD(1)),
    busiest_second UInt32 CODEC(T64, ZSTD(1)),
    busiest_at DateTime('UTC') CODEC(Delta, ZSTD(1)),
    k UInt32 CODEC(T64, ZSTD(1)),
    cost_admitted UInt64 CODEC(T64, ZSTD(1)),
    full_at DateTime64(6, 'UTC') CODEC(Delta, ZSTD(1)),
    levels Array(Float64) CODEC(ZSTD(1)),
    marks Array(Int64) CODEC(ZSTD(1)),
    INDEX by_full full_at TYPE minmax GRANULARITY 1
) ENGINE = ReplacingMergeTree(version)
PARTITION BY toYYYYMM(minute)
ORDER BY (caller, limit, minute)
TTL minute + INTERVAL 400 DAY
SETTINGS ttl_only_drop_parts = 1, auto_statistics_types = '';
