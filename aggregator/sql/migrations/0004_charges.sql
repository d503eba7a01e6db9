-- Several limits on one request, and costs that changed after the fact.

-- charges: further grants that paid for an admitted decision, beside grant_id; empty for nearly all.
ALTER TABLE decisions ADD COLUMN IF NOT EXISTS
    charges Array(Tuple(subject String, limit String, grant_id UInt64)) CODEC(ZSTD(1)) AFTER k;

-- adjusted_tokens: the part of the total that no decision names: charged after the fact, less what was refunded.
ALTER TABLE settlements ADD COLUMN IF NOT EXISTS adjusted_tokens Int64 DEFAULT 0 CODEC(ZSTD(1)) AFTER spent_tokens;

-- cost_changes: totals of a copy's epoch for one caller and scope; the one with the most requests is the last.
CREATE TABLE IF NOT EXISTS cost_changes (
    caller LowCardinality(String),
    scope LowCardinality(String),
    copy_id LowCardinality(String),
    epoch UInt64,
    requests UInt64,
    charged_tokens UInt64,
    refunded_tokens UInt64,
    at DateTime64(6, 'UTC'),
    log_partition UInt16,
    log_offset UInt64
) ENGINE = ReplacingMergeTree
PARTITION BY toYYYYMM(at)
ORDER BY (caller, scope, copy_id, epoch, requests);
