-- What ``tallygate audit fairness`` asks. Minutes from from_s up to (without) to_s; an empty caller means everybody.

-- name: audit_fairness_totals
-- Sums over all callers and limits; the refusals of limits that are not judged stand apart.
SELECT sumIf(offered, judged), sumIf(admitted, judged), sumIf(refused, judged),
    sum(wrongful),
    [sum(wrongful_displaced), sum(wrongful_cap), sum(wrongful_closed), sum(wrongful_ceiling), sum(wrongful_degraded),
     sum(wrongful_policy), sum(wrongful_clock), sum(wrongful_divided), sum(wrongful_stranded),
     sum(wrongful_stale_empty), sum(wrongful_unknown)],
    sum(over_admitted), sum(early_returns), sumIf(refused, NOT judged),
    toInt64(toUnixTimestamp(max(minute)))
FROM fairness FINAL
WHERE minute >= toDateTime({from_s:Int64}, 'UTC') AND minute < toDateTime({to_s:Int64}, 'UTC')
    AND ({caller:String} = '' OR caller = {caller:String});

-- name: audit_fairness_callers
-- Each bucket that is not in order, or with `all` each; the worst first. The bound shown is that of the worst minute.
SELECT caller, limit, judged, sum(offered), sum(admitted), sum(refused),
    sum(wrongful),
    [sum(wrongful_displaced), sum(wrongful_cap), sum(wrongful_closed), sum(wrongful_ceiling), sum(wrongful_degraded),
     sum(wrongful_policy), sum(wrongful_clock), sum(wrongful_divided), sum(wrongful_stranded),
     sum(wrongful_stale_empty), sum(wrongful_unknown)],
    sum(over_admitted), argMax(excess_tokens, excess_tokens - epsilon_tokens),
    argMax(epsilon_tokens, excess_tokens - epsilon_tokens), max(busiest_second),
    toInt64(toUnixTimestamp(argMin(busiest_at, (-toInt64(busiest_second), busiest_at)))),
    max(k), sum(early_returns)
FROM fairness FINAL
WHERE minute >= toDateTime({from_s:Int64}, 'UTC') AND minute < toDateTime({to_s:Int64}, 'UTC')
    AND ({caller:String} = '' OR caller = {caller:String})
GROUP BY caller, limit, judged
HAVING {all:Bool} OR sum(wrongful) > sum(wrongful_displaced) OR max(excess_tokens - epsilon_tokens) > 0
ORDER BY sum(wrongful) - sum(wrongful_displaced) DESC, max(excess_tokens - epsilon_tokens) DESC, caller, limit
LIMIT {most:UInt32};

-- name: audit_fairness_beyond
-- How many buckets were admitted more than declared.
SELECT uniqExact(caller, limit)
FROM fairness FINAL
WHERE minute >= toDateTime({from_s:Int64}, 'UTC') AND minute < toDateTime({to_s:Int64}, 'UTC')
    AND ({caller:String} = '' OR caller = {caller:String}) AND excess_tokens > epsilon_tokens;
