-- What a replay asks of the two databases. Every value is bound.

-- name: columns
-- The columns of a table in order, and whether they stand in its sort key.
SELECT name, is_in_sorting_key
FROM system.columns
WHERE database = {database:String} AND table = {table:String}
ORDER BY position;

-- name: tables
-- The tables of a database.
SELECT name FROM system.tables WHERE database = {database:String} ORDER BY name;

-- name: databases
-- Whether there is a database of this name.
SELECT count() FROM system.databases WHERE name = {database:String};

-- name: stored_ends
-- How far each log is stored: topic, partition, first offset that is not.
SELECT topic, log_partition, max(next_offset) FROM recorded GROUP BY topic, log_partition;

-- name: journaled
-- How far the journal reaches in every log that it knows, also those whose topic was deleted since.
SELECT topic, log_partition, log_id, max(next_offset) FROM recorded GROUP BY topic, log_partition, log_id;

-- name: log_begins
-- Since when the record holds everything of every partition, in unix microseconds: the latest of their first blocks.
SELECT max(first_us)
FROM (
    SELECT log_partition, toUnixTimestamp64Micro(argMin(last_at, log_offset)) AS first_us
    FROM blocks GROUP BY log_partition
);

-- name: make_claims
-- Which replays say that they work on this shadow. Claims of days before are nobody's.
CREATE TABLE IF NOT EXISTS replay_claims (
    run String,
    who String,
    ended UInt8,
    at DateTime64(6, 'UTC') DEFAULT now64(6)
) ENGINE = MergeTree ORDER BY (run, at) TTL toDateTime(at) + INTERVAL 7 DAY;

-- name: claim
-- A sign of life of one replay, or its end.
INSERT INTO replay_claims (run, who, ended) SELECT {run:String}, {who:String}, {ended:UInt8};

-- name: claims_held
-- The replays that have not ended and gave a sign of life lately: run, who it is, since when.
SELECT run, any(who), formatDateTime(min(at), '%F %T') AS since
FROM replay_claims GROUP BY run
HAVING max(ended) = 0 AND max(at) > now64(6) - toIntervalSecond({lapses_s:UInt32})
ORDER BY since;

-- name: claim_silence
-- How long one replay gave no sign of life at most, up to now, in seconds.
SELECT arrayMax(arrayDifference(arrayPushBack(arraySort(groupArray(at_us)), toUnixTimestamp64Micro(now64(6))))) / 1000000
FROM (SELECT toUnixTimestamp64Micro(at) AS at_us FROM replay_claims WHERE run = {run:String});
