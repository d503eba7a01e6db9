-- What the exact record needs to be asked when it was, and to be checked: the time that was corrected, the copies' own
-- totals, when each block was stored, which log it stood in, and a journal of flushes.

-- first_at, last_at: of the decisions, at the times that count; sealed_at where there are none, and in older rows.
-- shift_us: what was added to the copy's own times (sealed_at - shift_us is its own). stored_at: 1970 in older rows.
-- admitted_total, refused_total, cost_total: what the copy itself had counted in its epoch up to the end of the block,
-- lost decisions included; 0 where the layout has none. refused, cost_admitted: of the block's own decisions.
-- log_id: the topic's own id, another one after it was deleted and made anew; empty in older rows.
ALTER TABLE blocks
    ADD COLUMN IF NOT EXISTS first_at DateTime64(6, 'UTC') DEFAULT sealed_at CODEC(Delta, ZSTD(1)),
    ADD COLUMN IF NOT EXISTS last_at DateTime64(6, 'UTC') DEFAULT sealed_at CODEC(Delta, ZSTD(1)),
    ADD COLUMN IF NOT EXISTS shift_us Int64 CODEC(T64, ZSTD(1)),
    ADD COLUMN IF NOT EXISTS owner_offset_us Nullable(Int64),
    ADD COLUMN IF NOT EXISTS clock_offset_ns Int64 CODEC(Delta, ZSTD(1)),
    ADD COLUMN IF NOT EXISTS layout_version UInt16,
    ADD COLUMN IF NOT EXISTS admitted_total UInt64 CODEC(Delta, ZSTD(1)),
    ADD COLUMN IF NOT EXISTS refused_total UInt64 CODEC(Delta, ZSTD(1)),
    ADD COLUMN IF NOT EXISTS cost_total UInt64 CODEC(Delta, ZSTD(1)),
    ADD COLUMN IF NOT EXISTS refused UInt32 CODEC(T64, ZSTD(1)),
    ADD COLUMN IF NOT EXISTS cost_admitted UInt64 CODEC(T64, ZSTD(1)),
    ADD COLUMN IF NOT EXISTS stored_at DateTime64(6, 'UTC') CODEC(Delta, ZSTD(1)),
    ADD COLUMN IF NOT EXISTS log_id LowCardinality(String),
    MODIFY ORDER BY (
        copy_id, epoch, first_seq, decisions, block_hash, sealed_at, log_partition, log_offset, log_id
    );

-- Offsets begin again in a log that was made anew: without its id a letter would take the place of an older one.
ALTER TABLE dead_letters
    ADD COLUMN IF NOT EXISTS log_id LowCardinality(String),
    MODIFY ORDER BY (topic, log_partition, log_offset, log_id);

-- redriven: letters that were given to the log again, as they were or repaired: no longer open. by: who did it;
-- to_partition, to_offset: where they stand now.
CREATE TABLE IF NOT EXISTS redriven (
    topic LowCardinality(String),
    log_partition UInt16,
    log_offset UInt64,
    log_id LowCardinality(String),
    redriven_at DateTime64(6, 'UTC'),
    by String,
    repaired Bool,
    to_partition UInt16,
    to_offset UInt64
) ENGINE = ReplacingMergeTree
ORDER BY (topic, log_partition, log_offset, log_id);

-- terms: what the limit that decisions of a caller name was held to: the plan's rate as sold, its burst, and the
-- calendar of a quota (per), whose amount is the burst. The position is that of a block that shows it.
CREATE TABLE IF NOT EXISTS terms (
    caller LowCardinality(String),
    limit LowCardinality(String),
    policy_version UInt32,
    plan LowCardinality(String),
    rate_per_s Float64,
    burst UInt32,
    per LowCardinality(String),
    log_partition UInt16,
    log_offset UInt64
) ENGINE = ReplacingMergeTree
ORDER BY (caller, limit, policy_version, plan, rate_per_s, burst, per);

-- recorded: the journal of flushes, the last rows of each. From first_offset up to (without) next_offset of that log
-- everything is stored. minutes: unix minutes (unix seconds / 60) of the decisions that were stored with it, each once:
-- what totals of them were made before is to be made again. What is read again is journalled again.
-- Of old flushes only how far they reached is kept, one row a partition of a log: for ever, so that the sum of all
-- highest next_offset never falls.
CREATE TABLE IF NOT EXISTS recorded (
    topic LowCardinality(String),
    log_partition UInt16,
    log_id LowCardinality(String),
    next_offset UInt64 CODEC(Delta, ZSTD(1)),
    first_offset UInt64 CODEC(Delta, ZSTD(1)),
    stored_at DateTime64(6, 'UTC') CODEC(Delta, ZSTD(1)),
    decisions UInt64 CODEC(T64, ZSTD(1)),
    minutes Array(UInt32) CODEC(ZSTD(1)),
    INDEX by_stored stored_at TYPE minmax GRANULARITY 1
) ENGINE = ReplacingMergeTree
ORDER BY (topic, log_partition, log_id, next_offset, first_offset)
TTL toDateTime(stored_at) + INTERVAL 40 DAY GROUP BY topic, log_partition, log_id
    SET next_offset = max(next_offset), first_offset = min(first_offset), stored_at = max(stored_at),
        decisions = sum(decisions);

-- A record that was begun without a journal: how far it reaches, under no log's id, so that nothing is read again; and
-- all minutes that it may hold (a block's decisions are made within the minute of its seal, or the one before).
INSERT INTO recorded (topic, log_partition, log_id, next_offset, first_offset, stored_at, decisions, minutes)
SELECT 'tallygate.decisions', log_partition, '', max(log_offset) + 1, 0, now64(6), sum(decisions),
    arraySort(groupUniqArrayArray(if(decisions > 0, [minute - 1, minute], [])))
FROM (
    SELECT log_partition, log_offset, decisions, toUInt32(intDiv(toUnixTimestamp(sealed_at), 60)) AS minute FROM blocks
    UNION ALL
    SELECT log_partition, log_offset, 0, toUInt32(1) FROM dead_letters WHERE topic = 'tallygate.decisions'
)
GROUP BY log_partition;

INSERT INTO recorded (topic, log_partition, log_id, next_offset, first_offset, stored_at, decisions, minutes)
SELECT topic, log_partition, '', max(log_offset) + 1, 0, now64(6), 0, []
FROM (
    SELECT 'tallygate.grants' AS topic, log_partition, log_offset FROM grants
    UNION ALL
    SELECT 'tallygate.grants', log_partition, log_offset FROM settlements
    UNION ALL
    SELECT 'tallygate.grants', log_partition, log_offset FROM cost_changes
    UNION ALL
    SELECT 'tallygate.control', log_partition, log_offset FROM control WHERE kind != 'live_offsets_lost'
    UNION ALL
    SELECT topic, log_partition, log_offset FROM dead_letters WHERE topic != 'tallygate.decisions'
)
GROUP BY topic, log_partition;
