-- What the settler reads and writes, but decisions (decisions.sql). Every value is bound. One INSERT is one part of one
-- month, and holds only cells whose totals have changed.
--
-- A recount may only raise a cell: decisions are added to the record under their identities and never taken away, but by
-- retention and erasure, which must not lower what was settled. A minute that retention may have thinned is not recounted
-- at all; nor are the totals of all callers, once they are settled, in minutes from before an erasure.

-- name: settle_logs
-- The logs and partitions that the journal of decisions knows, but those that are known. Reads what is of others: the key of
-- the table begins with these columns, and it is kept for good.
SELECT DISTINCT log_id, log_partition
FROM recorded
WHERE topic = {topic:String} AND (log_partition, log_id) NOT IN {known:Array(Tuple(UInt16, String))}
ORDER BY log_id, log_partition;

-- name: settle_news
-- What one partition's journal says beyond a position: how far it reaches, and the minutes that it dirtied since.
SELECT max(next_offset), arraySort(groupUniqArrayArray(minutes))
FROM recorded
WHERE topic = {topic:String} AND log_partition = {partition:UInt16} AND log_id = {log_id:String}
    AND next_offset > {position:UInt64}
HAVING count() > 0;

-- name: settle_progress
-- Where the settlers stand: what is settled, and what is known to be left to do.
SELECT version, positions, minutes, days, unchecked
FROM settled_progress FINAL
WHERE name = {settler:String};

-- name: settle_held
-- What is settled of some minutes, of callers from one name to another ('': to the last): of each cell its current totals, and their version.
SELECT caller, toUInt32(intDiv(toUnixTimestamp(minute), 60)) AS unix_minute, scope, held_version,
    held.1 AS offered, held.2 AS admitted, held.3 AS refused_spent, held.4 AS refused_never, held.5 AS refused_emergency,
    held.6 AS refused_closed, held.7 AS refused_ceiling, held.8 AS degraded, held.9 AS cost_offered,
    held.10 AS cost_admitted
FROM (
    SELECT caller, minute, scope, max(version) AS held_version,
        argMax((offered, admitted, refused_spent, refused_never, refused_emergency, refused_closed, refused_ceiling,
                degraded, cost_offered, cost_admitted), (version, stored_at)) AS held
    FROM settled_minutes
    WHERE minute >= toDateTime({low_s:UInt32}, 'UTC') AND minute < toDateTime({high_s:UInt32}, 'UTC')
        AND caller >= {from_caller:String} AND ({to_caller:String} = '' OR caller < {to_caller:String})
    GROUP BY caller, minute, scope
)
SETTINGS max_threads = 1;

-- name: settle_held_fleet
-- The same of all callers together, by scope, policy version, source and reason, with the highest and the lowest version.
SELECT toUInt32(intDiv(toUnixTimestamp(minute), 60)), scope, policy_version,
    toUInt8(toUInt8(source) * 16 + toUInt8(reason)) AS code, max(version), min(version),
    argMax(offered, (version, stored_at)), argMax(admitted, (version, stored_at)),
    argMax(cost_offered, (version, stored_at)), argMax(cost_admitted, (version, stored_at))
FROM settled_fleet
WHERE minute >= toDateTime({low_s:UInt32}, 'UTC') AND minute < toDateTime({high_s:UInt32}, 'UTC')
GROUP BY minute, scope, policy_version, code
SETTINGS max_threads = 1;

-- name: settle_erased_before
-- Up to when the record may lack what was erased on request: totals of all callers are not counted again before it.
SELECT toUnixTimestamp64Micro(max(erased_before)) FROM erasures;

-- name: settle_days
-- Sums the current minutes of one UTC day again, of the callers any of whose minutes were settled at a version or after.
INSERT INTO settled_days (
    caller, day, scope, version, stored_at, offered, admitted, refused_spent, refused_never, refused_emergency,
    refused_closed, refused_ceiling, degraded, cost_offered, cost_admitted
)
SELECT
    fresh.caller, toDate({low_s:UInt32}, 'UTC'), fresh.scope,
    {version:UInt64}, fromUnixTimestamp64Micro({stored_at_us:Int64}, 'UTC'),
    counts.1, counts.2, counts.3, counts.4, counts.5, counts.6, counts.7, counts.8, counts.9, counts.10
FROM (
    SELECT caller, scope,
        (sum(held.1), sum(held.2), sum(held.3), sum(held.4), sum(held.5), sum(held.6), sum(held.7), sum(held.8),
         sum(held.9), sum(held.10)) AS counts
    FROM (
        SELECT caller, minute, scope,
            argMax((offered, admitted, refused_spent, refused_never, refused_emergency, refused_closed,
                    refused_ceiling, degraded, cost_offered, cost_admitted), (version, stored_at)) AS held
        FROM settled_minutes
        WHERE minute >= toDateTime({low_s:UInt32}, 'UTC') AND minute < toDateTime({high_s:UInt32}, 'UTC')
            AND cityHash64(caller) % {slices:UInt32} = {slice:UInt32}
            AND caller IN (
                SELECT caller FROM settled_minutes
                WHERE minute >= toDateTime({low_s:UInt32}, 'UTC') AND minute < toDateTime({high_s:UInt32}, 'UTC')
                    AND version >= {since:UInt64}
            )
        GROUP BY caller, minute, scope
    )
    GROUP BY caller, scope
) AS fresh
LEFT JOIN (
    SELECT caller, scope, max(version) AS held_version,
        argMax((offered, admitted, refused_spent, refused_never, refused_emergency, refused_closed, refused_ceiling,
                degraded, cost_offered, cost_admitted), (version, stored_at)) AS held
    FROM settled_days
    WHERE day = toDate({low_s:UInt32}, 'UTC') AND cityHash64(caller) % {slices:UInt32} = {slice:UInt32}
    GROUP BY caller, scope
) AS current ON fresh.caller = current.caller AND fresh.scope = current.scope
WHERE current.held_version <= {version:UInt64} AND fresh.counts != current.held AND fresh.counts.1 >= current.held.1
SETTINGS max_threads = 1, optimize_aggregation_in_order = 1, max_rows_to_group_by = 450000,
    group_by_overflow_mode = 'throw', max_insert_block_size = 1000001, min_insert_block_size_rows = 1000001,
    min_insert_block_size_bytes = 0, optimize_on_insert = 0;

-- name: settle_live_progress
-- How far the live totals cover each log: the next offset, and the version, which is higher for a younger log.
SELECT scope AS log_id, log_partition, version - next_seq AS next_offset, version
FROM live FINAL
WHERE kind = 'progress';

-- name: settle_compare
-- Callers whose live totals of some minutes are not the settled ones, at most so many.
SELECT intDiv(toUnixTimestamp(minute), 60), caller,
    sum(live_offered) AS l_offered, sum(live_admitted) AS l_admitted,
    sum(settled_offered) AS s_offered, sum(settled_admitted) AS s_admitted
FROM (
    SELECT minute, caller, offered AS live_offered, admitted AS live_admitted, cost_admitted AS live_cost,
        0 AS settled_offered, 0 AS settled_admitted, 0 AS settled_cost
    FROM live FINAL
    WHERE kind = 'usage'
        AND minute >= toDateTime({low_s:UInt32}, 'UTC') AND minute < toDateTime({high_s:UInt32}, 'UTC')
        AND has({minutes:Array(UInt32)}, toUInt32(intDiv(toUnixTimestamp(minute), 60)))
    UNION ALL
    SELECT minute, caller, 0, 0, 0, held.1, held.2, held.3
    FROM (
        SELECT minute, caller, scope, argMax((offered, admitted, cost_admitted), (version, stored_at)) AS held
        FROM settled_minutes
        WHERE minute >= toDateTime({low_s:UInt32}, 'UTC') AND minute < toDateTime({high_s:UInt32}, 'UTC')
            AND has({minutes:Array(UInt32)}, toUInt32(intDiv(toUnixTimestamp(minute), 60)))
        GROUP BY minute, caller, scope
    )
)
GROUP BY minute, caller
HAVING (l_offered, l_admitted, sum(live_cost)) != (s_offered, s_admitted, sum(settled_cost))
ORDER BY minute, caller
LIMIT {most:UInt32}
SETTINGS max_threads = 1, use_skip_indexes_if_final = 1;

-- name: settle_open_disagreements
-- What was found to disagree with the live totals and is not over, newest first, at most so many.
SELECT intDiv(toUnixTimestamp(minute), 60), caller, toUnixTimestamp64Micro(found_at),
    live_offered, live_admitted, settled_offered, settled_admitted, version, cause
FROM disagreements FINAL
WHERE kind = 'live' AND gone_at = toDateTime64(0, 6, 'UTC')
ORDER BY found_at DESC
LIMIT {most:UInt32};

-- name: settle_redrives
-- How many letters were re-driven since a moment, or little before: only these can explain what minutes from it on lack.
SELECT count() FROM redriven
WHERE topic = {topic:String} AND redriven_at >= fromUnixTimestamp64Micro({since_us:Int64} - 86400000000, 'UTC');

-- name: settle_redriven
-- How many decisions of some callers in some minutes stand where letters were re-driven to: all, and those admitted.
SELECT toUInt32(intDiv(toUnixTimestamp(toStartOfMinute(at)), 60)) AS number, caller::String AS whose,
    count(), countIf(allowed)
FROM decisions FINAL
WHERE caller IN {callers:Array(String)}
    AND at >= fromUnixTimestamp64Micro({low_us:Int64}, 'UTC') AND at < fromUnixTimestamp64Micro({high_us:Int64}, 'UTC')
    AND (log_partition, log_offset) IN (SELECT to_partition, to_offset FROM redriven WHERE topic = {topic:String})
GROUP BY number, whose
SETTINGS max_threads = 2;
