-- What became of the tokens that were lent: each grant with what the owner lent, what its copy and its owner stated of it,
-- and what decisions name it. docs/ledger.md defines the terms. Every value is bound; a grant belongs to the span in which
-- its id lies, for ids are the owner's clock in unix microseconds. {caller:String} is '' for everybody. Of everybody, those
-- whose names are from {from_caller:String} on, and before {to_caller:String} if that is not ''.

-- name: accounts
-- One row a grant: stands in the queries below where they say accounts.
SELECT
    caller, limit, grant_id,
    max(holder) AS held_by,
    max(is_lent) AS lent,
    max(granted) AS size,
    max(expires_us) AS expires_at_us,
    sum(is_final) AS finals,
    max(total) AS settled,
    argMaxIf(adjusted_by, total, is_final) AS adjusted,
    max(is_credit) AS was_credited,
    max(known) AS known_spent,
    toInt64(sum(cost)) AS named,
    sum(number) AS decisions,
    named + adjusted AS spent,
    if(finals > 0 AND lent, toInt64(size) - toInt64(settled), 0) AS returned,
    if(finals = 0 AND lent AND was_credited, greatest(0, toInt64(size) - greatest(named, toInt64(known_spent))), 0)
        AS credited,
    if(finals = 0 AND lent, greatest(0, toInt64(size) - named) - credited, 0) AS outstanding,
    if(lent, toInt64(size) - spent - returned - credited - outstanding, 0) AS unexplained,
    if(was_credited, greatest(0, spent - toInt64(known_spent)), 0) AS given_back_and_spent
FROM (
    SELECT
        caller::String AS caller, limit::String AS limit, grant_id, (copy_id::String, epoch) AS holder,
        true AS is_lent, size_tokens AS granted, toUnixTimestamp64Micro(expires_at) AS expires_us,
        false AS is_final, 0::UInt64 AS total, 0::Int64 AS adjusted_by, false AS is_credit, 0::UInt64 AS known,
        0::UInt64 AS cost, 0::UInt64 AS number
    FROM grants FINAL
    WHERE grant_id >= {from_us:Int64} AND grant_id < {to_us:Int64}
        AND issued_at >= fromUnixTimestamp64Micro({from_us:Int64} - 86400000000, 'UTC')
        AND issued_at < fromUnixTimestamp64Micro({to_us:Int64} + 86400000000, 'UTC')
        AND ({caller:String} = '' OR caller = {caller:String})
        AND caller >= {from_caller:String} AND ({to_caller:String} = '' OR caller < {to_caller:String})
    UNION ALL
    SELECT
        caller::String, limit::String, grant_id, (copy_id::String, epoch), false, 0, 0,
        final, if(final, spent_tokens, 0), if(final, adjusted_tokens, 0),
        cause = 'credited', if(final, 0, spent_tokens), 0, 0
    FROM settlements FINAL
    WHERE grant_id >= {from_us:Int64} AND grant_id < {to_us:Int64}
        AND ({caller:String} = '' OR caller = {caller:String})
        AND caller >= {from_caller:String} AND ({to_caller:String} = '' OR caller < {to_caller:String})
    UNION ALL
    SELECT caller, limit, grant_id, ('', 0), false, 0, 0, false, 0, 0, false, 0, sum(cost_tokens), count()
    FROM (named)
    WHERE grant_id > 0
    GROUP BY caller, limit, grant_id
)
GROUP BY caller, limit, grant_id;

-- name: named
-- What decisions took of the grants of a span: one row a decision and grant. Stands in accounts.
SELECT caller::String AS caller, limit::String AS limit, grant_id, cost_tokens
FROM decisions FINAL
WHERE allowed AND cost_tokens > 0 AND grant_id >= {from_us:Int64} AND grant_id < {to_us:Int64}
    AND at >= fromUnixTimestamp64Micro({from_us:Int64} - 3600000000, 'UTC')
    AND at < fromUnixTimestamp64Micro({decided_to_us:Int64}, 'UTC')
    AND ({caller:String} = '' OR caller = {caller:String})
    AND caller >= {from_caller:String} AND ({to_caller:String} = '' OR caller < {to_caller:String})
UNION ALL
SELECT charge.1, charge.2, charge.3, cost_tokens
FROM decisions FINAL
ARRAY JOIN charges AS charge
WHERE allowed AND cost_tokens > 0 AND notEmpty(charges)
    AND charge.1 NOT IN (SELECT concat('erased:', leftPad(lower(hex(erasure_id)), 16, '0')) FROM erasures)
    AND charge.3 >= {from_us:Int64} AND charge.3 < {to_us:Int64}
    AND at >= fromUnixTimestamp64Micro({from_us:Int64} - 3600000000, 'UTC')
    AND at < fromUnixTimestamp64Micro({decided_to_us:Int64}, 'UTC')
    AND ({caller:String} = '' OR charge.1 = {caller:String})
    AND charge.1 >= {from_caller:String} AND ({to_caller:String} = '' OR charge.1 < {to_caller:String});

-- name: decided_until
-- How late a decision may name a grant of the span: until its total was closed, which an outage can put off for days.
SELECT greatest({to_us:Int64} + 86400000000, toUnixTimestamp64Micro(max(at)) + 3600000000)
FROM settlements
WHERE grant_id >= {from_us:Int64} AND grant_id < {to_us:Int64}
    AND ({caller:String} = '' OR caller = {caller:String});

-- name: grant_parts
-- Names of callers that divide the decisions of a span's grants into parts of at most so many, and one caller more.
SELECT min(caller) AS from_caller
FROM (
    SELECT caller,
        intDiv(sum(held) OVER (ORDER BY caller ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW), {most:UInt64}) AS part
    FROM (
        SELECT caller::String AS caller, count() AS held
        FROM decisions
        WHERE at >= fromUnixTimestamp64Micro({from_us:Int64} - 3600000000, 'UTC')
            AND at < fromUnixTimestamp64Micro({decided_to_us:Int64}, 'UTC')
        GROUP BY caller
    )
)
GROUP BY part
ORDER BY from_caller;

-- name: ledger
-- Per hour in which grants were lent: what became of their tokens.
SELECT
    toUnixTimestamp(toStartOfHour(fromUnixTimestamp64Micro(toInt64(grant_id), 'UTC'))) AS hour_s,
    countIf(lent), sum(size), sumIf(spent, lent), sum(returned), sum(credited), sum(outstanding),
    sumIf(unexplained, unexplained > 0), -sumIf(unexplained, unexplained < 0),
    sumIf(adjusted, lent), sum(given_back_and_spent),
    countIf(NOT lent AND (finals > 0 OR decisions > 0)), sumIf(spent, NOT lent)
FROM (accounts)
GROUP BY hour_s
ORDER BY hour_s
SETTINGS max_bytes_before_external_group_by = 1000000000;

-- name: grants_compared
-- Of the grants of a span: how many were settled, what decisions name of those and what their final totals say; and the
-- grants that do not agree, and those that nobody settled, at most 1000 of each. Where a copy's decisions were erased on
-- request, its grants of shared limits may lack what those took: counted apart.
WITH (SELECT max(grant_id) FROM grants WHERE grant_id < {to_us:Int64}) AS newest_us
SELECT
    countIf(lent), countIf(lent AND finals > 0),
    sumIf(named, lent AND finals > 0), sumIf(adjusted, lent AND finals > 0), sumIf(settled, lent AND finals > 0),
    sumIf(named, lent AND finals = 0),
    countIf(is_fault) AS faults,
    countIf(is_open) AS unsettled,
    countIf(may_be_erased), sumIf(unexplained, may_be_erased),
    groupArraySortedIf(1000)(grant_row, is_fault),
    groupArraySortedIf(1000)(grant_row, is_open)
FROM (
    SELECT
        *,
        unexplained > 0 AND held_by IN (SELECT DISTINCT copy_id::String, epoch FROM erased_blocks) AS may_be_erased,
        (unexplained != 0 AND NOT may_be_erased) OR finals > 1 OR (NOT lent AND (finals > 0 OR decisions > 0))
            AS is_fault,
        NOT is_fault AND lent AND finals = 0 AND (was_credited OR expires_at_us + 60000000 < newest_us) AS is_open,
        (
            caller, limit, grant_id, held_by.1, held_by.2, lent, toUInt64(size), finals, settled, adjusted, was_credited,
            known_spent, named, decisions
        ) AS grant_row
    FROM (accounts)
)
SETTINGS max_bytes_before_external_group_by = 1000000000;

-- name: lives_that_stopped
-- Which of some copies' lives said that they end.
SELECT DISTINCT copy_id::String, epoch
FROM control
WHERE kind = 'copy_stopped' AND (copy_id, epoch) IN {lives:Array(Tuple(String, UInt64))};

-- name: named_by_minutes
-- The same as named, from what the settler summed by minute.
SELECT caller::String AS caller, limit::String AS limit, grant_id, spent AS cost_tokens
FROM grant_minutes FINAL
WHERE grant_id >= {from_us:Int64} AND grant_id < {to_us:Int64}
    AND minute >= toDateTime(intDiv({from_us:Int64}, 1000000) - 3600, 'UTC')
    AND ({caller:String} = '' OR caller = {caller:String});

-- name: settle_unknown_subjects
-- What stands for erased callers where others' decisions were charged to their limits.
SELECT concat('erased:', leftPad(lower(hex(erasure_id)), 16, '0')) FROM erasures;

-- name: settle_hours
-- The hours in which the grants were lent that some minutes' decisions took of, or that were settled or credited in these,
-- up to eight days after they were lent: as long as a copy keeps what it could not ship.
SELECT intDiv(grant_id, 3600000000) AS hour
FROM grant_minutes
WHERE minute >= toDateTime({low_s:UInt32}, 'UTC') AND minute < toDateTime({high_s:UInt32}, 'UTC')
    AND has({minutes:Array(UInt32)}, toUInt32(intDiv(toUnixTimestamp(minute), 60)))
GROUP BY hour
UNION DISTINCT
SELECT intDiv(grant_id, 3600000000) AS hour
FROM settlements
WHERE at >= toDateTime64({low_s:UInt32}, 6, 'UTC') AND at < toDateTime64({high_s:UInt32}, 6, 'UTC')
    AND has({minutes:Array(UInt32)}, toUInt32(intDiv(toUnixTimestamp(toStartOfMinute(at)), 60)))
    AND grant_id >= {low_us:Int64} - 691200000000
GROUP BY hour
SETTINGS max_threads = 1;

-- name: settle_ledger
-- Sums the accounts of one hour's grants by caller and limit; writes what has changed.
INSERT INTO ledger_hours (
    caller, limit, hour, version, stored_at, grants, granted, spent, returned, credited, outstanding, missing, surplus,
    adjusted, given_back_and_spent, not_on_record, spent_not_on_record
)
SELECT
    fresh.caller, fresh.limit, toDateTime(intDiv({from_us:Int64}, 1000000), 'UTC'),
    {version:UInt64}, fromUnixTimestamp64Micro({stored_at_us:Int64}, 'UTC'),
    sums.1, sums.2, sums.3, sums.4, sums.5, sums.6, sums.7, sums.8, sums.9, sums.10, sums.11, sums.12
FROM (
    SELECT caller, limit,
        (
            countIf(lent), toInt64(sum(size)), sumIf(spent, lent), sum(returned), sum(credited), sum(outstanding),
            sumIf(unexplained, unexplained > 0), -sumIf(unexplained, unexplained < 0),
            sumIf(adjusted, lent), sum(given_back_and_spent),
            countIf(NOT lent AND (finals > 0 OR decisions > 0)), sumIf(spent, NOT lent)
        ) AS sums
    FROM (accounts)
    GROUP BY caller, limit
) AS fresh
LEFT JOIN (
    SELECT caller::String AS caller, limit::String AS limit, max(version) AS held_version,
        argMax(
            (grants, granted, spent, returned, credited, outstanding, missing, surplus, adjusted,
             given_back_and_spent, not_on_record, spent_not_on_record), (version, stored_at)
        ) AS held
    FROM ledger_hours
    WHERE hour = toDateTime(intDiv({from_us:Int64}, 1000000), 'UTC')
    GROUP BY caller, limit
) AS current ON fresh.caller = current.caller AND fresh.limit = current.limit
WHERE current.held_version <= {version:UInt64} AND fresh.sums != current.held
SETTINGS max_threads = 1, max_bytes_before_external_group_by = 1000000000;

-- name: ledger_kept
-- Per hour, what the settler last summed: the current versions of all callers' hours, or of one's.
SELECT
    toUnixTimestamp(hour), sum(held.1), sum(held.2), sum(held.3), sum(held.4), sum(held.5), sum(held.6), sum(held.7),
    sum(held.8), sum(held.9), sum(held.10), sum(held.11), sum(held.12)
FROM (
    SELECT hour,
        argMax(
            (grants, granted, spent, returned, credited, outstanding, missing, surplus, adjusted,
             given_back_and_spent, not_on_record, spent_not_on_record), (version, stored_at)
        ) AS held
    FROM ledger_hours
    WHERE hour >= toDateTime(intDiv({from_us:Int64}, 1000000), 'UTC')
        AND toUnixTimestamp(hour) * 1000000 < {to_us:Int64}
        AND ({caller:String} = '' OR caller = {caller:String})
    GROUP BY caller, limit, hour
)
GROUP BY hour
ORDER BY hour;
