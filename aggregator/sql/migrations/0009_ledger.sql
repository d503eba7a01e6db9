-- The ledger, kept: what became of the tokens that were lent in each hour, and which decisions are missing on record. Both
-- are recounted by the settler as minutes close, and versioned as the settled totals are; docs/ledger.md has the terms.

-- grant_minutes: what the decisions of one minute took of each grant. So that the ledger of an hour is a sum over its minutes,
-- and not a second reading of all its decisions.
CREATE TABLE IF NOT EXISTS grant_minutes (
    caller LowCardinality(String),
    limit LowCardinality(String),
    grant_id UInt64 CODEC(Delta, ZSTD(1)),
    minute DateTime('UTC') CODEC(Delta, ZSTD(1)),
    version UInt64 CODEC(Delta, ZSTD(1)),
    spent UInt64 CODEC(T64, ZSTD(1))
) ENGINE = ReplacingMergeTree(version)
PARTITION BY toYYYYMM(minute)
ORDER BY (caller, limit, grant_id, minute)
SETTINGS ttl_only_drop_parts = 1, auto_statistics_types = '';

-- ledger_hours: the grants that were lent in an hour. All versions are kept: the highest (version, stored_at) is current.
-- granted = spent + returned + credited + outstanding + missing - surplus.
CREATE TABLE IF NOT EXISTS ledger_hours (
    caller LowCardinality(String),
    limit LowCardinality(String),
    hour DateTime('UTC') CODEC(Delta, ZSTD(1)),
    version UInt64 CODEC(Delta, ZSTD(1)),
    stored_at DateTime64(6, 'UTC') CODEC(Delta, ZSTD(1)),
    grants UInt64 CODEC(T64, ZSTD(1)),
    granted Int64 CODEC(T64, ZSTD(1)),
    spent Int64 CODEC(T64, ZSTD(1)),
    returned Int64 CODEC(T64, ZSTD(1)),
    credited Int64 CODEC(T64, ZSTD(1)),
    outstanding Int64 CODEC(T64, ZSTD(1)),
    missing Int64 CODEC(T64, ZSTD(1)),
    surplus Int64 CODEC(T64, ZSTD(1)),
    adjusted Int64 CODEC(T64, ZSTD(1)),
    given_back_and_spent Int64 CODEC(T64, ZSTD(1)),
    not_on_record UInt64 CODEC(T64, ZSTD(1)),
    spent_not_on_record Int64 CODEC(T64, ZSTD(1))
) ENGINE = ReplacingMergeTree
PARTITION BY toYYYYMM(hour)
ORDER BY (caller, limit, hour, version, stored_at)
TTL hour + INTERVAL 400 DAY
SETTINGS ttl_only_drop_parts = 1, auto_statistics_types = '';

-- missing_minutes: decisions that no block holds, before the blocks that a copy sealed in a minute; those that it said it
-- lost included. Written where there are any, and again where that changed.
CREATE TABLE IF NOT EXISTS missing_minutes (
    minute DateTime('UTC'),
    copy_id LowCardinality(String),
    epoch UInt64,
    version UInt64,
    stored_at DateTime64(6, 'UTC'),
    missing UInt64
) ENGINE = ReplacingMergeTree
PARTITION BY toYYYYMM(minute)
ORDER BY (minute, copy_id, epoch, version, stored_at)
TTL minute + INTERVAL 400 DAY
SETTINGS ttl_only_drop_parts = 1;
