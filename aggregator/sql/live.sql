-- The queries by which the worker finds its state again. Each reads one partition; every filter stands on columns of
-- the sort key, so FINAL sees all versions of a row or none.

-- name: live_progress
-- How far each log that ever stood behind this partition is covered: log id, version, and the version it began at.
SELECT scope, version, next_seq
FROM live FINAL
WHERE kind = 'progress' AND log_partition = {partition:UInt16};

-- name: live_other_logs
-- Whether any partition has counted another log than this one.
SELECT count() > 0
FROM live
WHERE kind = 'progress' AND scope != {log_id:String};

-- name: live_minutes
-- Which minutes of a span hold anything; a row that was written twice says the same, so without FINAL.
SELECT DISTINCT intDiv(toUInt32(minute), 60)
FROM live
WHERE kind = 'fleet' AND caller = '' AND log_partition = {partition:UInt16}
  AND minute >= toDateTime({low_s:UInt32}, 'UTC') AND minute <= toDateTime({high_s:UInt32}, 'UTC');

-- name: live_usage
-- The totals by caller and scope of some minutes; the range serves the index, the array is exact.
SELECT version, intDiv(toUInt32(minute), 60), caller, scope,
    [offered, admitted, refused_spent, refused_never, refused_emergency, refused_closed, refused_ceiling,
     degraded, early_returns, cost_offered, cost_admitted],
    [told_at_us, told_until_us]
FROM live FINAL
WHERE kind = 'usage' AND log_partition = {partition:UInt16}
  AND minute >= toDateTime({low_s:UInt32}, 'UTC') AND minute <= toDateTime({high_s:UInt32}, 'UTC')
  AND has({minutes_s:Array(UInt32)}, toUInt32(minute))
SETTINGS use_skip_indexes_if_final = 1;

-- name: live_fleet
-- The totals by scope, policy version and code of some minutes.
SELECT version, intDiv(toUInt32(minute), 60), scope, policy_version, code,
    [offered, admitted, refused_spent, refused_never, refused_emergency, refused_closed, refused_ceiling,
     degraded, early_returns, cost_offered, cost_admitted]
FROM live FINAL
WHERE kind = 'fleet' AND log_partition = {partition:UInt16}
  AND minute >= toDateTime({low_s:UInt32}, 'UTC') AND minute <= toDateTime({high_s:UInt32}, 'UTC')
  AND has({minutes_s:Array(UInt32)}, toUInt32(minute))
SETTINGS use_skip_indexes_if_final = 1;

-- name: live_callers
-- The plan, the largest k and the copies reached, of each caller in some minutes.
SELECT version, intDiv(toUInt32(minute), 60), caller, plan, rate_per_s, burst, k_counted, copies
FROM live FINAL
WHERE kind = 'caller' AND log_partition = {partition:UInt16}
  AND minute >= toDateTime({low_s:UInt32}, 'UTC') AND minute <= toDateTime({high_s:UInt32}, 'UTC')
  AND has({minutes_s:Array(UInt32)}, toUInt32(minute))
SETTINGS use_skip_indexes_if_final = 1;

-- name: live_copy
-- How far one copy's epoch is counted.
SELECT version, copy_id, epoch, next_seq, toUnixTimestamp64Micro(sealed_at), shift_us
FROM live FINAL
WHERE kind = 'copy' AND log_partition = {partition:UInt16} AND copy_id = {copy_id:String} AND epoch = {epoch:UInt64};

-- name: live_recent_copies
-- The same of the copies heard of last: those that a worker which takes a partition over will hear of next.
SELECT version, copy_id, epoch, next_seq, toUnixTimestamp64Micro(sealed_at), shift_us
FROM live FINAL
WHERE kind = 'copy' AND log_partition = {partition:UInt16}
ORDER BY sealed_at DESC
LIMIT 1000;

-- name: live_table_id
-- The identity of this very table; the worker's consumer group is named after it.
SELECT toString(uuid)
FROM system.tables
WHERE database = currentDatabase() AND name = 'live';

-- name: live_sent
-- The version up to which the second stage was told of this log.
SELECT sent
FROM live FINAL
WHERE kind = 'progress' AND log_partition = {partition:UInt16} AND scope = {log_id:String};

-- name: live_untold_minutes
-- Which minutes of a source partition have anything newer than what the second stage was told; without FINAL, for a row
-- that was replaced by a newer one says the same.
SELECT DISTINCT intDiv(toUInt32(minute), 60) AS number
FROM live
WHERE kind = 'usage' AND log_partition = {partition:UInt16} AND minute >= toDateTime({low_s:UInt32}, 'UTC')
  AND version > {sent:UInt64}
ORDER BY number;

-- name: live_untold
-- Totals by caller of a minute of a source partition that are newer than what the second stage was told.
SELECT log_partition, intDiv(toUInt32(minute), 60), caller, max(version) AS version,
    [sum(offered), sum(admitted), sum(refused_spent), sum(refused_never), sum(refused_emergency), sum(refused_closed),
     sum(refused_ceiling), sum(degraded), sum(early_returns), sum(cost_offered), sum(cost_admitted)],
    max(k_counted), groupUniqArrayArray(copies)
FROM live FINAL
WHERE kind IN ('usage', 'caller') AND log_partition = {partition:UInt16}
  AND minute = toDateTime({minute_s:UInt32}, 'UTC')
GROUP BY log_partition, minute, caller
HAVING version > {sent:UInt64}
SETTINGS use_skip_indexes_if_final = 1;
