-- The live totals, and the position in the log that they cover, in one table: one INSERT is one part and therefore
-- atomic, so the totals and their offset can never disagree. For the same reason it has no PARTITION BY.
-- Every row is a total under (kind, caller, minute, scope, policy_version, code, copy_id, epoch, log_partition);
-- version = the log offset it covers, plus one, plus the version at which this log began (0, unless the topic was
-- deleted and made anew: then offsets start again and versions go on). A writer that lags writes lower versions, and
-- they lose.
--
-- kind usage:    caller, minute, scope            -> counts
-- kind caller:   caller, minute                   -> copies reached, plan, k as the owner counted it
-- kind fleet:    minute, scope, policy_version, code -> counts
-- kind copy:     copy_id, epoch                   -> next_seq, sealed_at: how far a copy's record is complete
-- kind progress: log_partition, scope = the log's identity (topic id) -> version, next_seq = the version it began at
--
-- (kind, caller, minute) first: a page reads one caller's span; fleet rows have caller '' and read as a span too.
-- by_minute lets a worker that takes a partition over find one minute of all callers without reading their past.
CREATE TABLE IF NOT EXISTS live (
    kind Enum8('usage' = 1, 'caller' = 2, 'fleet' = 3, 'copy' = 4, 'progress' = 5),
    caller LowCardinality(String),
    minute DateTime('UTC') CODEC(Delta, ZSTD(1)),
    scope LowCardinality(String),
    policy_version UInt32,
    code UInt8,
    copy_id LowCardinality(String),
    epoch UInt64,
    log_partition UInt16,
    version UInt64 CODEC(Delta, ZSTD(1)),
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
    copies Array(LowCardinality(String)),
    plan LowCardinality(String),
    rate_per_s Float64,
    burst UInt64,
    k_counted UInt32,
    next_seq UInt64,
    sealed_at DateTime64(6, 'UTC'),
    INDEX by_minute minute TYPE minmax GRANULARITY 1
) ENGINE = ReplacingMergeTree(version)
ORDER BY (kind, caller, minute, scope, policy_version, code, copy_id, epoch, log_partition)
TTL minute + INTERVAL 400 DAY DELETE WHERE kind IN ('usage', 'caller', 'fleet');
