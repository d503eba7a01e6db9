-- The exact record. Every row is a statement under an identity that stands in the sort key, so writing it twice
-- writes the same answer; read with FINAL. One INSERT carries rows of one day: one part, atomic.

-- decisions: (caller, at) first because one caller's timeline must be one sorted run; the identity
-- (copy_id, epoch, seq) ends the key. partition/offset say where in the log the row came from.
CREATE TABLE IF NOT EXISTS decisions (
    caller LowCardinality(String),
    at DateTime64(6, 'UTC') CODEC(Delta, ZSTD(1)),
    copy_id LowCardinality(String),
    epoch LowCardinality(UInt64),
    seq UInt64 CODEC(Delta, ZSTD(1)),
    scope LowCardinality(String),
    limit LowCardinality(String),
    plan LowCardinality(String),
    allowed Bool,
    source Enum8('local' = 0, 'shared' = 1, 'degraded' = 2, 'cap' = 3),
    reason Enum8('none' = 0, 'spent' = 1, 'never' = 2, 'emergency' = 3, 'closed' = 4, 'ceiling' = 5),
    cost_tokens UInt32 CODEC(T64, ZSTD(1)),
    remaining_tokens Int64 CODEC(T64, ZSTD(1)),
    retry_after_ms Int32 CODEC(T64, ZSTD(1)),
    policy_version UInt32 CODEC(T64, ZSTD(1)),
    grant_id UInt64 CODEC(Delta, ZSTD(1)),
    k UInt32 CODEC(T64, ZSTD(1)),
    log_partition UInt16 CODEC(ZSTD(1)),
    log_offset UInt64 CODEC(Delta, ZSTD(1))
) ENGINE = ReplacingMergeTree
PARTITION BY toDate(at)
ORDER BY (caller, at, copy_id, epoch, seq)
SETTINGS allow_suspicious_low_cardinality_types = 1;

-- blocks: one row a block; gaps, completeness and the hash chain are read here, not from 2,000 times as many rows.
CREATE TABLE IF NOT EXISTS blocks (
    copy_id LowCardinality(String),
    epoch UInt64,
    first_seq UInt64,
    decisions UInt32,
    sealed_at DateTime64(6, 'UTC'),
    prev_hash FixedString(16),
    block_hash FixedString(16),
    log_partition UInt16,
    log_offset UInt64
) ENGINE = ReplacingMergeTree
PARTITION BY toYYYYMM(sealed_at)
ORDER BY (copy_id, epoch, first_seq, decisions, block_hash, sealed_at);

-- grants: one row a grant; grant_id is unique per (caller, limit).
CREATE TABLE IF NOT EXISTS grants (
    caller LowCardinality(String),
    limit LowCardinality(String),
    grant_id UInt64,
    copy_id LowCardinality(String),
    epoch UInt64,
    issued_at DateTime64(6, 'UTC'),
    expires_at DateTime64(6, 'UTC'),
    size_tokens UInt64,
    k UInt32,
    tokens_left Float64,
    policy_version UInt32,
    log_partition UInt16,
    log_offset UInt64
) ENGINE = ReplacingMergeTree
PARTITION BY toYYYYMM(issued_at)
ORDER BY (caller, limit, issued_at, grant_id);

-- settlements: every distinct total that was stated; what was spent of a grant is its largest. Partitioned by the
-- grant's own time, which its id carries, so that a settlement stated twice meets itself.
CREATE TABLE IF NOT EXISTS settlements (
    caller LowCardinality(String),
    limit LowCardinality(String),
    grant_id UInt64,
    spent_tokens UInt64,
    final Bool,
    cause Enum8('ask' = 0, 'idle' = 1, 'close' = 2, 'expiry' = 3, 'credited' = 4),
    copy_id LowCardinality(String),
    epoch UInt64,
    at DateTime64(6, 'UTC'),
    log_partition UInt16,
    log_offset UInt64
) ENGINE = ReplacingMergeTree
PARTITION BY toYYYYMM(fromUnixTimestamp64Micro(toInt64(grant_id), 'UTC'))
ORDER BY (caller, limit, grant_id, cause, final, spent_tokens);

-- control: copy start and stop, changes of degraded state, losses.
CREATE TABLE IF NOT EXISTS control (
    kind LowCardinality(String),
    copy_id LowCardinality(String),
    epoch UInt64,
    at DateTime64(6, 'UTC'),
    body String,
    log_partition UInt16,
    log_offset UInt64
) ENGINE = ReplacingMergeTree
PARTITION BY toYYYYMM(at)
ORDER BY (kind, copy_id, epoch, at, body);

-- dead_letters: messages that could not be read, as they were. Not partitioned: the identity is the position.
CREATE TABLE IF NOT EXISTS dead_letters (
    topic LowCardinality(String),
    log_partition UInt16,
    log_offset UInt64,
    seen_at DateTime64(6, 'UTC'),
    reason String,
    key String,
    payload String CODEC(ZSTD(3))
) ENGINE = ReplacingMergeTree
ORDER BY (topic, log_partition, log_offset);
