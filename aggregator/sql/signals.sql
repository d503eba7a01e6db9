-- The second stage: what it begins from, and what pages and alarms ask of it. Every filter stands on columns of the
-- sort key, so FINAL sees all versions of a row or none. minute_s is a full minute as unix seconds; a refusal rate is
-- refused / offered, and a caller without a row had neither a refusal nor many requests.

-- name: signals_load
-- Totals by source partition and caller of one minute, of the callers that one partition of the usage topic carries.
SELECT log_partition, intDiv(toUInt32(minute), 60), caller, max(version),
    [sum(offered), sum(admitted), sum(refused_spent), sum(refused_never), sum(refused_emergency), sum(refused_closed),
     sum(refused_ceiling), sum(degraded), sum(early_returns), sum(cost_offered), sum(cost_admitted)],
    max(k_counted), groupUniqArrayArray(copies)
FROM live FINAL
WHERE kind IN ('usage', 'caller') AND minute = toDateTime({minute_s:UInt32}, 'UTC')
  AND CRC32(caller) % {partitions:UInt32} = {partition:UInt32}
GROUP BY log_partition, minute, caller
SETTINGS use_skip_indexes_if_final = 1;

-- name: signals_hot_keys
-- The ten callers with most requests in a minute, over all partitions.
SELECT name, offered, offered - admitted AS refused, cost_offered, k
FROM signals FINAL
WHERE kind = 'hot' AND minute = toDateTime({minute_s:UInt32}, 'UTC')
ORDER BY offered DESC, name
LIMIT 10;

-- name: signals_movers
-- Whose refusal rate moved most against the ten minutes before, from a number of requests on: now, before, and the difference.
SELECT caller, offered, offered - admitted AS refused, refused / offered AS rate,
    if(base_offered = 0, 0, base_refused / base_offered) AS base_rate, rate - base_rate AS delta, base_offered, base_minutes
FROM signals FINAL
WHERE kind = 'caller' AND minute = toDateTime({minute_s:UInt32}, 'UTC') AND offered >= {least:UInt64}
ORDER BY abs(delta) DESC, caller
LIMIT {most:UInt32};

-- name: signals_caller
-- What one caller did minute by minute since a time, newest first: outcomes, k as reached and as counted, returns; of the
-- live totals, which lie together by caller and have everybody, be there much to say or not.
SELECT toUInt32(minute), sum(offered), sum(admitted), sum(refused_spent), sum(refused_never), sum(refused_emergency),
    sum(refused_closed), sum(refused_ceiling), sum(degraded), sum(early_returns), sum(cost_offered), sum(cost_admitted),
    length(groupUniqArrayArray(copies)), max(k_counted)
FROM live FINAL
WHERE kind IN ('usage', 'caller') AND caller = {caller:String} AND minute >= toDateTime({since_s:UInt32}, 'UTC')
GROUP BY minute
ORDER BY minute DESC;

-- name: signals_retry_storms
-- Who came back before its Retry-After: callers whose share of early returns is at least `share`, from `least` requests on.
SELECT caller, offered, early_returns, early_returns / offered AS share, offered - admitted AS refused, k
FROM signals FINAL
WHERE kind = 'caller' AND minute = toDateTime({minute_s:UInt32}, 'UTC')
  AND offered >= {least:UInt64} AND early_returns >= {share:Float64} * offered
ORDER BY early_returns DESC, caller
LIMIT {most:UInt32};

-- name: signals_fleet
-- The fleet minute by minute since a time, newest first: outcomes, callers, and what the anonymous ones had of it.
SELECT toUInt32(minute), sum(offered), sum(admitted), sum(refused_spent), sum(refused_never), sum(refused_emergency),
    sum(refused_closed), sum(refused_ceiling), sum(degraded), sum(early_returns), sum(callers), sum(callers_refused),
    sum(anonymous_offered), sum(anonymous_refused)
FROM signals FINAL
WHERE kind = 'fleet' AND minute >= toDateTime({since_s:UInt32}, 'UTC')
GROUP BY minute
ORDER BY minute DESC;

-- name: signals_copies
-- Every copy heard of since a time in its last life: partition, counted up to, what its clock is corrected by (µs), and
-- whether it ended in order. A copy that has not and is behind is late; what it may still bring makes a window incomplete.
SELECT copy_id, epoch, log_partition, toUnixTimestamp64Micro(sealed_at) AS sealed_us, shift_us,
    (copy_id, epoch) IN (SELECT copy_id, epoch FROM control FINAL WHERE kind = 'copy_stopped'
        AND at >= fromUnixTimestamp64Micro({since_us:Int64}, 'UTC')) AS stopped
FROM (
    SELECT copy_id, max(epoch) AS epoch, argMax(log_partition, live.epoch) AS log_partition,
        argMax(sealed_at, live.epoch) AS sealed_at, argMax(shift_us, live.epoch) AS shift_us
    FROM live FINAL
    WHERE kind = 'copy'
    GROUP BY copy_id
)
WHERE sealed_at >= fromUnixTimestamp64Micro({since_us:Int64}, 'UTC')
ORDER BY sealed_at, copy_id;

-- name: signals_lag
-- How far each partition of the decisions topic is complete: oldest and newest of its copies that have not ended, and
-- how many there are; unix µs.
SELECT log_partition, toUnixTimestamp64Micro(min(sealed_at)), toUnixTimestamp64Micro(max(sealed_at)), count()
FROM (
    SELECT copy_id, max(epoch) AS last_epoch, argMax(log_partition, live.epoch) AS log_partition,
        argMax(sealed_at, live.epoch) AS sealed_at
    FROM live FINAL
    WHERE kind = 'copy'
    GROUP BY copy_id
)
WHERE sealed_at >= fromUnixTimestamp64Micro({since_us:Int64}, 'UTC')
  AND (copy_id, last_epoch) NOT IN (SELECT copy_id, epoch FROM control FINAL WHERE kind = 'copy_stopped'
        AND at >= fromUnixTimestamp64Micro({since_us:Int64}, 'UTC'))
GROUP BY log_partition
ORDER BY log_partition;

-- name: signals_windows
-- The minutes since a time, newest first, each with the number of copies that have not ended and may still bring
-- decisions of it: 0 says that it is complete.
SELECT toUInt32(minute) AS minute_s, countIf(late.sealed_at < minute + INTERVAL 1 MINUTE) AS missing
FROM (SELECT DISTINCT minute FROM signals WHERE kind = 'fleet' AND minute >= toDateTime({since_s:UInt32}, 'UTC')) AS windows
CROSS JOIN (
    SELECT copy_id, max(epoch) AS last_epoch, argMax(sealed_at, live.epoch) AS sealed_at
    FROM live FINAL
    WHERE kind = 'copy'
    GROUP BY copy_id
    HAVING sealed_at >= toDateTime({since_s:UInt32}, 'UTC')
        AND (copy_id, last_epoch) NOT IN (SELECT copy_id, epoch FROM control FINAL WHERE kind = 'copy_stopped'
            AND at >= toDateTime({since_s:UInt32}, 'UTC'))
) AS late
GROUP BY minute
ORDER BY minute DESC;
