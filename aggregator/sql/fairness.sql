-- What fairness asks beside the decisions (decisions.sql): what is known of their buckets, and where tokens lay.
-- from_caller and to_caller, '' for all that follow, divide callers by name; callers, where it is not empty, are the only ones that are asked for.

-- name: fairness_terms
-- What the limits of callers were held to: their rates in some policy versions, further limits in all.
SELECT caller, limit, policy_version, plan, rate_per_s, burst, per
FROM terms
WHERE (limit != {rate:String} OR has({versions:Array(UInt32)}, policy_version))
    AND caller >= {from_caller:String} AND ({to_caller:String} = '' OR caller < {to_caller:String})
    AND (empty({callers:Array(String)}) OR has({callers:Array(String)}, caller))
ORDER BY caller, limit, policy_version, plan, rate_per_s, burst;

-- name: fairness_carried
-- The state of the buckets of which anything is left at a moment: of each the latest before it. full_at never falls from
-- one row of a bucket to its next, so the latest of those that match is the latest of all; and never from one version of
-- a row to its next, so the index may leave out what does not match.
SELECT caller, limit, state.1 AS levels, state.2 AS marks
FROM (
    SELECT caller, limit, argMax((levels, marks), (minute, version)) AS state
    FROM fairness
    WHERE minute < toDateTime({low_s:UInt32}, 'UTC') AND full_at > fromUnixTimestamp64Micro({low_us:Int64}, 'UTC')
        AND judged AND caller >= {from_caller:String} AND ({to_caller:String} = '' OR caller < {to_caller:String})
        AND (empty({callers:Array(String)}) OR has({callers:Array(String)}, caller))
    GROUP BY caller, limit
)
WHERE notEmpty(levels)
SETTINGS max_threads = 1;

-- name: fairness_stored
-- What is stored of some minutes.
SELECT * EXCEPT (version, stored_at)
FROM fairness FINAL
WHERE minute >= toDateTime({low_s:UInt32}, 'UTC') AND minute < toDateTime({high_s:UInt32}, 'UTC')
    AND caller >= {from_caller:String} AND ({to_caller:String} = '' OR caller < {to_caller:String})
    AND (empty({callers:Array(String)}) OR has({callers:Array(String)}, caller));

-- name: fairness_newest
-- The last minute that anything is stored of.
SELECT toUInt32(intDiv(toUnixTimestamp(max(minute)), 60)) FROM fairness;

-- name: fairness_later
-- The first minute from a moment on that is stored of each caller.
SELECT caller, toUInt32(intDiv(toUnixTimestamp(min(minute)), 60))
FROM fairness
WHERE minute >= toDateTime({high_s:UInt32}, 'UTC') AND judged
    AND caller >= {from_caller:String} AND ({to_caller:String} = '' OR caller < {to_caller:String})
    AND (empty({callers:Array(String)}) OR has({callers:Array(String)}, caller))
GROUP BY caller;

-- name: fairness_own_limits
-- The further limits that are known to be some callers' own: they were replayed in the 31 days before a moment.
SELECT DISTINCT caller, limit
FROM fairness
WHERE limit != {rate:String} AND judged AND caller IN {callers:Array(String)}
    AND minute < toDateTime({low_s:UInt32}, 'UTC') AND minute >= toDateTime({low_s:UInt32}, 'UTC') - INTERVAL 31 DAY;

-- name: fairness_grants
-- The grants of some callers that were held in some minutes, and when each was closed.
SELECT caller, limit, grant_id, copy_id, toUnixTimestamp64Micro(issued_at), toUnixTimestamp64Micro(expires_at), size_tokens
FROM grants FINAL
WHERE caller IN {callers:Array(String)}
    AND issued_at >= fromUnixTimestamp64Micro({since_us:Int64}, 'UTC')
    AND issued_at < fromUnixTimestamp64Micro({high_us:Int64}, 'UTC');

-- name: fairness_closed
-- When grants of some callers were closed by a final settlement.
SELECT caller, limit, grant_id, toUnixTimestamp64Micro(min(at))
FROM settlements FINAL
WHERE caller IN {callers:Array(String)} AND final
    AND grant_id >= {since_us:UInt64} AND grant_id < {high_us:UInt64}
GROUP BY caller, limit, grant_id;

-- name: fairness_spent
-- What was spent of grants of some callers' rates, and when, in order of time.
SELECT caller, limit, grant_id, toUnixTimestamp64Micro(at) AS at_us, cost_tokens
FROM decisions FINAL
WHERE caller IN {callers:Array(String)} AND reason = 'none' AND grant_id > 0
    AND at >= fromUnixTimestamp64Micro({since_us:Int64}, 'UTC')
    AND at < fromUnixTimestamp64Micro({high_us:Int64}, 'UTC')
ORDER BY at_us;

-- name: fairness_spent_charges
-- The same of further limits of the callers' own.
SELECT caller, charge.limit, charge.grant_id, toUnixTimestamp64Micro(at) AS at_us, cost_tokens
FROM decisions FINAL ARRAY JOIN charges AS charge
WHERE caller IN {callers:Array(String)} AND reason = 'none' AND charge.subject = caller AND charge.grant_id > 0
    AND at >= fromUnixTimestamp64Micro({since_us:Int64}, 'UTC')
    AND at < fromUnixTimestamp64Micro({high_us:Int64}, 'UTC')
ORDER BY at_us;

-- name: fairness_blind
-- The blocks of copies whose clocks were off by more than 50 ms while no owner told by how much.
SELECT copy_id, toUnixTimestamp64Micro(first_at), toUnixTimestamp64Micro(last_at)
FROM blocks
WHERE sealed_at >= fromUnixTimestamp64Micro({low_us:Int64}, 'UTC') - INTERVAL 1 HOUR
    AND sealed_at < fromUnixTimestamp64Micro({high_us:Int64}, 'UTC') + INTERVAL 1 HOUR
    AND first_at < fromUnixTimestamp64Micro({high_us:Int64}, 'UTC')
    AND last_at >= fromUnixTimestamp64Micro({low_us:Int64}, 'UTC')
    AND owner_offset_us IS NULL AND abs(shift_us) > 50000;
