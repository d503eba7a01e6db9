-- What is asked of the record to prove it: the chain of each copy's blocks, the rows that give their hashes, the anchors.
-- Every value is bound. Spans are [from_us, to_us) in unix microseconds. Blocks are read without FINAL: a row that stands
-- twice is the same block twice, and is counted once by its hash.

-- name: lives_to_verify
-- Each copy's life that has blocks or anchors in a span, a page at a time, and the numbers that these reach over.
SELECT copy_id, epoch, min(first_number) AS from_seq, max(last_number) AS to_seq
FROM (
    SELECT copy_id, epoch, min(first_seq) AS first_number, max(first_seq + decisions) AS last_number
    FROM blocks
    WHERE sealed_at >= fromUnixTimestamp64Micro({from_us:Int64}, 'UTC')
        AND sealed_at < fromUnixTimestamp64Micro({to_us:Int64}, 'UTC')
        AND ({copy_id:String} = '' OR copy_id = {copy_id:String})
        AND (copy_id, epoch) > ({after_copy:String}, {after_epoch:UInt64})
    GROUP BY copy_id, epoch
    UNION ALL
    SELECT copy_id, epoch, min(JSONExtractUInt(body, 'next_seq')), max(JSONExtractUInt(body, 'next_seq'))
    FROM control
    WHERE kind = 'anchor'
        AND at >= fromUnixTimestamp64Micro({from_us:Int64}, 'UTC')
        AND at < fromUnixTimestamp64Micro({to_us:Int64}, 'UTC')
        AND ({copy_id:String} = '' OR copy_id = {copy_id:String})
        AND (copy_id, epoch) > ({after_copy:String}, {after_epoch:UInt64})
    GROUP BY copy_id, epoch
)
GROUP BY copy_id, epoch
ORDER BY copy_id, epoch
LIMIT {lives:UInt32};

-- name: blocks_of
-- The blocks of one life that lie within some numbers, a page at a time, in order of their numbers.
SELECT
    copy_id, epoch, first_seq, decisions, toUnixTimestamp64Micro(sealed_at) AS sealed_at_us,
    hex(prev_hash), hex(block_hash) AS hash, toUnixTimestamp64Micro(first_at), toUnixTimestamp64Micro(last_at),
    shift_us, clock_offset_ns, owner_offset_us, layout_version, admitted_total, refused_total, cost_total, refused,
    cost_admitted, log_id, log_partition, log_offset
FROM blocks
WHERE copy_id = {copy_id:String} AND epoch = {epoch:UInt64}
    AND first_seq + decisions >= {from_seq:UInt64} AND first_seq <= {to_seq:UInt64}
    AND first_seq >= {after_seq:UInt64}
    AND (first_seq, decisions, sealed_at_us, hash, log_partition, log_offset, log_id) > (
        {after_seq:UInt64}, {after_decisions:UInt32}, {after_sealed_us:Int64}, {after_hash:String},
        {after_partition:UInt16}, {after_offset:UInt64}, {after_log:String}
    )
ORDER BY first_seq, decisions, sealed_at_us, hash, log_partition, log_offset, log_id
LIMIT {blocks:UInt32};

-- name: block_of_hash
-- Whether one life has a block of this hash, and where it ends.
SELECT first_seq + decisions FROM blocks
WHERE copy_id = {copy_id:String} AND epoch = {epoch:UInt64} AND block_hash = unhex({hash:String})
LIMIT 1;

-- name: anchors_of
-- What one life said of the end of its chain, in order of its numbers.
SELECT toUnixTimestamp64Micro(at) AS at_us, JSONExtractUInt(body, 'next_seq') AS next_seq,
    JSONExtractString(body, 'head'), log_partition, log_offset
FROM control FINAL
WHERE kind = 'anchor' AND copy_id = {copy_id:String} AND epoch = {epoch:UInt64}
    AND at >= fromUnixTimestamp64Micro({from_us:Int64}, 'UTC') AND at < fromUnixTimestamp64Micro({to_us:Int64}, 'UTC')
ORDER BY next_seq, at_us;

-- name: control_stored
-- Which stretches of the log of control events were stored since some time, whichever log it was.
SELECT log_partition, first_offset, next_offset FROM recorded
WHERE topic = {topic:String} AND stored_at > fromUnixTimestamp64Micro({since_us:Int64}, 'UTC');

-- name: decisions_of
-- The decisions of some lives within some numbers of each, by copy, epoch and seq.
SELECT
    copy_id, epoch, seq, caller, scope, limit, plan, rate_per_s, burst, per, toUnixTimestamp64Micro(at) AS at_us,
    toUInt8(toInt8(source) * 16 + toInt8(reason)) AS code, toUInt8(allowed) AS allowed, cost_tokens, remaining_tokens,
    retry_after_ms, policy_version, grant_id, k, charges
FROM decisions FINAL
WHERE at >= fromUnixTimestamp64Micro({first_us:Int64}, 'UTC')
    AND at <= fromUnixTimestamp64Micro({last_us:Int64}, 'UTC')
    AND (copy_id, epoch) IN {lives:Array(Tuple(String, UInt64))}
    AND seq >= {from_seqs:Array(UInt64)}[indexOf({lives:Array(Tuple(String, UInt64))}, (toString(copy_id), epoch))]
    AND seq < {to_seqs:Array(UInt64)}[indexOf({lives:Array(Tuple(String, UInt64))}, (toString(copy_id), epoch))]
ORDER BY copy_id, epoch, seq;

-- name: figures_of
-- What some terms came to, for whomever: those that all callers share need not be asked for by caller.
SELECT limit, policy_version, plan, groupUniqArray(3)((rate_per_s, burst, per)) AS figures
FROM terms
WHERE (limit, policy_version, plan) IN {keys:Array(Tuple(String, UInt32, String))}
GROUP BY limit, policy_version, plan;

-- name: figures_of_callers
-- The same by caller, for terms that differ between callers, or were changed without a new version of the policy.
SELECT DISTINCT caller, limit, policy_version, plan, rate_per_s, burst, per
FROM terms
WHERE (limit, policy_version, plan) IN {keys:Array(Tuple(String, UInt32, String))} AND caller IN {callers:Array(String)}
ORDER BY caller, limit, policy_version, plan, rate_per_s, burst, per;

-- name: rows_of_no_block
-- Decisions of a span that no block covers: whoever added them could not add them to the chain.
SELECT copy_id, epoch, count() AS decisions, min(seq), max(seq)
FROM (
    SELECT toString(copy_id) AS copy_id, epoch, seq
    FROM decisions FINAL
    WHERE at >= fromUnixTimestamp64Micro({from_us:Int64}, 'UTC') AND at < fromUnixTimestamp64Micro({to_us:Int64}, 'UTC')
        AND ({copy_id:String} = '' OR copy_id = {copy_id:String})
) AS rows
ASOF LEFT JOIN (
    SELECT
        toString(copy_id) AS copy_id, epoch, first_seq AS seq,
        max(first_seq + decisions) OVER (
            PARTITION BY copy_id, epoch ORDER BY first_seq, decisions ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
        ) AS reached
    FROM blocks
    WHERE decisions > 0 AND ({copy_id:String} = '' OR copy_id = {copy_id:String})
        AND last_at >= fromUnixTimestamp64Micro({from_us:Int64}, 'UTC')
        AND first_at < fromUnixTimestamp64Micro({to_us:Int64}, 'UTC')
) AS covered ON rows.copy_id = covered.copy_id AND rows.epoch = covered.epoch AND rows.seq >= covered.seq
WHERE rows.seq >= covered.reached
GROUP BY copy_id, epoch
ORDER BY copy_id, epoch
LIMIT {lives:UInt32};

-- name: erased_of
-- The numbers of one life, within some, that were erased on request.
SELECT first AS first_seq, first + number AS end_seq
FROM erased_blocks
ARRAY JOIN firsts AS first, counts AS number
WHERE copy_id = {copy_id:String} AND epoch = {epoch:UInt64} AND first < {to_seq:UInt64}
    AND first + number > {from_seq:UInt64}
ORDER BY first_seq, end_seq;

-- name: conflicts_of
-- How many decisions of one block the record has otherwise, because an earlier block had said so.
SELECT uniqExact(seq) FROM conflicts
WHERE copy_id = {copy_id:String} AND epoch = {epoch:UInt64} AND seq >= {from_seq:UInt64} AND seq < {to_seq:UInt64}
    AND log_partition = {log_partition:UInt16} AND log_offset = {log_offset:UInt64};

-- name: blocks_kept_from
-- Since when blocks are kept, in unix microseconds; a longer retention brings nothing back.
SELECT max(until - minutes_days * 86400000000)
FROM (
    SELECT
        minutes_days,
        toUnixTimestamp64Micro(leadInFrame(applied_at, 1, now64(6, 'UTC')) OVER (
            ORDER BY applied_at ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING
        )) AS until
    FROM retention FINAL
);

-- name: present
-- The database's clock, in unix microseconds.
SELECT toUnixTimestamp64Micro(now64(6));
