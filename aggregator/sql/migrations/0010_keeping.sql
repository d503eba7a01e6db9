-- What is kept for how long, what was dropped by hand, and what was erased on a caller's request.

-- retention: the retention that was in force from applied_at on. What is gone follows from all rows together: a longer one
-- brings nothing back.
CREATE TABLE IF NOT EXISTS retention (
    applied_at DateTime64(6, 'UTC'),
    admitted_days UInt32,
    refused_days UInt32,
    minutes_days UInt32,
    days_years UInt32
) ENGINE = ReplacingMergeTree
ORDER BY applied_at;

-- retention_drops: months of the raw record that were dropped by hand, written before anything is dropped.
CREATE TABLE IF NOT EXISTS retention_drops (
    month Date,
    dropped_at DateTime64(6, 'UTC')
) ENGINE = ReplacingMergeTree
ORDER BY (month, dropped_at);

-- erasures: what was erased, without whose it was: who_hash is BLAKE2b-128 of the caller's name under the row's own salt, so
-- that "was this caller erased?" can be answered to those who have the name. One row a state that an erasure has
-- reached: begun (nothing was touched), listed (erased_blocks is complete), done. tables, removed: rows that each table had.
CREATE TABLE IF NOT EXISTS erasures (
    erasure_id UInt64,
    state Enum8('begun' = 1, 'listed' = 2, 'done' = 3),
    stated_at DateTime64(6, 'UTC'),
    erased_before DateTime64(6, 'UTC'),
    salt FixedString(16),
    who_hash FixedString(16),
    requested_by String,
    reason String,
    tables Array(String),
    removed Array(UInt64)
) ENGINE = ReplacingMergeTree(stated_at)
ORDER BY (erasure_id, state);

-- erased_blocks: which decisions of which block are gone, as ranges of their numbers: firsts[i] and the counts[i] - 1 after
-- it. What is gone of an epoch is the union of all of its rows: a block may have several, and two may say the same.
CREATE TABLE IF NOT EXISTS erased_blocks (
    copy_id LowCardinality(String),
    epoch UInt64,
    first_seq UInt64,
    log_partition UInt16,
    log_offset UInt64,
    erasure_id UInt64,
    decisions UInt32,
    firsts Array(UInt64),
    counts Array(UInt32)
) ENGINE = ReplacingMergeTree(decisions)
ORDER BY (copy_id, epoch, first_seq, log_partition, log_offset, erasure_id);

-- erasing: the name of a caller while it is being erased, so that no statement, and no list of statements, has to say it.
-- Empty at all other times.
CREATE TABLE IF NOT EXISTS erasing (
    erasure_id UInt64,
    caller String
) ENGINE = MergeTree
PARTITION BY erasure_id
ORDER BY caller;
