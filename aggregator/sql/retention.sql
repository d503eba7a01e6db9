-- What is asked of the database about how long it keeps what. Every value is bound.

-- name: tables
-- Every table of ours with its engine and the settings behind it, among them its TTL.
SELECT name, engine_full
FROM system.tables
WHERE database = currentDatabase() AND engine LIKE '%MergeTree'
ORDER BY name;

-- name: now
-- The clock by which the engine drops rows, in unix microseconds.
SELECT toUnixTimestamp64Micro(now64(6));

-- name: retention_history
-- What was in force from when on, oldest first.
SELECT toUnixTimestamp64Micro(applied_at), admitted_days, refused_days, minutes_days, days_years
FROM retention FINAL
ORDER BY applied_at;

-- name: retention_dropped
-- The months that were dropped by hand.
SELECT DISTINCT toYear(month), toMonth(month)
FROM retention_drops
ORDER BY 1, 2;

-- name: month_partitions
-- The partitions of one month of the raw tables: those of decisions are days, the others' are months.
SELECT table, partition_id, sum(rows), sum(bytes_on_disk)
FROM system.parts
WHERE database = currentDatabase() AND active AND has({tables:Array(String)}, table)
    AND startsWith(partition_id, {month:String})
GROUP BY table, partition_id
ORDER BY table, partition_id;

-- name: sizes
-- Rows and bytes of each table as they are on disk.
SELECT table, sum(rows), sum(bytes_on_disk)
FROM system.parts
WHERE database = currentDatabase() AND active
GROUP BY table
ORDER BY table;

-- name: settlers_stand
-- Where the settlers stand, one row if any has run: how far they have heeded each log, and the oldest minute that is known to
-- them as dirty, in unix minutes (0: none).
SELECT positions, arrayMin(minutes) FROM settled_progress FINAL;

-- name: oldest_beyond
-- The oldest minute that the journal of one log names beyond a position, in unix minutes; 0 if there is none. Reads what lies
-- beyond: the key of the table begins with these columns.
SELECT min(arrayMin(minutes))
FROM recorded
WHERE topic = {topic:String} AND log_partition = {partition:UInt16} AND log_id = {log_id:String}
    AND next_offset > {position:UInt64} AND notEmpty(minutes);

-- name: oldest_of_others
-- The same of all logs but some, each a partition and an id.
SELECT min(arrayMin(minutes))
FROM recorded
WHERE topic = {topic:String} AND (log_partition, log_id) NOT IN {known:Array(Tuple(UInt16, String))} AND notEmpty(minutes);

-- name: first_block
-- When the first block on record was sealed, in unix microseconds; 0 if there is none.
SELECT toInt64(toUnixTimestamp64Micro(min(sealed_at))) FROM blocks;

-- name: cut_logs
-- Logs that were not read from their beginning: it was gone by then, or the reader was told to begin later.
SELECT log_partition, log_id
FROM recorded
WHERE topic = {topic:String}
GROUP BY log_partition, log_id
HAVING min(first_offset) > 0
ORDER BY log_partition, log_id;

-- name: oldest_decisions
-- The beginning of the oldest day of which there are raw decisions, in unix microseconds; 0 if there are none.
SELECT toInt64(toUnixTimestamp(toDateTime(min(toDate(partition)), 'UTC'))) * 1000000
FROM system.parts
WHERE database = currentDatabase() AND table = 'decisions' AND active AND rows > 0;
