-- The fixed catalogue of what the pages may ask. Values are bound by the server, never written into the text.
--
-- The first word of a name says who may run it:
--   caller_   one caller's rows; bound to {caller:String}, and run behind a row filter for that caller.
--   fleet_    nothing of any caller.
--   support_  across callers; only behind the support role.
-- Spans are [from_s, to_s) in unix seconds. Totals are read with FINAL and summed over log_partition.

-- name: caller_usage
-- Totals of one caller by step of time and, in rows of their own, by endpoint: one read, so that they agree.
SELECT
    grouping(scope) AS is_step,
    if(is_step = 1, toString(step_s), scope) AS place,
    sum(live.offered), sum(live.admitted),
    sum(live.refused_spent), sum(live.refused_never), sum(live.refused_emergency),
    sum(live.refused_closed), sum(live.refused_ceiling),
    sum(live.degraded), sum(live.cost_offered), sum(live.cost_admitted)
FROM live FINAL
WHERE kind = 'usage' AND caller = {caller:String}
    AND minute >= toDateTime({from_s:UInt32}, 'UTC') AND minute < toDateTime({to_s:UInt32}, 'UTC')
GROUP BY GROUPING SETS (
    (intDiv(toUnixTimestamp(minute), {step:UInt32}) * {step:UInt32} AS step_s),
    (scope)
)

-- name: caller_steps
-- The plan of one caller (empty where it is not known: only further limits refused) and the copies that its requests
-- reached, by step of time; the last row is the whole span.
SELECT
    grouping(step_s) AS is_span,
    step_s,
    argMaxIf(plan, minute, plan != ''), argMaxIf(rate_per_s, minute, plan != ''), argMaxIf(burst, minute, plan != ''),
    max(reached),
    max(k),
    length(groupUniqArrayArray(copies))
FROM (
    SELECT
        minute,
        intDiv(toUnixTimestamp(minute), {step:UInt32}) * {step:UInt32} AS step_s,
        argMaxIf(live.plan, version, live.plan != '') AS plan,
        argMaxIf(live.rate_per_s, version, live.plan != '') AS rate_per_s,
        argMaxIf(live.burst, version, live.plan != '') AS burst,
        groupUniqArrayArray(live.copies) AS copies,
        length(copies) AS reached,
        max(k_counted) AS k
    FROM live FINAL
    WHERE kind = 'caller' AND caller = {caller:String}
        AND minute >= toDateTime({from_s:UInt32}, 'UTC') AND minute < toDateTime({to_s:UInt32}, 'UTC')
    GROUP BY minute
)
GROUP BY GROUPING SETS ((step_s), ())
ORDER BY is_span, step_s

-- name: caller_last_seen
-- The last minute in which one caller sent anything, and the plan that it had; no row if it never did.
SELECT toUnixTimestamp(minute), plan, rate_per_s, burst
FROM live FINAL
WHERE kind = 'caller' AND caller = {caller:String}
ORDER BY minute DESC, version DESC
LIMIT 1

-- name: caller_busiest_second
-- The second in which one caller sent most, counted in the exact record.
SELECT toUnixTimestamp(toDateTime(at, 'UTC')) AS second_s, count() AS requests
FROM decisions FINAL
WHERE caller = {caller:String}
    AND at >= toDateTime64({from_s:UInt32}, 6, 'UTC') AND at < toDateTime64({to_s:UInt32}, 6, 'UTC')
GROUP BY second_s
ORDER BY requests DESC, second_s
LIMIT 1

-- name: caller_busiest_minute
-- The minute in which one caller sent most, from the totals: for spans in which counting seconds would take too long.
SELECT toUnixTimestamp(minute) AS minute_s, sum(live.offered) AS requests
FROM live FINAL
WHERE kind = 'usage' AND caller = {caller:String}
    AND minute >= toDateTime({from_s:UInt32}, 'UTC') AND minute < toDateTime({to_s:UInt32}, 'UTC')
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

-- name: fleet_marks
-- How far each copy's record is complete, for copies that spoke since a given time.
SELECT copy_id, epoch, toUnixTimestamp64Micro(max(sealed_at)) AS sealed_at_us
FROM live FINAL
WHERE kind = 'copy'
GROUP BY copy_id, epoch
HAVING sealed_at_us >= {since_s:UInt32} * 1000000

-- name: fleet_stopped
-- The copies that said they stopped, since a given time.
SELECT DISTINCT copy_id, epoch
FROM control FINAL
WHERE kind = 'copy_stopped' AND at >= toDateTime64({since_s:UInt32}, 6, 'UTC')

-- name: fleet_lost
-- How many decisions the copies say they made in a span but could not record.
SELECT sum(JSONExtractUInt(body, 'count'))
FROM control FINAL
WHERE kind = 'decisions_lost'
    AND at >= toDateTime64({from_s:UInt32}, 6, 'UTC') AND at < toDateTime64({to_s:UInt32}, 6, 'UTC')

-- name: support_callers
-- Callers whose name begins with a text, whatever the capitals, at most so many: stops early once it has them.
SELECT DISTINCT caller
FROM live
WHERE kind = 'caller' AND startsWith(lowerUTF8(caller), lowerUTF8({prefix:String}))
LIMIT {rows:UInt32}

-- name: support_block
-- When the block that holds one decision of a copy was sealed: tells where in time to look for the decision.
SELECT toUnixTimestamp64Micro(max(sealed_at))
FROM blocks FINAL
WHERE copy_id = {copy_id:String} AND epoch = {epoch:UInt64}
    AND first_seq <= {seq:UInt64} AND first_seq + decisions > {seq:UInt64}
HAVING count() > 0

-- name: support_decision
-- One decision by its identity, within a span of time.
SELECT
    caller, toUnixTimestamp64Micro(at), copy_id, epoch, seq, scope, limit, plan, rate_per_s, burst, per, allowed,
    toInt8(source), toInt8(reason),
    cost_tokens, remaining_tokens, retry_after_ms, policy_version, grant_id, k
FROM decisions FINAL
WHERE copy_id = {copy_id:String} AND epoch = {epoch:UInt64} AND seq = {seq:UInt64}
    AND at >= toDateTime64({from_s:UInt32}, 6, 'UTC') AND at < toDateTime64({to_s:UInt32}, 6, 'UTC')
LIMIT 1
