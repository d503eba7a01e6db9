-- What is asked of the raw record to hand it out. Every value is bound.

-- name: export_counts
-- At which times of a span a caller has decisions, and how many: times in units of so many seconds.
SELECT intDiv(toUnixTimestamp64Micro(at), {unit_s:Int64} * 1000000) * {unit_s:Int64} AS start_s, count()
FROM decisions FINAL
WHERE caller = {caller:String}
    AND at >= fromUnixTimestamp64Micro({from_us:Int64}, 'UTC') AND at < fromUnixTimestamp64Micro({to_us:Int64}, 'UTC')
GROUP BY start_s
ORDER BY start_s;

-- name: export_rows
-- The decisions of a caller in a span, whole, in the order in which they were made.
SELECT at, caller, scope, allowed, toString(source), toString(reason), limit, plan, rate_per_s, burst, per, cost_tokens,
    remaining_tokens, retry_after_ms, policy_version, grant_id, k, charges, copy_id, epoch, seq, log_partition, log_offset
FROM decisions FINAL
WHERE caller = {caller:String}
    AND at >= fromUnixTimestamp64Micro({from_us:Int64}, 'UTC') AND at < fromUnixTimestamp64Micro({to_us:Int64}, 'UTC')
ORDER BY at, copy_id, epoch, seq;

-- name: export_reach
-- Up to when any copy has said anything in a span, in unix microseconds; 0 if nothing.
SELECT toUnixTimestamp64Micro(max(sealed_at))
FROM blocks
WHERE sealed_at >= fromUnixTimestamp64Micro({from_us:Int64}, 'UTC')
    AND sealed_at < fromUnixTimestamp64Micro({to_us:Int64}, 'UTC');
