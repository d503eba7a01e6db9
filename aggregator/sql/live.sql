-- The queries by which the worker finds its state again. Each reads one partition; every filter stands on columns of
-- the sort key, so FINAL sees all versions of a row or none.

-- name: live_progress
-- How far each log that ever stood behind this partition is covered: log id, version, and the version it began at.
SELECT scope, version, next_seq
FROM live FINAL
WHERE kind = 'progress' AND log_partition = {partition:UInt16};

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
     degraded, cost_offered, cost_admitted]
FROM live FINAL
WHERE kind = 'usage' AND log_partition = {partition:UInt16}
  AND minute >= toDateTime({low_s:UInt32}, 'UTC') AND minute <= toDateTime({high_s:UInt32}, 'UTC')
  AND has({minutes_s:Array(UInt32)}, toUInt32(minute))
SETTINGS use_skip_indexes_if_final = 1;

-- name: live_fleet
-- The totals by scope, policy version and code of some minutes.
SELECT version, intDiv(toUInt32(minute), 60), scope, policy_version, code,
    [offered, admitted, refused_spent, refused_never, refused_emergency, refused_closed, refused_ceiling,
     degraded, cost_offered, cost_admitted]
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
SELECT version, copy_id, epoch, next_seq, toUnixTimestamp64Micro(sealed_at)
FROM live FINAL
WHERE kind = 'copy' AND log_partition = {partition:UInt16} AND copy_id = {copy_id:String} AND epoch = {epoch:UInt64};

-- name: live_recent_copies
-- The same of the copies heard of last: those that a worker which takes a partition over will hear of next.
SELECT version, copy_id, epoch, next_seq, toUnixTimestamp64Micro(sealed_at)
FROM live FINAL
WHERE kind = 'copy' AND log_partition = {partition:UInt16}
ORDER BY sealed_at DESC
LIMIT 1000;

-- name: live_table_id
-- The identity of this very table; the worker's consumer group is named after it.
SELECT toString(uuid)
FROM system.tables
WHERE database = currentDatabase() AND name = 'live';
