-- What is asked of the record about its completeness: how far each copy's life is recorded, and what is missing in it.
-- Every value is bound. Spans are [from_us, to_us) in unix microseconds. A copy's epoch that a span touches is looked at
-- whole where its end is concerned; of its holes, those before a block that was sealed in the span.
-- begins_us, blocks_kept_us, cut_logs: where the record begins (aggregator/retention/begins.py). What a life numbered before
-- its first block on record is not missing, if it had begun before the record and blocks of that time may have been elsewhere:
-- in a log that was not read from its beginning, or on record until they were kept no longer.

-- name: lives_in_span
-- Each copy's life that a span touches, a page at a time: how far it is recorded, and what is said of its end.
WITH touched AS (
    SELECT copy_id, epoch
    FROM (
        SELECT copy_id, epoch FROM blocks
        WHERE sealed_at >= fromUnixTimestamp64Micro({from_us:Int64}, 'UTC')
            AND sealed_at < fromUnixTimestamp64Micro({to_us:Int64}, 'UTC')
        UNION DISTINCT
        SELECT copy_id, epoch FROM control
        WHERE kind IN ('copy_started', 'copy_stopped', 'anchor', 'copy_found', 'decisions_lost', 'facts_lost')
            AND at >= fromUnixTimestamp64Micro({from_us:Int64}, 'UTC')
            AND at < fromUnixTimestamp64Micro({to_us:Int64}, 'UTC')
    )
    WHERE (copy_id, epoch) > ({after_copy:String}, {after_epoch:UInt64})
    ORDER BY copy_id, epoch
    LIMIT {lives:UInt32}
)
SELECT
    copy_id,
    epoch,
    max(recorded_end) AS recorded_to,
    max(stated_end) AS stated_to,
    argMax(stated_by, (stated_end, stated_by)) AS said_by,
    max(lost_facts) AS facts_lost,
    toBool(max(says_end)) AS end_known,
    toUnixTimestamp64Micro(max(last_at)) AS last_at_us,
    toBool(max(is_block)) AS has_blocks
FROM (
    SELECT
        copy_id, epoch, max(first_seq + decisions) AS recorded_end, max(sealed_at) AS last_at,
        0 AS stated_end, '' AS stated_by, 0 AS lost_facts, 0 AS says_end, 1 AS is_block
    FROM blocks
    WHERE (copy_id, epoch) IN touched
    GROUP BY copy_id, epoch
    UNION ALL
    SELECT
        copy_id, epoch, 0, max(at),
        max(JSONExtractUInt(body, 'next_seq')), kind,
        maxIf(JSONExtractUInt(body, 'total'), kind = 'facts_lost'),
        max(kind IN ('copy_stopped', 'copy_found') AND JSONType(body, 'next_seq') != 'Null'), 0
    FROM control
    WHERE kind IN ('copy_started', 'copy_stopped', 'anchor', 'copy_found', 'facts_lost')
        AND (copy_id, epoch) IN touched
    GROUP BY copy_id, epoch, kind
    UNION ALL
    SELECT
        copy_id, epoch, 0, max(at),
        max(JSONExtractUInt(body, 'first_seq') + JSONExtractUInt(body, 'count')), 'decisions_lost', 0, 0, 0
    FROM control
    WHERE kind = 'decisions_lost' AND (copy_id, epoch) IN touched
    GROUP BY copy_id, epoch
)
GROUP BY copy_id, epoch
ORDER BY copy_id, epoch;

-- name: holes_in_span
-- The numbers that no block holds, of some lives, between blocks: each before a block that was sealed in the span, and whether
-- these are from before the record begins.
SELECT copy_id, epoch, reached AS first_seq, start AS end_seq, toUnixTimestamp64Micro(sealed_at) AS before_us,
    is_first AND started_us < {begins_us:Int64}
        AND (has({cut_logs:Array(Tuple(UInt16, String))}, (log_partition, log_id)) OR started_us < {blocks_kept_us:Int64})
FROM (
    SELECT
        copy_id, epoch, first_seq AS start, sealed_at, log_partition, log_id::String AS log_id,
        toInt64(intDiv(epoch, 1048576)) * 1000 + shift_us AS started_us,
        before.blocks + count() OVER (
            PARTITION BY copy_id, epoch ORDER BY first_seq, decisions ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
        ) = 0 AS is_first,
        greatest(
            before.reached,
            max(first_seq + decisions) OVER (
                PARTITION BY copy_id, epoch ORDER BY first_seq, decisions ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
            )
        ) AS reached
    FROM blocks
    LEFT JOIN (
        SELECT copy_id, epoch, max(first_seq + decisions) AS reached, count() AS blocks
        FROM blocks
        WHERE (copy_id, epoch) IN {lives:Array(Tuple(String, UInt64))}
            AND sealed_at < fromUnixTimestamp64Micro({from_us:Int64}, 'UTC')
        GROUP BY copy_id, epoch
    ) AS before USING (copy_id, epoch)
    WHERE (copy_id, epoch) IN {lives:Array(Tuple(String, UInt64))}
        AND sealed_at >= fromUnixTimestamp64Micro({from_us:Int64}, 'UTC')
        AND sealed_at < fromUnixTimestamp64Micro({to_us:Int64}, 'UTC')
)
WHERE start > reached AND (copy_id, epoch, start) > ({after_copy:String}, {after_epoch:UInt64}, {after_seq:UInt64})
ORDER BY copy_id, epoch, start
LIMIT {holes:UInt32};

-- name: losses_of
-- What copies say they lost, of some lives: each record's numbers.
SELECT
    copy_id, epoch, JSONExtractUInt(body, 'first_seq') AS first_seq,
    first_seq + JSONExtractUInt(body, 'count') AS end_seq
FROM control FINAL
WHERE kind = 'decisions_lost' AND (copy_id, epoch) IN {lives:Array(Tuple(String, UInt64))}
ORDER BY copy_id, epoch, first_seq, end_seq;

-- name: record_until
-- The time of the newest block: what the record knows of the present.
SELECT toUnixTimestamp64Micro(max(sealed_at)) FROM blocks;

-- name: settle_missing
-- How many numbers no block holds before the blocks that were sealed in some minutes, by life and minute, and how many of them
-- no loss record of their life names; writes what has changed. Where a block should begin is known from what its copy sealed
-- in the hour before, and from all that it ever sealed where that is nothing; what is from before the record begins is not
-- missing.
INSERT INTO missing_minutes (minute, copy_id, epoch, version, stored_at, missing, silent)
SELECT
    fresh.minute, fresh.copy_id, fresh.epoch, {version:UInt64}, fromUnixTimestamp64Micro({stored_at_us:Int64}, 'UTC'),
    fresh.missing, fresh.silent
FROM (
    SELECT copy_id, epoch, toStartOfMinute(sealed_at) AS minute, sum(start - reached) AS missing,
        missing - sum(arraySum(arrayMap(
            loss -> if(least(start, loss.2) > greatest(reached, loss.1), least(start, loss.2) - greatest(reached, loss.1), 0),
            told.ranges
        ))) AS silent
    FROM (
        SELECT
            copy_id::String AS copy_id, epoch, sealed_at, first_seq AS start,
            toInt64(intDiv(epoch, 1048576)) * 1000 + shift_us AS started_us,
            before.blocks + count() OVER (
                PARTITION BY copy_id, epoch ORDER BY first_seq, decisions ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
            ) = 0 AND started_us < {begins_us:Int64} AND (
                has({cut_logs:Array(Tuple(UInt16, String))}, (log_partition, log_id::String))
                OR started_us < {blocks_kept_us:Int64}
            ) AS from_before,
            if(from_before, start, least(start, greatest(before.reached, max(first_seq + decisions) OVER (
                PARTITION BY copy_id, epoch ORDER BY first_seq, decisions ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
            )))) AS reached
        FROM blocks
        LEFT JOIN (
            SELECT copy_id, epoch, max(first_seq + decisions) AS reached, count() AS blocks
            FROM blocks
            WHERE sealed_at < fromUnixTimestamp64Micro({low_us:Int64} - 3600000000, 'UTC') AND (copy_id, epoch) IN (
                SELECT copy_id, epoch FROM blocks
                WHERE sealed_at >= fromUnixTimestamp64Micro({low_us:Int64} - 3600000000, 'UTC')
                    AND sealed_at < fromUnixTimestamp64Micro({high_us:Int64} + 60000000, 'UTC')
                GROUP BY copy_id, epoch
                HAVING argMin(sealed_at, first_seq) >= fromUnixTimestamp64Micro({low_us:Int64}, 'UTC')
                    AND min(first_seq) > 0
            )
            GROUP BY copy_id, epoch
        ) AS before USING (copy_id, epoch)
        WHERE sealed_at >= fromUnixTimestamp64Micro({low_us:Int64} - 3600000000, 'UTC')
            AND sealed_at < fromUnixTimestamp64Micro({high_us:Int64} + 60000000, 'UTC')
    ) AS opened
    LEFT JOIN (
        SELECT copy_id::String AS copy_id, epoch, groupArray((greatest(first_lost, told_before), end_lost)) AS ranges
        FROM (
            SELECT copy_id, epoch, JSONExtractUInt(body, 'first_seq') AS first_lost,
                first_lost + JSONExtractUInt(body, 'count') AS end_lost,
                max(end_lost) OVER (
                    PARTITION BY copy_id, epoch ORDER BY first_lost, end_lost
                    ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
                ) AS told_before
            FROM control
            WHERE kind = 'decisions_lost' AND (copy_id, epoch) IN (
                SELECT copy_id, epoch FROM blocks
                WHERE sealed_at >= fromUnixTimestamp64Micro({low_us:Int64}, 'UTC')
                    AND sealed_at < fromUnixTimestamp64Micro({high_us:Int64} + 60000000, 'UTC')
            )
        )
        WHERE end_lost > told_before
        GROUP BY copy_id, epoch
    ) AS told USING (copy_id, epoch)
    WHERE sealed_at >= fromUnixTimestamp64Micro({low_us:Int64}, 'UTC')
    GROUP BY copy_id, epoch, minute
) AS fresh
LEFT JOIN (
    SELECT minute, copy_id::String AS copy_id, epoch, max(version) AS held_version,
        argMax((missing, silent), (version, stored_at)) AS held
    FROM missing_minutes
    WHERE minute >= toDateTime({low_s:UInt32}, 'UTC') AND minute <= toDateTime({high_s:UInt32}, 'UTC')
    GROUP BY minute, copy_id, epoch
) AS current ON fresh.minute = current.minute AND fresh.copy_id = current.copy_id AND fresh.epoch = current.epoch
WHERE current.held_version <= {version:UInt64} AND (fresh.missing, fresh.silent) != current.held
SETTINGS max_threads = 1;

-- name: missing_unexplained
-- The minutes of a span with missing numbers that no loss record names: it may have come since.
SELECT DISTINCT toUInt32(intDiv(toUnixTimestamp(minute), 60))
FROM (
    SELECT minute, argMax(silent, (version, stored_at)) AS silent
    FROM missing_minutes
    WHERE minute >= toDateTime({from_s:UInt32}, 'UTC') AND minute < toDateTime({to_s:UInt32}, 'UTC')
    GROUP BY minute, copy_id, epoch
)
WHERE silent > 0
ORDER BY 1 DESC
LIMIT {most:UInt32};
