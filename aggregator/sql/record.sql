-- What the recorder reads. Every value is bound.

-- name: epoch_end
-- How far one copy's epoch is recorded: the first number after it. Reads the newest blocks only, in key order.
SELECT max(first_seq + decisions) AS next_seq
FROM (
    SELECT first_seq, decisions
    FROM blocks
    WHERE copy_id = {copy_id:String} AND epoch = {epoch:UInt64}
    ORDER BY first_seq DESC
    LIMIT 256
);

-- name: epoch_spans
-- The blocks of one copy's epoch that may overlap the numbers from low up to (without) high, and when each was stored
-- first.
SELECT first_seq, decisions, block_hash, log_partition, log_offset, log_id,
    toUnixTimestamp64Micro(min(stored_at)) AS stored_us
FROM blocks
WHERE copy_id = {copy_id:String} AND epoch = {epoch:UInt64}
    AND first_seq + 65536 > {low:UInt64} AND first_seq < {high:UInt64} AND first_seq + decisions > {low:UInt64}
    AND decisions > 0
GROUP BY first_seq, decisions, block_hash, log_partition, log_offset, log_id;

-- name: stored_ends
-- How far each log of each topic is stored, by the journal.
SELECT topic, log_partition, log_id, max(next_offset) AS next_offset
FROM recorded
GROUP BY topic, log_partition, log_id;
