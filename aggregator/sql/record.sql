-- What the recorder reads, and what is asked of the record as a whole. Every value is bound.

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
-- The blocks of one copy's epoch that may overlap the numbers from low up to (without) high.
SELECT DISTINCT first_seq, decisions, block_hash, log_partition, log_offset
FROM blocks
WHERE copy_id = {copy_id:String} AND epoch = {epoch:UInt64}
    AND first_seq + 65536 > {low:UInt64} AND first_seq < {high:UInt64} AND first_seq + decisions > {low:UInt64}
    AND decisions > 0;

-- name: repeated_blocks
-- How many blocks stand in the log again after their first time: what producers sent twice.
SELECT count() - uniqExact(copy_id, epoch, first_seq, block_hash) AS repeated
FROM blocks FINAL
WHERE decisions > 0;

-- name: conflicting_decisions
-- How many decisions came under an identity that the record holds with other content.
SELECT count() AS conflicting FROM conflicts FINAL;

-- name: dead_letters_of
-- The messages of one topic that could not be read, in the order of the log.
SELECT log_partition, log_offset, reason, key, payload
FROM dead_letters FINAL
WHERE topic = {topic:String}
ORDER BY log_partition, log_offset;
