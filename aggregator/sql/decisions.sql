-- The decisions of some minutes as the settler reads them: once, for all that it computes of them. Where the queries say
-- source, one of the two below stands: either the rows as the parts hold them, or folded by the engine, which costs three times
-- as much and is needed only where the first reading shows a row twice. Nothing is sorted here: integers are, afterwards.
-- Blocks are large because each carries the dictionaries of its names. Callers are divided by
-- their names, which the key of the table begins with; callers, where it is not empty, are the only ones that are asked for.

-- name: decisions_count
-- How many decisions each caller has in some minutes, to divide them, and how many of these were charged to further limits.
-- What was stored twice counts twice.
SELECT caller, count() AS decisions, countIf(notEmpty(charges)) AS charged FROM decisions
WHERE at >= fromUnixTimestamp64Micro({low_us:Int64}, 'UTC') AND at < fromUnixTimestamp64Micro({high_us:Int64}, 'UTC')
    AND (empty({callers:Array(String)}) OR caller IN {callers:Array(String)})
GROUP BY caller
SETTINGS max_threads = 1;

-- name: as_stored
-- The rows of all parts: one that was stored twice may stand here twice.
SELECT * FROM decisions
WHERE at >= fromUnixTimestamp64Micro({low_us:Int64}, 'UTC') AND at < fromUnixTimestamp64Micro({high_us:Int64}, 'UTC')
    AND caller >= {from_caller:String} AND ({to_caller:String} = '' OR caller < {to_caller:String})
    AND (empty({callers:Array(String)}) OR caller IN {callers:Array(String)});

-- name: folded
-- The same, each once.
SELECT * FROM decisions FINAL
WHERE at >= fromUnixTimestamp64Micro({low_us:Int64}, 'UTC') AND at < fromUnixTimestamp64Micro({high_us:Int64}, 'UTC')
    AND caller >= {from_caller:String} AND ({to_caller:String} = '' OR caller < {to_caller:String})
    AND (empty({callers:Array(String)}) OR caller IN {callers:Array(String)});

-- name: decisions
-- What settled totals, the ledger and the replay need to know of each decision.
SELECT caller, toLowCardinality(limit) AS limit, toLowCardinality(plan) AS plan, copy_id, scope, policy_version,
    toUnixTimestamp64Micro(at) AS at_us, cost_tokens,
    toUInt8(toUInt8(source) * 16 + toUInt8(reason)) AS code, retry_after_ms, grant_id, epoch, seq
FROM (source)
SETTINGS max_threads = 1, preferred_block_size_bytes = 0, max_block_size = 1000000,
    output_format_arrow_compression_method = 'none';

-- name: decisions_charged
-- The same, and the further limits that each was charged to.
SELECT caller, toLowCardinality(limit) AS limit, toLowCardinality(plan) AS plan, copy_id, scope, policy_version,
    toUnixTimestamp64Micro(at) AS at_us, cost_tokens,
    toUInt8(toUInt8(source) * 16 + toUInt8(reason)) AS code, retry_after_ms, grant_id, epoch, seq,
    tupleElement(charges, 'subject') AS charged_subjects, tupleElement(charges, 'limit') AS charged_limits,
    tupleElement(charges, 'grant_id') AS charged_grants
FROM (source)
SETTINGS max_threads = 1, preferred_block_size_bytes = 0, max_block_size = 1000000,
    output_format_arrow_compression_method = 'none';
