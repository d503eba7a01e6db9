-- What erasing asks of the database. Every value is bound; what has no values to bind is in `erasure/removing.py`,
-- `places.py` and `again.py`.

-- name: erasures
-- Every erasure in the state that it has reached.
SELECT erasure_id, toString(max(state)), toUnixTimestamp64Micro(any(erased_before)), hex(any(salt)),
    hex(any(who_hash)), argMax(requested_by, stated_at), argMax(reason, stated_at), toUnixTimestamp64Micro(min(stated_at)),
    argMax(tables, (state, stated_at)), argMax(removed, (state, stated_at)), toUnixTimestamp64Micro(max(stated_at))
FROM erasures FINAL
GROUP BY erasure_id
ORDER BY erasure_id;

-- name: noted
-- The names that stand in the table of those that are being erased, and under which numbers.
SELECT DISTINCT erasure_id, caller FROM erasing ORDER BY erasure_id, caller;

-- name: callers_tables
-- The tables that have a caller in their rows, in which columns, and whether FINAL shows every caller whose bytes are there:
-- not where a row that counts no more may have named another.
SELECT table, groupArray(columns.name), any(engine LIKE 'Replacing%') AND min(is_in_sorting_key) = 1
FROM system.columns AS columns
JOIN system.tables AS tables ON tables.database = columns.database AND tables.name = columns.table
WHERE columns.database = currentDatabase()
    AND (columns.name IN ('caller', 'subject') OR (table, columns.name) IN (('signals', 'name')))
    AND tables.engine LIKE '%MergeTree' AND table != 'erasing'
GROUP BY table
ORDER BY table;

-- name: latest
-- The time of the last that a caller's raw rows tell, in unix microseconds; 0 if there are none.
SELECT max(at_us) FROM (
    SELECT toUnixTimestamp64Micro(max(at)) AS at_us FROM decisions WHERE caller = {caller:String}
    UNION ALL
    SELECT toUnixTimestamp64Micro(max(at)) FROM conflicts WHERE caller = {caller:String}
    UNION ALL
    SELECT toUnixTimestamp64Micro(max(issued_at)) FROM grants WHERE caller = {caller:String}
    UNION ALL
    SELECT toInt64(max(grant_id)) FROM settlements WHERE caller = {caller:String}
);

-- name: recorded_before
-- How far each partition was recorded before a time, whatever times its messages carry.
SELECT topic, log_partition, max(next_offset)
FROM recorded
WHERE stored_at < fromUnixTimestamp64Micro({before_us:Int64}, 'UTC')
GROUP BY topic, log_partition
ORDER BY topic, log_partition;

-- name: went_on
-- The minute in which a caller's erasure ends, if it went on in it, as one whose live totals are not to be read; the same row
-- if it is run again. The settler ends it as soon as both totals say the same.
INSERT INTO disagreements (kind, minute, caller, found_at, settled_offered, settled_admitted)
SELECT 'live', toStartOfMinute(at) AS minute, caller, fromUnixTimestamp64Micro({before_us:Int64}, 'UTC'),
    count(), countIf(allowed)
FROM decisions FINAL
WHERE caller = {caller:String} AND at >= fromUnixTimestamp64Micro({before_us:Int64}, 'UTC')
    AND at < fromUnixTimestamp64Micro(intDiv({before_us:Int64}, 60000000) * 60000000 + 60000000, 'UTC')
GROUP BY minute, caller;

-- name: seqs
-- The numbers of a caller's decisions in a span, by the block that brought them.
SELECT copy_id, epoch, log_partition, log_offset, arraySort(groupUniqArray(seq))
FROM decisions
WHERE caller = {caller:String}
    AND at >= fromUnixTimestamp64Micro({from_us:Int64}, 'UTC') AND at < fromUnixTimestamp64Micro({to_us:Int64}, 'UTC')
GROUP BY copy_id, epoch, log_partition, log_offset
ORDER BY copy_id, epoch, log_partition, log_offset;

-- name: letters
-- Where dead letters stand that hold the bytes of a name, and whether they were re-driven. Also those that count no more:
-- a letter that was written anew stands beside what it was until the engine merges both.
SELECT DISTINCT topic, log_partition, log_offset, log_id, not empty(by)
FROM (SELECT * FROM dead_letters WHERE position(payload, {caller:String}) > 0) AS letter
LEFT JOIN (SELECT * FROM redriven FINAL) AS mark USING (topic, log_partition, log_offset, log_id)
ORDER BY topic, log_partition, log_offset;

-- name: letters_at
-- What stands at some places of a partition and holds the bytes of a name.
SELECT DISTINCT log_offset, log_id, toUnixTimestamp64Micro(seen_at), reason, hex(key), hex(payload), sipHash64(payload)
FROM dead_letters
WHERE topic = {topic:String} AND log_partition = {partition:UInt16} AND log_offset IN {offsets:Array(UInt64)}
    AND position(payload, {caller:String}) > 0
ORDER BY log_offset;

-- name: mutations
-- Changes of a table (of all tables, if none is named) whose text holds these words and that are under way, and why the last
-- attempt failed. The engine says so of all that it tries together, whichever of them it was.
SELECT table, parts_to_do, latest_fail_reason
FROM system.mutations
WHERE database = currentDatabase() AND ({table:String} = '' OR table = {table:String}) AND NOT is_done
    AND position(command, {words:String}) > 0;
