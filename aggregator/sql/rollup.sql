-- Quarters of an hour, rolled up from what is settled: what pages of a day and more are made from. Every value is bound.
-- quarters: unix quarters (unix seconds / 900), all between low_s and high_s. since: of quarters that were rolled up before,
-- only callers any of whose minutes were settled at that version or after; 0: everybody.

-- name: roll_open
-- Which quarters of a span are not rolled up, from one on, or are among some: each with the version at which it was, or 0.
SELECT number, if(held.whole, held.version, 0)
FROM (
    SELECT toUInt32(number) AS number
    FROM numbers(intDiv({low_s:UInt32}, 900), intDiv({high_s:UInt32} - {low_s:UInt32}, 900))
) AS every
LEFT JOIN (
    SELECT toUInt32(intDiv(toUnixTimestamp(quarter), 900)) AS number, rolled_quarters.whole AND by_day AS whole, version
    FROM rolled_quarters FINAL
    WHERE quarter >= toDateTime({low_s:UInt32}, 'UTC') AND quarter < toDateTime({high_s:UInt32}, 'UTC')
) AS held USING (number)
WHERE NOT held.whole AND number >= {open_from:UInt32} OR has({quarters:Array(UInt32)}, number)
ORDER BY number DESC;

-- name: roll_filled
-- Which quarters of a span have anything settled, which anything in the live totals, which a minute that was let go, and in
-- which less is settled than the live totals have: there the record has still to come.
SELECT number, max(is_settled), max(is_live), max(is_too_late), sum(settled) < sum(counted)
FROM (
    SELECT number, 1 AS is_settled, 0 AS is_live, 0 AS is_too_late, sum(held) AS settled, toUInt64(0) AS counted
    FROM (
        SELECT toUInt32(intDiv(toUnixTimestamp(minute), 900)) AS number, argMax(offered, (version, stored_at)) AS held
        FROM settled_fleet
        WHERE minute >= toDateTime({low_s:UInt32}, 'UTC') AND minute < toDateTime({high_s:UInt32}, 'UTC')
        GROUP BY minute, scope, policy_version, source, reason
    )
    GROUP BY number
    UNION ALL
    SELECT toUInt32(intDiv(toUnixTimestamp(minute), 900)) AS number, 0, 1, 0, toUInt64(0), sum(offered)
    FROM live FINAL
    WHERE kind = 'fleet' AND caller = ''
        AND minute >= toDateTime({low_s:UInt32}, 'UTC') AND minute < toDateTime({high_s:UInt32}, 'UTC')
    GROUP BY number
    UNION ALL
    SELECT DISTINCT toUInt32(intDiv(toUnixTimestamp(minute), 900)), 0, 0, 1, toUInt64(0), toUInt64(0)
    FROM disagreements
    WHERE kind = 'too_late'
        AND minute >= toDateTime({low_s:UInt32}, 'UTC') AND minute < toDateTime({high_s:UInt32}, 'UTC')
)
GROUP BY number;

-- name: roll_usage
-- Sums the current settled minutes of some quarters by caller and scope.
INSERT INTO quarters (
    kind, caller, quarter, scope, version, stored_at, offered, admitted, refused_spent, refused_never, refused_emergency,
    refused_closed, refused_ceiling, degraded, cost_offered, cost_admitted
)
SELECT 'usage', caller, toDateTime(number * 900, 'UTC'), scope, {version:UInt64},
    fromUnixTimestamp64Micro({stored_at_us:Int64}, 'UTC'),
    sum(held.1), sum(held.2), sum(held.3), sum(held.4), sum(held.5), sum(held.6), sum(held.7), sum(held.8), sum(held.9),
    sum(held.10)
FROM (
    SELECT caller, toUInt32(intDiv(toUnixTimestamp(minute), 900)) AS number, scope,
        argMax((offered, admitted, refused_spent, refused_never, refused_emergency, refused_closed, refused_ceiling,
                degraded, cost_offered, cost_admitted), (version, stored_at)) AS held
    FROM settled_minutes
    WHERE minute >= toDateTime({low_s:UInt32}, 'UTC') AND minute < toDateTime({high_s:UInt32}, 'UTC')
        AND has({quarters:Array(UInt32)}, toUInt32(intDiv(toUnixTimestamp(minute), 900)))
        AND cityHash64(caller) % {slices:UInt32} = {slice:UInt32}
        AND ({since:UInt64} = 0 OR caller IN (
            SELECT caller FROM settled_minutes
            WHERE minute >= toDateTime({low_s:UInt32}, 'UTC') AND minute < toDateTime({high_s:UInt32}, 'UTC')
                AND version >= {since:UInt64}
        ))
    GROUP BY caller, minute, scope
)
GROUP BY caller, number, scope
SETTINGS max_threads = 2, optimize_aggregation_in_order = 1, max_rows_to_group_by = 450000,
    group_by_overflow_mode = 'throw', max_insert_block_size = 1000001, min_insert_block_size_rows = 1000001,
    min_insert_block_size_bytes = 0, optimize_on_insert = 0;

-- name: roll_callers
-- What else is said of the same callers: plan and copies of the live totals, busiest minute of the settled ones, busiest second
-- of the replay. A minute's rate bucket has all decisions but those that further limits refused, so that it has every second
-- whole where these are none; what it lacks can at most have come in its busiest second.
INSERT INTO quarters (
    kind, caller, quarter, version, stored_at, plan, rate_per_s, burst, copies, reached, k_counted,
    busiest_minute, busiest_minute_at, busiest_second, busiest_second_at, second_at_most
)
SELECT 'caller', caller, toDateTime(number * 900, 'UTC'), {version:UInt64},
    fromUnixTimestamp64Micro({stored_at_us:Int64}, 'UTC'),
    argMaxIf(of_plan.1, minute, of_plan.1 != ''), argMaxIf(of_plan.2, minute, of_plan.1 != ''),
    argMaxIf(of_plan.3, minute, of_plan.1 != ''),
    groupUniqArrayArray(on_copies), max(length(on_copies)), max(k),
    max(in_minute), argMin(minute, (-toInt64(in_minute), minute)),
    max(in_second), argMin(second_at, (-toInt64(in_second), second_at)),
    if(maxIf(at_most, at_most > in_second) < max(in_second), 0, maxIf(at_most, at_most > in_second))
FROM (
    SELECT caller, minute, toUInt32(intDiv(toUnixTimestamp(minute), 900)) AS number,
        argMaxIf((live_plan, live_rate, live_burst), live_version, live_plan != '') AS of_plan,
        groupUniqArrayArray(live_copies) AS on_copies, max(live_k) AS k, sum(settled) AS in_minute,
        max(replayed) AS in_second, argMin(replayed_at, (-toInt64(replayed), replayed_at)) AS second_at,
        if(sum(seen) = in_minute, in_second + sum(beside), in_minute) AS at_most
    FROM (
        SELECT caller::String AS caller, minute, plan::String AS live_plan, rate_per_s AS live_rate, burst AS live_burst,
            version AS live_version, copies::Array(String) AS live_copies, k_counted AS live_k, 0::UInt64 AS settled,
            0::UInt64 AS replayed, toDateTime(0, 'UTC') AS replayed_at, 0::UInt64 AS seen, 0::UInt64 AS beside
        FROM live FINAL
        WHERE kind = 'caller'
            AND minute >= toDateTime({low_s:UInt32}, 'UTC') AND minute < toDateTime({high_s:UInt32}, 'UTC')
        UNION ALL
        SELECT caller::String, minute, '', 0, 0, 0, [], 0,
            argMax(offered, (version, stored_at)), 0, toDateTime(0, 'UTC'), 0, 0
        FROM settled_minutes
        WHERE minute >= toDateTime({low_s:UInt32}, 'UTC') AND minute < toDateTime({high_s:UInt32}, 'UTC')
        GROUP BY caller, minute, scope
        UNION ALL
        SELECT caller::String, minute, '', 0, 0, 0, [], 0, 0,
            if(limit = {rate:String} AND judged, busiest_second, 0), busiest_at,
            if(limit = {rate:String}, offered, refused),
            multiIf(limit != {rate:String}, refused, judged, 0, offered)
        FROM fairness FINAL
        WHERE minute >= toDateTime({low_s:UInt32}, 'UTC') AND minute < toDateTime({high_s:UInt32}, 'UTC')
    )
    WHERE has({quarters:Array(UInt32)}, number) AND cityHash64(caller) % {slices:UInt32} = {slice:UInt32}
        AND ({since:UInt64} = 0 OR caller IN (
            SELECT caller FROM settled_minutes
            WHERE minute >= toDateTime({low_s:UInt32}, 'UTC') AND minute < toDateTime({high_s:UInt32}, 'UTC')
                AND version >= {since:UInt64}
        ))
    GROUP BY caller, minute
)
GROUP BY caller, number
SETTINGS max_threads = 2, use_skip_indexes_if_final = 1, max_rows_to_group_by = 450000, group_by_overflow_mode = 'throw',
    max_insert_block_size = 1000001, min_insert_block_size_rows = 1000001, min_insert_block_size_bytes = 0,
    optimize_on_insert = 0;

-- name: six_hours
-- What is rolled up of a part of a day, from low_s to high_s of the day that begins at day_s, each quarter once: stands in
-- roll_days where that says six_hours. Of everybody, or (where all were rolled up before, at since) of callers of whom some
-- were rolled up just now, at this version.
SELECT
    caller::String AS caller, kind, toUInt8((toUnixTimestamp(quarter) - {day_s:UInt32}) / 900) AS nth, scope::String AS scope,
    offered, admitted, refused_spent, refused_never, refused_emergency, refused_closed, refused_ceiling, degraded,
    cost_offered, cost_admitted, plan::String AS plan, rate_per_s, burst, copies::Array(String) AS copies, reached, k_counted,
    busiest_minute, busiest_minute_at, busiest_second, busiest_second_at, second_at_most
FROM quarters FINAL
WHERE quarter >= toDateTime({low_s:UInt32}, 'UTC') AND quarter < toDateTime({high_s:UInt32}, 'UTC')
    AND cityHash64(caller) % {slices:UInt32} = {slice:UInt32}
    AND ({since:UInt64} = 0 OR caller IN (
        SELECT caller FROM quarters
        WHERE version = {version:UInt64} AND quarter >= toDateTime({low_s:UInt32}, 'UTC')
            AND quarter < toDateTime({high_s:UInt32}, 'UTC')
    ));

-- name: roll_days
-- Puts what the quarters of six hours of a day have together, by caller.
INSERT INTO quarter_days (caller, kind, scope, at, names, numbers, day, part, version, stored_at)
SELECT *, toDate(toDateTime({day_s:UInt32}, 'UTC')), {part:UInt8}, {version:UInt64},
    fromUnixTimestamp64Micro({stored_at_us:Int64}, 'UTC')
FROM (
    SELECT caller, of_what.1, of_what.2, held.1, blocks.1, arrayFlatten(blocks.2)
    FROM (
        SELECT caller, of_what,
            arraySort(groupArray((nth, sums.1, sums.2, sums.3, sums.4, sums.5, sums.6, sums.7, sums.8, sums.9, sums.10))) AS held,
            arrayFilter(one -> arrayExists(number -> number > 0, one.2), [
                ('offered', held.2), ('admitted', held.3), ('refused_spent', held.4), ('refused_never', held.5),
                ('refused_emergency', held.6), ('refused_closed', held.7), ('refused_ceiling', held.8), ('degraded', held.9),
                ('cost_offered', held.10), ('cost_admitted', held.11)
            ]) AS blocks
        FROM (
            SELECT caller, nth, arrayJoin([('usage', scope), ('total', '')]) AS of_what,
                (sum(offered), sum(admitted), sum(refused_spent), sum(refused_never), sum(refused_emergency),
                 sum(refused_closed), sum(refused_ceiling), sum(degraded), sum(cost_offered), sum(cost_admitted)) AS sums
            FROM (six_hours)
            WHERE kind = 'usage'
            GROUP BY caller, nth, of_what
        )
        GROUP BY caller, of_what
    )
    UNION ALL
    SELECT caller, 'endpoints', '', []::Array(UInt8), held.1,
        arrayConcat(held.2, held.3, held.4, held.5, held.6, held.7, held.8, held.9, held.10, held.11)
    FROM (
        SELECT caller,
            arraySort(groupArray((scope, sums.1, sums.2, sums.3, sums.4, sums.5, sums.6, sums.7, sums.8, sums.9, sums.10)))
                AS held
        FROM (
            SELECT caller, scope,
                (sum(offered), sum(admitted), sum(refused_spent), sum(refused_never), sum(refused_emergency),
                 sum(refused_closed), sum(refused_ceiling), sum(degraded), sum(cost_offered), sum(cost_admitted)) AS sums
            FROM (six_hours)
            WHERE kind = 'usage'
            GROUP BY caller, scope
        )
        GROUP BY caller
    )
    UNION ALL
    SELECT caller, 'caller', '', held.1, blocks.1, arrayFlatten(blocks.2)
    FROM (
        SELECT caller,
            arraySort(groupArray((
                nth, reached, toUInt64(k_counted), busiest_minute, toUInt64(toUnixTimestamp(busiest_minute_at)),
                busiest_second, toUInt64(toUnixTimestamp(busiest_second_at)), second_at_most
            ))) AS held,
            arrayFilter(one -> arrayExists(number -> number > 0, one.2), [
                ('reached', held.2), ('k_counted', held.3), ('busiest_minute', held.4), ('busiest_minute_at', held.5),
                ('busiest_second', held.6), ('busiest_second_at', held.7), ('second_at_most', held.8)
            ]) AS blocks
        FROM (six_hours)
        WHERE kind = 'caller'
        GROUP BY caller
    )
    UNION ALL
    SELECT caller, 'plan', plan, held.1, blocks.1, arrayFlatten(blocks.2)
    FROM (
        SELECT caller, plan, arraySort(groupArray((nth, reinterpretAsUInt64(rate_per_s), burst))) AS held,
            arrayFilter(one -> arrayExists(number -> number > 0, one.2), [('rate_per_s', held.2), ('burst', held.3)]) AS blocks
        FROM (six_hours)
        WHERE kind = 'caller' AND plan != ''
        GROUP BY caller, plan
    )
    UNION ALL
    SELECT caller, 'copies', '', []::Array(UInt8), held.1, arrayConcat(held.2, held.3)
    FROM (
        SELECT caller,
            sumMap(copies, arrayMap(one -> bitShiftLeft(toUInt64(nth < 64), nth % 64), copies),
                arrayMap(one -> bitShiftLeft(toUInt64(nth >= 64), nth % 64), copies)) AS held
        FROM (six_hours)
        WHERE kind = 'caller' AND notEmpty(copies)
        GROUP BY caller
    )
)
SETTINGS max_threads = 2, use_skip_indexes_if_final = 1, max_rows_to_group_by = 450000, group_by_overflow_mode = 'throw',
    max_insert_block_size = 1000001, min_insert_block_size_rows = 1000001, min_insert_block_size_bytes = 0,
    optimize_on_insert = 0;

-- name: roll_made
-- Which tables of quarters are in use: a replay that is exchanged puts empty ones in their place.
SELECT arraySort(groupArray((name, uuid::String))) AS now_made
FROM system.tables
WHERE database = currentDatabase() AND name IN ('quarters', 'quarter_days', 'rolled_quarters');

-- name: roll_marks
-- Writes down that some quarters are rolled up, if the tables are still those (made) that they were rolled up in; or that they
-- are no longer. The table that is written to is found first: one that was exchanged before that is seen here, and what is
-- exchanged afterwards takes the mark with it.
INSERT INTO rolled_quarters (quarter, version, stored_at, whole, by_day)
SELECT toDateTime(arrayJoin({quarters:Array(UInt32)}) * 900, 'UTC'), {version:UInt64},
    fromUnixTimestamp64Micro({stored_at_us:Int64}, 'UTC'), {whole:Bool}, {whole:Bool}
FROM (roll_made)
WHERE NOT {whole:Bool} OR now_made = {made:Array(Tuple(String, String))};
