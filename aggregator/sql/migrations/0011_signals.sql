-- What the second stage of the live figures needs, and the table that it writes.
--
-- live, kind usage: early_returns = decisions before the Retry-After of the caller's last refusal in this scope and
-- minute had passed; told_at_us, told_until_us = when that refusal was, and until when not to come back (unix µs).
-- live, kind copy: shift_us = what was added to the times of its last block, because its clock was wrong.
-- live, kind progress: sent = the version up to which the second stage was told.
ALTER TABLE live
    ADD COLUMN IF NOT EXISTS early_returns UInt64 CODEC(T64, ZSTD(1)) AFTER degraded,
    ADD COLUMN IF NOT EXISTS told_at_us UInt64 CODEC(T64, ZSTD(1)),
    ADD COLUMN IF NOT EXISTS told_until_us UInt64 CODEC(T64, ZSTD(1)),
    ADD COLUMN IF NOT EXISTS shift_us Int64,
    ADD COLUMN IF NOT EXISTS sent UInt64;

-- What the second stage says, minute by minute, over all partitions of the decisions topic.
-- Every row is a function of the totals that stand behind it; version = the sum of their versions, which are positions
-- in the log. So whoever writes late knows less, and loses. log_partition is that of the usage topic.
--
-- kind caller: minute, caller  -> its totals, k, and base_… = the same of the ten minutes before, as one sum;
--              only callers with a refusal, an early return, or more requests than TALLYGATE_SIGNALS_FLOOR
-- kind hot:    minute, place 1 to 10 -> name and totals of the callers with most requests in this partition
-- kind fleet:  minute -> totals of all callers of this partition, and of the anonymous ones
CREATE TABLE IF NOT EXISTS signals (
    kind Enum8('caller' = 1, 'hot' = 2, 'fleet' = 3),
    minute DateTime('UTC') CODEC(Delta, ZSTD(1)),
    caller String CODEC(ZSTD(1)),
    place UInt8,
    log_partition UInt16,
    version UInt64 CODEC(ZSTD(1)),
    name String CODEC(ZSTD(1)),
    offered UInt64 CODEC(T64, ZSTD(1)),
    admitted UInt64 CODEC(T64, ZSTD(1)),
    refused_spent UInt64 CODEC(T64, ZSTD(1)),
    refused_never UInt64 CODEC(T64, ZSTD(1)),
    refused_emergency UInt64 CODEC(T64, ZSTD(1)),
    refused_closed UInt64 CODEC(T64, ZSTD(1)),
    refused_ceiling UInt64 CODEC(T64, ZSTD(1)),
    degraded UInt64 CODEC(T64, ZSTD(1)),
    early_returns UInt64 CODEC(T64, ZSTD(1)),
    cost_offered UInt64 CODEC(T64, ZSTD(1)),
    cost_admitted UInt64 CODEC(T64, ZSTD(1)),
    k UInt32 CODEC(T64, ZSTD(1)),
    k_counted UInt32 CODEC(T64, ZSTD(1)),
    base_minutes UInt8,
    base_offered UInt64 CODEC(T64, ZSTD(1)),
    base_refused UInt64 CODEC(T64, ZSTD(1)),
    callers UInt64,
    callers_refused UInt64,
    anonymous_offered UInt64,
    anonymous_refused UInt64
) ENGINE = ReplacingMergeTree(version)
ORDER BY (kind, minute, caller, place, log_partition)
TTL minute + INTERVAL 3 DAY DELETE WHERE kind = 'caller', minute + INTERVAL 28 DAY DELETE WHERE kind IN ('hot', 'fleet')
SETTINGS auto_statistics_types = '';
