-- How far each reader of the log is, as the record itself knows it (`tallygate audit lag`). Every value is bound.

-- name: lag_now
-- The database's clock, in unix microseconds.
SELECT toUnixTimestamp64Micro(now64(6));

-- name: lag_recorded
-- How far each log is on record by the journal, and when that was stored last.
SELECT topic, log_partition, log_id, max(next_offset) AS next_offset, toUnixTimestamp64Micro(max(stored_at)) AS stored_us
FROM recorded
GROUP BY topic, log_partition, log_id
ORDER BY stored_us DESC, topic, log_partition, log_id;

-- name: lag_stored_since
-- Since when a log is on record from an offset on.
SELECT toUnixTimestamp64Micro(min(stored_at))
FROM recorded
WHERE topic = {topic:String} AND log_partition = {partition:UInt16} AND log_id = {log_id:String}
    AND next_offset > {offset:UInt64}
HAVING count() > 0;

-- name: lag_counted_since
-- The end of the first minute, as unix seconds, of which the worker has counted something of a partition beyond a version,
-- from the minute before the partition was stored last.
SELECT toUnixTimestamp(min(minute)) + 60
FROM live FINAL
WHERE kind = 'fleet' AND caller = '' AND log_partition = {partition:UInt16} AND version > {version:UInt64}
    AND minute >= toStartOfMinute(toDateTime({from_s:UInt32}, 'UTC'))
HAVING count() > 0;

-- name: lag_copies
-- The copies that sealed a block since a time and have not said that they stopped, in their last life: up to when they
-- are on record, and by what their clock is corrected.
SELECT copy_id, toUnixTimestamp64Micro(argMax(sealed_at, (epoch, first_seq, sealed_at))) AS sealed_us,
    argMax(shift_us, (epoch, first_seq, sealed_at))
FROM blocks
WHERE sealed_at >= fromUnixTimestamp64Micro({since_us:Int64}, 'UTC')
GROUP BY copy_id
HAVING (copy_id, max(epoch)) NOT IN (SELECT copy_id, epoch FROM control FINAL WHERE kind = 'copy_stopped'
    AND at >= fromUnixTimestamp64Micro({since_us:Int64}, 'UTC'))
ORDER BY sealed_us, copy_id;

-- name: lag_untold
-- The first minute of a span of which the live totals have requests that the second stage does not have, as unix
-- seconds, and how many requests of the whole span that are; 0 and 0 where there is none.
SELECT toUInt32(minIf(minute, live > told)), sum(greatest(live, told) - told)
FROM (
    SELECT minute, sum(counted) AS live, sum(heard) AS told
    FROM (
        SELECT minute, offered AS counted, 0 AS heard
        FROM live FINAL
        WHERE kind = 'fleet' AND caller = ''
            AND minute >= toDateTime({from_s:UInt32}, 'UTC') AND minute < toDateTime({to_s:UInt32}, 'UTC')
        UNION ALL
        SELECT minute, 0, offered
        FROM signals FINAL
        WHERE kind = 'fleet'
            AND minute >= toDateTime({from_s:UInt32}, 'UTC') AND minute < toDateTime({to_s:UInt32}, 'UTC')
    )
    GROUP BY minute
);

-- name: lag_last_told
-- The newest minute that the second stage has, as unix seconds; 0 if it never had any.
SELECT toUInt32(max(minute)) FROM signals WHERE kind = 'fleet';

-- name: lag_shadows
-- The databases in which a replay has claimed work at some time.
SELECT database FROM system.tables WHERE name = 'replay_claims' ORDER BY database;

-- name: lag_replays
-- The replays that work now, in whatever database: where, who, and since when.
SELECT _database, any(who), formatDateTime(min(at), '%F %T') AS since
FROM merge(REGEXP('.'), '^replay_claims$')
GROUP BY _database, run
HAVING max(ended) = 0 AND max(at) > now64(6) - toIntervalSecond({lapses_s:UInt32})
ORDER BY since;
