-- What limits in shadow mode would have refused. Every value is bound.

-- name: would_be_refusals
-- Requests and tokens that each shadow limit would have refused of a caller (empty: of each), and how many events say so.
-- An event is a total of its copy's epoch, so the highest counts, however many there are.
SELECT caller, scope, limit, policy_version, sum(requests) AS refusals, sum(cost) AS cost_tokens, sum(events) AS events
FROM (
    SELECT copy_id, epoch,
        JSONExtractString(body, 'caller') AS caller,
        JSONExtractString(body, 'scope') AS scope,
        JSONExtractString(body, 'limit') AS limit,
        JSONExtractUInt(body, 'policy_version') AS policy_version,
        max(JSONExtractUInt(body, 'requests')) AS requests,
        max(JSONExtractUInt(body, 'cost')) AS cost,
        count() AS events
    FROM control FINAL
    WHERE kind = 'would_refuse' AND (JSONExtractString(body, 'caller') = {caller:String} OR empty({caller:String}))
    GROUP BY ALL
)
GROUP BY caller, scope, limit, policy_version
ORDER BY caller, scope, limit, policy_version;
