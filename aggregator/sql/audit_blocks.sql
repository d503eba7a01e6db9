-- The copies' own count against the record: each block's decisions as rows, as the block says, and as the running totals of
-- its copy say. Every value is bound. Whole blocks that were sealed in [from_us, to_us) are compared.
-- begins_us, blocks_kept_us, cut_logs: where the record begins; see audit_gaps.sql.

-- name: chain
-- The blocks of a span in the order of their numbers, each with what its copy had counted before: stands in the other
-- query of this file where it says chain. What an earlier block holds is not counted again (from_seq). One row more a
-- life stands before its first block, and ends where the blocks before the span do. No block holds the numbers from
-- end_seq up to until_seq.
SELECT
    copy_id, epoch, first_seq, end_seq, from_seq, sealed_us, decisions, refused, cost_admitted, is_start, layout_version,
    from_seq - reached AS gap,
    NOT is_start AND layout_version >= 3 AND (reached = 0 OR before.2 >= 3) AND from_seq = first_seq AS has_totals,
    toInt64(admitted_total) - toInt64(before.3) AS admitted_delta,
    toInt64(refused_total) - toInt64(before.4) AS refused_delta,
    toInt64(cost_total) - toInt64(before.5) AS cost_delta,
    end_seq > from_seq OR (is_start AND until_seq > from_seq) AS counts_rows,
    row_number() OVER following AS place,
    if(
        place < count() OVER life,
        leadInFrame(from_seq) OVER following,
        if(max(goes_on) OVER life, end_seq, 18446744073709551615)
    ) AS until_seq
FROM (
    SELECT
        *,
        max((end_seq, layout_version, admitted_total, refused_total, cost_total)) OVER (
            PARTITION BY copy_id, epoch ORDER BY is_start DESC, first_seq, decisions
            ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
        ) AS before,
        if(is_start, end_seq, before.1) AS reached,
        greatest(first_seq, reached) AS from_seq
    FROM (
        SELECT
            copy_id::String AS copy_id, epoch, first_seq, first_seq + decisions AS end_seq,
            toUnixTimestamp64Micro(min(sealed_at)) AS sealed_us, decisions,
            any(refused) AS refused, any(cost_admitted) AS cost_admitted, any(layout_version) AS layout_version,
            any(admitted_total) AS admitted_total, any(refused_total) AS refused_total, any(cost_total) AS cost_total,
            false AS is_start, false AS goes_on
        FROM blocks
        WHERE sealed_at >= fromUnixTimestamp64Micro({from_us:Int64}, 'UTC')
            AND sealed_at < fromUnixTimestamp64Micro({to_us:Int64}, 'UTC')
        GROUP BY copy_id, epoch, first_seq, decisions
        UNION ALL
        SELECT
            copy_id, epoch, if(from_before, start, last.1) AS begin, begin, 0, 0, 0, 0, last.2, last.3, last.4, last.5,
            true, has_later
        FROM (
            SELECT
                copy_id::String AS copy_id, epoch,
                maxIf(
                    (first_seq + decisions, layout_version, admitted_total, refused_total, cost_total),
                    sealed_at < fromUnixTimestamp64Micro({from_us:Int64}, 'UTC')
                ) AS last,
                min(first_seq) AS start,
                argMin((toInt64(intDiv(epoch, 1048576)) * 1000 + shift_us, log_partition, log_id::String), first_seq) AS began,
                countIf(sealed_at < fromUnixTimestamp64Micro({from_us:Int64}, 'UTC')) = 0 AND began.1 < {begins_us:Int64}
                    AND (has({cut_logs:Array(Tuple(UInt16, String))}, (began.2, began.3)) OR began.1 < {blocks_kept_us:Int64})
                    AS from_before,
                max(sealed_at >= fromUnixTimestamp64Micro({to_us:Int64}, 'UTC')) AS has_later
            FROM blocks
            WHERE (copy_id, epoch) IN (
                SELECT copy_id, epoch FROM blocks
                WHERE sealed_at >= fromUnixTimestamp64Micro({from_us:Int64}, 'UTC')
                    AND sealed_at < fromUnixTimestamp64Micro({to_us:Int64}, 'UTC')
            )
            GROUP BY copy_id, epoch
        )
    )
)
WHERE is_start OR end_seq > reached OR (decisions = 0 AND first_seq >= reached)
WINDOW
    life AS (PARTITION BY copy_id, epoch),
    following AS (
        PARTITION BY copy_id, epoch ORDER BY is_start DESC, from_seq, end_seq
        ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING
    );

-- name: decided_between
-- Between which times the decisions of the span's blocks were made; an hour more for blocks that do not say.
SELECT
    toUnixTimestamp64Micro(min(if(layout_version > 0, first_at, sealed_at - INTERVAL 1 HOUR))),
    toUnixTimestamp64Micro(max(if(layout_version > 0, last_at, sealed_at))) + 1
FROM blocks
WHERE decisions > 0
    AND sealed_at >= fromUnixTimestamp64Micro({from_us:Int64}, 'UTC')
    AND sealed_at < fromUnixTimestamp64Micro({to_us:Int64}, 'UTC');

-- name: blocks_compared
-- Blocks and lives; decisions, admitted ones and their tokens by rows and by blocks, and by the copies' totals where all
-- blocks have them; and the blocks that do not agree, at most 1000. {caller:String} restricts it to blocks that hold a
-- decision of one caller; '' for all. Rows that were erased on request are counted apart, and missed nowhere.
SELECT
    countIf(NOT is_start), uniqExact(copy_id, epoch),
    sum(rows_in + erased_in), sumIf(end_seq - from_seq, NOT is_start),
    countIf(has_totals), sumIf(rows_in + erased_in, has_totals), sumIf(admitted_delta + refused_delta, has_totals),
    sumIf(admitted_in, has_totals AND erased_in = 0), sumIf(admitted_delta, has_totals AND erased_in = 0),
    sumIf(cost_in, has_totals AND erased_in = 0), sumIf(cost_delta, has_totals AND erased_in = 0),
    sum(gap), sum(stray), sum(erased_in),
    countIf(is_fault) AS faults,
    groupArraySortedIf(1000)(
        (
            copy_id, epoch, from_seq, end_seq, sealed_us, toUInt64(gap), toUInt64(stray), toUInt64(rows_in), erased_in,
            toInt64(admitted_in), toInt64(admitted_said), toInt64(cost_in), toInt64(cost_said), is_whole, has_totals,
            admitted_delta, refused_delta, cost_delta
        ),
        is_fault
    )
FROM (
    SELECT
        *,
        NOT is_start AND layout_version > 0 AND from_seq = first_seq AND erased_in = 0 AS is_whole,
        toInt64(decisions) - toInt64(refused) AS admitted_said,
        cost_admitted AS cost_said,
        gap > 0 OR stray > 0
            OR (NOT is_start AND rows_in + erased_in != end_seq - from_seq)
            OR (is_whole AND (admitted_in != admitted_said OR cost_in != cost_said))
            OR (
                has_totals AND gap = 0
                AND (admitted_delta != admitted_said OR refused_delta != refused OR cost_delta != cost_said)
            ) AS is_fault
    FROM (chain) AS blocks_in_order
    LEFT JOIN (
        SELECT
            copy_id, epoch, from_seq, true AS counts_rows,
            countIf(seq < end_seq) AS rows_in,
            countIf(seq < end_seq AND allowed) AS admitted_in,
            sumIf(cost_tokens, seq < end_seq AND allowed) AS cost_in,
            countIf(seq >= end_seq AND seq < until_seq) AS stray,
            countIf(caller = {caller:String}) AS of_caller
        FROM (
            SELECT copy_id::String AS copy_id, epoch, seq, allowed, cost_tokens, caller::String AS caller
            FROM decisions FINAL
            WHERE at >= fromUnixTimestamp64Micro({decided_from_us:Int64}, 'UTC')
                AND at < fromUnixTimestamp64Micro({decided_to_us:Int64}, 'UTC')
        ) AS decided
        ASOF JOIN (
            SELECT copy_id, epoch, from_seq, end_seq, until_seq FROM (chain) WHERE counts_rows
        ) AS ranges
        ON decided.copy_id = ranges.copy_id AND decided.epoch = ranges.epoch AND decided.seq >= ranges.from_seq
        GROUP BY copy_id, epoch, from_seq
    ) AS counted USING (copy_id, epoch, from_seq, counts_rows)
    LEFT JOIN (
        SELECT copy_id, epoch, from_seq, true AS counts_rows, sum(how_many) AS erased_in
        FROM (
            SELECT copy_id::String AS copy_id, epoch, arrayJoin(arrayZip(firsts, counts)) AS erased,
                erased.1 AS first_erased, toUInt64(erased.2) AS how_many
            FROM erased_blocks FINAL
        ) AS erased_ranges
        ASOF JOIN (
            SELECT copy_id, epoch, from_seq, end_seq FROM (chain) WHERE counts_rows
        ) AS ranges
        ON erased_ranges.copy_id = ranges.copy_id AND erased_ranges.epoch = ranges.epoch
            AND erased_ranges.first_erased >= ranges.from_seq
        WHERE first_erased < end_seq
        GROUP BY copy_id, epoch, from_seq
    ) AS gone USING (copy_id, epoch, from_seq, counts_rows)
)
WHERE {caller:String} = '' OR of_caller > 0
SETTINGS max_bytes_before_external_group_by = 1000000000;
