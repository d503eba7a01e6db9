-- Totals for a dispute: as they were reported, as they are, and as the exact record says they should be. Spans are
-- [from_s, to_s) in unix seconds, whole minutes. A cell's totals are those of its highest (version, stored_at).

-- name: totals_as_of
-- One caller's settled totals as they were reported at a time, by hour or by scope.
SELECT if({by:String} = 'scope', scope, formatDateTime(toStartOfHour(minute), '%Y-%m-%dT%H:00Z', 'UTC')) AS place,
    sum(held.1), sum(held.2), sum(held.3), sum(held.4)
FROM (
    SELECT minute, scope, argMax((offered, admitted, cost_offered, cost_admitted), (version, stored_at)) AS held
    FROM settled_minutes
    WHERE caller = {caller:String}
        AND minute >= toDateTime({from_s:UInt32}, 'UTC') AND minute < toDateTime({to_s:UInt32}, 'UTC')
        AND stored_at <= fromUnixTimestamp64Micro({at_us:Int64}, 'UTC')
    GROUP BY minute, scope
)
GROUP BY place
ORDER BY place;

-- name: totals_recounted
-- One caller's totals counted from raw decisions now, by hour and scope.
SELECT formatDateTime(toStartOfHour(at), '%Y-%m-%dT%H:00Z', 'UTC') AS hour, scope,
    count(), countIf(allowed), sum(cost_tokens), sumIf(cost_tokens, allowed)
FROM decisions FINAL
WHERE caller = {caller:String}
    AND at >= toDateTime64({from_s:UInt32}, 6, 'UTC') AND at < toDateTime64({to_s:UInt32}, 6, 'UTC')
GROUP BY hour, scope
ORDER BY hour, scope;

-- name: totals_differing
-- Minutes and scopes in which one caller's raw decisions are not what is settled: counted now, and as settled.
SELECT intDiv(toUnixTimestamp(minute), 60), scope,
    sum(raw.1) AS r_offered, sum(raw.2) AS r_admitted, sum(settled.1) AS s_offered, sum(settled.2) AS s_admitted
FROM (
    SELECT toStartOfMinute(at) AS minute, scope,
        (count(), countIf(allowed), sum(cost_tokens), sumIf(cost_tokens, allowed)) AS raw,
        (toUInt64(0), toUInt64(0), toUInt64(0), toUInt64(0)) AS settled
    FROM decisions FINAL
    WHERE caller = {caller:String}
        AND at >= toDateTime64({from_s:UInt32}, 6, 'UTC') AND at < toDateTime64({to_s:UInt32}, 6, 'UTC')
    GROUP BY minute, scope
    UNION ALL
    SELECT minute, scope, (toUInt64(0), toUInt64(0), toUInt64(0), toUInt64(0)),
        argMax((offered, admitted, cost_offered, cost_admitted), (version, stored_at))
    FROM settled_minutes
    WHERE caller = {caller:String}
        AND minute >= toDateTime({from_s:UInt32}, 'UTC') AND minute < toDateTime({to_s:UInt32}, 'UTC')
    GROUP BY minute, scope
)
GROUP BY minute, scope
HAVING (r_offered, r_admitted, sum(raw.3), sum(raw.4)) != (s_offered, s_admitted, sum(settled.3), sum(settled.4))
ORDER BY minute, scope;

-- name: totals_waiting
-- Minutes of a span that are dirty: known to the settlers, or in the journal beyond where they stand.
WITH (SELECT groupArrayArray(positions) FROM settled_progress FINAL) AS known
SELECT arrayFilter(minute -> minute >= intDiv({from_s:UInt32}, 60) AND minute < intDiv({to_s:UInt32}, 60), dirty)
FROM (
    SELECT groupUniqArrayArray(minutes) AS dirty FROM settled_progress FINAL
    UNION ALL
    SELECT groupUniqArrayArray(minutes)
    FROM recorded
    WHERE topic = {topic:String}
        AND next_offset > arrayFirst(one -> one.1 = log_id AND one.2 = log_partition, known).3
);

-- name: totals_known
-- Whether anything of a caller is on record: its terms are kept for good, its days for years. Older records have no terms.
SELECT caller IN (SELECT caller FROM terms WHERE caller = {caller:String})
    OR caller IN (SELECT caller FROM settled_days WHERE caller = {caller:String})
    OR caller IN (SELECT caller FROM settled_minutes WHERE caller = {caller:String})
    OR caller IN (SELECT caller FROM decisions WHERE caller = {caller:String})
FROM (SELECT {caller:String} AS caller);

-- name: totals_too_late
-- How many minutes of a span got decisions, of whomever, that were not counted, as was known at a time.
SELECT uniqExact(minute)
FROM disagreements
WHERE kind = 'too_late'
    AND minute >= toDateTime({from_s:UInt32}, 'UTC') AND minute < toDateTime({to_s:UInt32}, 'UTC')
    AND found_at <= fromUnixTimestamp64Micro({at_us:Int64}, 'UTC');

-- name: totals_versions
-- Every version of those minutes of one caller that were reported more than once, or for the first time late.
SELECT intDiv(toUnixTimestamp(minute), 60), scope, version, toUnixTimestamp64Micro(stored_at),
    offered, admitted, cost_admitted
FROM settled_minutes FINAL
WHERE caller = {caller:String}
    AND minute >= toDateTime({from_s:UInt32}, 'UTC') AND minute < toDateTime({to_s:UInt32}, 'UTC')
    AND minute IN (
        SELECT minute FROM settled_minutes
        WHERE caller = {caller:String}
            AND minute >= toDateTime({from_s:UInt32}, 'UTC') AND minute < toDateTime({to_s:UInt32}, 'UTC')
        GROUP BY minute
        HAVING uniqExact(version, stored_at) > 1 OR min(stored_at) > minute + toIntervalSecond({on_time_s:UInt32} + 60)
    )
ORDER BY minute, stored_at, version, scope;

-- name: totals_blocks
-- Where in the log the decisions of some minutes of one caller came from.
SELECT toUInt32(intDiv(toUnixTimestamp(toStartOfMinute(at)), 60)) AS of_minute, copy_id, epoch, log_partition, log_offset,
    count()
FROM decisions FINAL
WHERE caller = {caller:String} AND has({minutes:Array(UInt32)}, of_minute)
    AND at >= toDateTime64({from_s:UInt32}, 6, 'UTC') AND at < toDateTime64({to_s:UInt32}, 6, 'UTC')
GROUP BY of_minute, copy_id, epoch, log_partition, log_offset
ORDER BY of_minute, log_partition, log_offset, copy_id, epoch;

-- name: totals_flushes
-- When each part of the log that dirtied some minutes was stored.
SELECT log_partition, first_offset, next_offset, toUnixTimestamp64Micro(stored_at),
    arrayIntersect(minutes, {minutes:Array(UInt32)})
FROM recorded FINAL
WHERE topic = {topic:String} AND hasAny(minutes, {minutes:Array(UInt32)})
ORDER BY log_partition, next_offset, first_offset;

-- name: totals_days
-- One caller's totals of whole UTC days that are settled, by day and scope.
SELECT toUInt32(toRelativeDayNum(day)), scope, held.1, held.2, held.3, held.4
FROM (
    SELECT day, scope, argMax((offered, admitted, cost_offered, cost_admitted), (version, stored_at)) AS held
    FROM settled_days
    WHERE caller = {caller:String} AND day >= toDate({from_day:UInt32}) AND day < toDate({to_day:UInt32})
    GROUP BY day, scope
)
ORDER BY day, scope;

-- name: totals_other_minutes
-- One caller's totals of the minutes of a span that are in none of some UTC days, by scope.
SELECT scope, sum(held.1), sum(held.2), sum(held.3), sum(held.4)
FROM (
    SELECT minute, scope, argMax((offered, admitted, cost_offered, cost_admitted), (version, stored_at)) AS held
    FROM settled_minutes
    WHERE caller = {caller:String}
        AND minute >= toDateTime({from_s:UInt32}, 'UTC') AND minute < toDateTime({to_s:UInt32}, 'UTC')
        AND NOT has({days:Array(UInt32)}, toUInt32(intDiv(toUnixTimestamp(minute), 86400)))
    GROUP BY minute, scope
)
GROUP BY scope
ORDER BY scope;
