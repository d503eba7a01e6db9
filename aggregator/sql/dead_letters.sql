-- What is asked of the messages that could not be read. Every value is bound.

-- name: letters
-- The letters that were seen in a span of time, of one topic or of all, open ones only or all, in the order of seeing.
SELECT topic, log_partition, log_offset, log_id, toUnixTimestamp64Micro(seen_at) AS seen_us, reason,
    length(payload) AS bytes, toUnixTimestamp64Micro(redriven_at) AS redriven_us, by
FROM (SELECT * FROM dead_letters FINAL) AS letter
LEFT JOIN (SELECT * FROM redriven FINAL) AS mark USING (topic, log_partition, log_offset, log_id)
WHERE seen_at >= fromUnixTimestamp64Micro({from_us:Int64}, 'UTC')
    AND seen_at < fromUnixTimestamp64Micro({to_us:Int64}, 'UTC')
    AND (topic = {topic:String} OR empty({topic:String}))
    AND (empty(by) OR {all:Bool})
ORDER BY seen_at, topic, log_partition, log_offset, log_id
LIMIT {most:UInt32};

-- name: letter
-- The letters at one place of the log: several if a topic was made anew.
SELECT topic, log_partition, log_offset, log_id, toUnixTimestamp64Micro(seen_at) AS seen_us, reason,
    hex(key) AS key_hex, hex(payload) AS payload_hex,
    toUnixTimestamp64Micro(redriven_at) AS redriven_us, by
FROM (SELECT * FROM dead_letters FINAL) AS letter
LEFT JOIN (SELECT * FROM redriven FINAL) AS mark USING (topic, log_partition, log_offset, log_id)
WHERE topic = {topic:String} AND log_partition = {partition:UInt16} AND log_offset = {offset:UInt64}
ORDER BY seen_at;

-- name: open_letters
-- How many letters nobody has re-driven, and when the oldest of them was seen.
SELECT count() AS letters, toUnixTimestamp64Micro(min(seen_at)) AS oldest_us
FROM (SELECT * FROM dead_letters FINAL) AS letter
LEFT ANTI JOIN (SELECT * FROM redriven FINAL) AS mark USING (topic, log_partition, log_offset, log_id);

-- name: marks
-- Where a letter stands again, by every mark that was ever made of it and is not merged away, the first place first.
SELECT to_partition, to_offset
FROM redriven
WHERE topic = {topic:String} AND log_partition = {partition:UInt16} AND log_offset = {offset:UInt64}
    AND log_id = {log_id:String}
ORDER BY to_offset;

-- name: block_on_record
-- Where the very block of a message stands first, if it is on record.
SELECT log_partition, log_offset
FROM blocks
WHERE copy_id = {copy_id:String} AND epoch = {epoch:UInt64} AND first_seq = {first_seq:UInt64}
    AND hex(block_hash) = {hash_hex:String}
ORDER BY log_partition, log_offset
LIMIT 1;
