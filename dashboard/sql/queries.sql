-- The fixed catalogue of what the pages may ask. Values are bound by the server, never written into the text.
--
-- The first word of a name says who may run it:
--   caller_   one caller's rows; bound to {caller:String}, and run behind a row filter for that caller.
--   fleet_    nothing of any caller.
--   support_  across callers; only behind the support role.
-- Spans are [from_s, to_s) in unix seconds. Totals are read with FINAL and summed over log_partition.

-- name: caller_days
-- What is rolled up of one caller, a few rows a day: see quarter_days. Of days that the span takes in part only, scopes by quarter
-- of an hour too.
SELECT kind, toUInt32(day), scope, at, names, numbers
FROM quarter_days FINAL
WHERE caller = {caller:String} AND day >= {first:Date} AND day <= {last:Date}
    AND (kind != 'usage' OR day IN {partial:Array(Date)})

-- name: caller_minutes
-- The live totals of one caller in minutes of some quarters of an hour, those that are not rolled up: of each scope, and (without
-- one) the plan and the copies.
SELECT kind, toUnixTimestamp(minute), scope,
    sum(offered), sum(admitted), sum(refused_spent), sum(refused_never), sum(refused_emergency), sum(refused_closed),
    sum(refused_ceiling), sum(degraded), sum(cost_offered), sum(cost_admitted),
    argMaxIf((plan, rate_per_s, burst), version, plan != ''), groupUniqArrayArray(copies), max(k_counted)
FROM live FINAL
WHERE kind IN ('usage', 'caller') AND caller = {caller:String}
    AND minute >= toDateTime({live_from_s:UInt32}, 'UTC') AND minute < toDateTime({to_s:UInt32}, 'UTC')
    AND has({fresh:Array(UInt32)}, toUInt32(intDiv(toUnixTimestamp(minute), 900)))
GROUP BY kind, minute, scope

-- name: caller_totals
-- The live totals of one caller by step of time, by endpoint, and of the whole span, all from one read, so that they agree; beside
-- them the plan (empty where it is not known: only further limits refused), the copies that its requests reached, and how
-- many rows of usage and of the caller stand behind it. For spans of which nothing is rolled up.
SELECT
    grouping(step_s) * 2 + grouping(endpoint) AS level,
    if(level = 1, toString(step_s), endpoint),
    countIf(is_usage), countIf(NOT is_usage),
    sum(offered), sum(admitted), sum(refused_spent), sum(refused_never), sum(refused_emergency), sum(refused_closed),
    sum(refused_ceiling), sum(degraded), sum(cost_offered), sum(cost_admitted),
    argMaxIf(terms, minute_s, terms.1 != ''), max(length(every_copy)), max(k_counted), groupUniqArrayArray(every_copy)
FROM (
    SELECT toUnixTimestamp(minute) AS minute_s, intDiv(minute_s, {step:UInt32}) * {step:UInt32} AS step_s, scope AS endpoint,
        kind = 'usage' AS is_usage, sum(live.offered) AS offered, sum(live.admitted) AS admitted,
        sum(live.refused_spent) AS refused_spent, sum(live.refused_never) AS refused_never,
        sum(live.refused_emergency) AS refused_emergency, sum(live.refused_closed) AS refused_closed,
        sum(live.refused_ceiling) AS refused_ceiling, sum(live.degraded) AS degraded,
        sum(live.cost_offered) AS cost_offered, sum(live.cost_admitted) AS cost_admitted,
        argMaxIf((plan, rate_per_s, burst), version, plan != '') AS terms,
        groupUniqArrayArray(copies) AS every_copy, max(live.k_counted) AS k_counted
    FROM live FINAL
    WHERE kind IN ('usage', 'caller') AND caller = {caller:String}
        AND minute >= toDateTime({from_s:UInt32}, 'UTC') AND minute < toDateTime({to_s:UInt32}, 'UTC')
    GROUP BY kind, minute, scope
)
GROUP BY GROUPING SETS ((step_s), (endpoint), ())
ORDER BY level, step_s

-- name: caller_corrections
-- By how much the settled totals are other than the live ones, in minutes of one caller of which was found that both disagree:
-- there the settled ones stand in for them. By step of time and endpoint; of the same minutes as the live ones of
-- caller_totals.
SELECT intDiv(toUnixTimestamp(minute), {step:UInt32}) * {step:UInt32} AS step_s, scope,
    sum(counts.1), sum(counts.2), sum(counts.3), sum(counts.4), sum(counts.5), sum(counts.6), sum(counts.7),
    sum(counts.8), sum(counts.9), sum(counts.10)
FROM (
    SELECT minute, scope,
        (-toInt64(offered), -toInt64(admitted), -toInt64(refused_spent), -toInt64(refused_never), -toInt64(refused_emergency),
         -toInt64(refused_closed), -toInt64(refused_ceiling), -toInt64(degraded), -toInt64(cost_offered),
         -toInt64(cost_admitted)) AS counts
    FROM live FINAL
    WHERE kind = 'usage' AND caller = {caller:String}
        AND minute >= toDateTime({live_from_s:UInt32}, 'UTC') AND minute < toDateTime({to_s:UInt32}, 'UTC')
        AND minute IN (
            SELECT minute FROM disagreements FINAL
            WHERE kind = 'live' AND caller = {caller:String} AND gone_at = toDateTime64(0, 6, 'UTC')
        )
    UNION ALL
    SELECT minute, scope,
        argMax((toInt64(offered), toInt64(admitted), toInt64(refused_spent), toInt64(refused_never), toInt64(refused_emergency),
                toInt64(refused_closed), toInt64(refused_ceiling), toInt64(degraded), toInt64(cost_offered),
                toInt64(cost_admitted)), (version, stored_at))
    FROM settled_minutes FINAL
    WHERE caller = {caller:String}
        AND minute >= toDateTime({live_from_s:UInt32}, 'UTC') AND minute < toDateTime({to_s:UInt32}, 'UTC')
        AND minute IN (
            SELECT minute FROM disagreements FINAL
            WHERE kind = 'live' AND caller = {caller:String} AND gone_at = toDateTime64(0, 6, 'UTC')
        )
    GROUP BY minute, scope
)
WHERE {every:UInt8} = 1 OR has({fresh:Array(UInt32)}, toUInt32(intDiv(toUnixTimestamp(minute), 900)))
GROUP BY step_s, scope

-- name: caller_last_seen
-- The last minute in which one caller sent anything, and the plan that it had; no row if it never did.
SELECT toUnixTimestamp(minute), plan, rate_per_s, burst
FROM live FINAL
WHERE kind = 'caller' AND caller = {caller:String}
ORDER BY minute DESC, version DESC
LIMIT 1

-- name: caller_busiest_second
-- The second in which one caller sent most, counted in the exact record: in some quarters of an hour, or in the whole span.
SELECT toUnixTimestamp(toDateTime(at, 'UTC')) AS second_s, count() AS requests
FROM decisions FINAL
WHERE caller = {caller:String}
    AND at >= toDateTime64({from_s:UInt32}, 6, 'UTC') AND at < toDateTime64({to_s:UInt32}, 6, 'UTC')
    AND ({every:UInt8} = 1 OR has({within:Array(UInt32)}, toUInt32(intDiv(toUnixTimestamp(toStartOfMinute(at)), 900))))
GROUP BY second_s
ORDER BY requests DESC, second_s
LIMIT 1

-- name: caller_busiest_minute
-- The minute in which one caller sent most, from the totals: for spans in which counting seconds would take too long. Of
-- fresh quarters, or of the whole span.
SELECT toUnixTimestamp(minute) AS minute_s, sum(counted) AS requests
FROM (
    SELECT minute, offered AS counted
    FROM live FINAL
    WHERE kind = 'usage' AND caller = {caller:String}
        AND minute >= toDateTime({live_from_s:UInt32}, 'UTC') AND minute < toDateTime({to_s:UInt32}, 'UTC')
        AND ({every:UInt8} = 1 OR has({fresh:Array(UInt32)}, toUInt32(intDiv(toUnixTimestamp(minute), 900))))
        AND minute NOT IN (
            SELECT minute FROM disagreements FINAL
            WHERE kind = 'live' AND caller = {caller:String} AND gone_at = toDateTime64(0, 6, 'UTC')
        )
    UNION ALL
    SELECT minute, argMax(offered, (version, stored_at))
    FROM settled_minutes FINAL
    WHERE caller = {caller:String}
        AND minute >= toDateTime({live_from_s:UInt32}, 'UTC') AND minute < toDateTime({to_s:UInt32}, 'UTC')
        AND ({every:UInt8} = 1 OR has({fresh:Array(UInt32)}, toUInt32(intDiv(toUnixTimestamp(minute), 900))))
        AND minute IN (
            SELECT minute FROM disagreements FINAL
            WHERE kind = 'live' AND caller = {caller:String} AND gone_at = toDateTime64(0, 6, 'UTC')
        )
    GROUP BY minute, scope
)
GROUP BY minute
HAVING requests > 0
ORDER BY requests DESC, minute_s
LIMIT 1

-- name: caller_refusals
-- The last refusals of one caller, newest first, each with what it was decided on.
SELECT
    caller, toUnixTimestamp64Micro(at), copy_id, epoch, seq, scope, limit, plan, rate_per_s, burst, per, allowed,
    toInt8(source), toInt8(reason),
    cost_tokens, remaining_tokens, retry_after_ms, policy_version, grant_id, k
FROM decisions FINAL
WHERE caller = {caller:String} AND NOT allowed
    AND at >= toDateTime64({from_s:UInt32}, 6, 'UTC') AND at < toDateTime64({to_s:UInt32}, 6, 'UTC')
ORDER BY at DESC, copy_id DESC, epoch DESC, seq DESC
LIMIT {rows:UInt32}

-- name: caller_decided
-- Whether the exact record holds any decision of one caller in a span: a row if so. For spans whose totals are empty.
SELECT 1
FROM decisions FINAL
WHERE caller = {caller:String}
    AND at >= toDateTime64({from_s:UInt32}, 6, 'UTC') AND at < toDateTime64({to_s:UInt32}, 6, 'UTC')
LIMIT 1

-- name: caller_grants
-- The grants of one caller that are asked for by id, each with the largest total that was stated for it.
SELECT
    grants.limit, grants.grant_id, grants.size_tokens,
    toUnixTimestamp64Micro(grants.issued_at), toUnixTimestamp64Micro(grants.expires_at), grants.copy_id,
    stated.totals, stated.spent, stated.is_final
FROM (SELECT * FROM grants FINAL WHERE caller = {caller:String} AND grant_id IN {grant_ids:Array(UInt64)}) AS grants
LEFT JOIN (
    SELECT limit, grant_id, count() AS totals, max(spent_tokens) AS spent, max(final) AS is_final
    FROM settlements FINAL
    WHERE caller = {caller:String} AND grant_id IN {grant_ids:Array(UInt64)}
    GROUP BY limit, grant_id
) AS stated ON stated.limit = grants.limit AND stated.grant_id = grants.grant_id

-- name: fleet_complete
-- How far each copy's record is complete, and whether it said that it stopped, for copies that spoke since a given time. The
-- last row is nobody's: how many decisions the copies say they made in a span but could not record, and how many numbers no
-- block holds, before the blocks of the span, that no copy spoke of.
SELECT copy_id, epoch, toUnixTimestamp64Micro(max(sealed_at)) AS sealed_at_us,
    (copy_id, epoch) IN (
        SELECT copy_id, epoch FROM control FINAL
        WHERE kind = 'copy_stopped' AND at >= toDateTime64({since_s:UInt32}, 6, 'UTC')
    ) AS stopped
FROM live FINAL
WHERE kind = 'copy'
GROUP BY copy_id, epoch
HAVING sealed_at_us >= {since_s:UInt32} * 1000000
UNION ALL
SELECT '', toUInt64(lost), toInt64(silent), toUInt8(2)
FROM (
    SELECT sum(JSONExtractUInt(body, 'count')) AS lost
    FROM control FINAL
    WHERE kind = 'decisions_lost'
        AND at >= toDateTime64({from_s:UInt32}, 6, 'UTC') AND at < toDateTime64({to_s:UInt32}, 6, 'UTC')
) AS told
CROSS JOIN (
    SELECT sum(unexplained) AS silent
    FROM (
        SELECT argMax(silent, (version, stored_at)) AS unexplained
        FROM missing_minutes FINAL
        WHERE minute >= toDateTime({from_s:UInt32}, 'UTC') AND minute < toDateTime({to_s:UInt32}, 'UTC')
        GROUP BY minute, copy_id, epoch
    )
) AS untold

-- name: fleet_stand
-- How far the record is settled and rolled up, in three rows. open: how many settlers ever said where they stand, and then the
-- minutes (unix seconds / 60) of which something is on record that is not settled. The journal is read from an hour before
-- the settlers last said where they stand: what is beyond that has been stored since, by whatever clock. Without FINAL, which
-- would read all of it: a flush that stands there twice names the same minutes. rolled: the quarters of an hour of a span
-- (unix seconds / 900) that are rolled up; doubted: those that have minutes in which live totals were found to be wrong.
SELECT 'open', arrayConcat(
        [toUInt32(((
            SELECT (count(), max(stored_at), groupArrayArray(positions), groupArrayArray(minutes)) FROM settled_progress FINAL
        ) AS stood).1)],
        stood.4, groupUniqArrayArray(minutes)
    )
FROM recorded
WHERE topic = {topic:String} AND stored_at >= stood.2 - INTERVAL 1 HOUR
    AND next_offset > arrayFirst(one -> one.1 = log_id AND one.2 = log_partition, stood.3).3
UNION ALL
SELECT 'rolled', groupArray(toUInt32(intDiv(toUnixTimestamp(quarter), 900)))
FROM rolled_quarters FINAL
WHERE whole AND by_day AND quarter >= toDateTime({from_s:UInt32}, 'UTC') AND quarter < toDateTime({to_s:UInt32}, 'UTC')
UNION ALL
SELECT 'doubted', groupUniqArray(toUInt32(intDiv(toUnixTimestamp(minute), 900)))
FROM disagreements FINAL
WHERE kind = 'live' AND gone_at = toDateTime64(0, 6, 'UTC')
    AND minute >= toDateTime({from_s:UInt32}, 'UTC') AND minute < toDateTime({to_s:UInt32}, 'UTC')

-- name: support_callers
-- Callers whose name begins with a text, whatever the capitals, at most so many: stops early once it has them.
SELECT DISTINCT caller
FROM live
WHERE kind = 'caller' AND startsWith(lowerUTF8(caller), lowerUTF8({prefix:String}))
LIMIT {rows:UInt32}

-- name: support_block
-- From when to when the decisions were made among which the block that holds one decision of a copy has it. No block has
-- more than 65,536, so that the key of the table finds it among millions. Older rows do not know of the times of their
-- decisions: they are of the 90 seconds before the block was sealed, or of the 5 after it (clocks are read a moment apart).
SELECT toUnixTimestamp64Micro(min(if(first_at = last_at AND last_at = sealed_at, sealed_at - INTERVAL 90 SECOND, first_at))),
    toUnixTimestamp64Micro(max(if(first_at = last_at AND last_at = sealed_at, sealed_at + INTERVAL 5 SECOND, last_at)))
FROM blocks FINAL
WHERE copy_id = {copy_id:String} AND epoch = {epoch:UInt64}
    AND first_seq <= {seq:UInt64} AND first_seq + decisions > {seq:UInt64}
    AND first_seq + 65536 > {seq:UInt64}
HAVING count() > 0

-- name: support_holder
-- Whose decision it is, and in which minute: found by its identity among all decisions of a span of time. Reads numbers and
-- times of everybody, and of those that match the name; so without FINAL: rows of one identity have all the same caller.
SELECT DISTINCT caller, toUInt32(toUnixTimestamp(toStartOfMinute(at)))
FROM decisions
WHERE copy_id = {copy_id:String} AND epoch = {epoch:UInt64} AND seq = {seq:UInt64}
    AND at >= fromUnixTimestamp64Micro({from_us:Int64}, 'UTC') AND at <= fromUnixTimestamp64Micro({to_us:Int64}, 'UTC')
LIMIT 1

-- name: support_decision
-- One decision of a caller by its identity and minute, which the key of the table finds.
SELECT
    caller, toUnixTimestamp64Micro(at), copy_id, epoch, seq, scope, limit, plan, rate_per_s, burst, per, allowed,
    toInt8(source), toInt8(reason),
    cost_tokens, remaining_tokens, retry_after_ms, policy_version, grant_id, k
FROM decisions FINAL
WHERE caller = {caller:String} AND copy_id = {copy_id:String} AND epoch = {epoch:UInt64} AND seq = {seq:UInt64}
    AND toStartOfMinute(at) = toDateTime({minute_s:UInt32}, 'UTC')
    AND at >= toDateTime64({minute_s:UInt32}, 6, 'UTC') AND at < toDateTime64({minute_s:UInt32} + 60, 6, 'UTC')
LIMIT 1
