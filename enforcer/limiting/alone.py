"""One decision without the owner: by the route's fail mode, from a bucket of this copy's own. Marked as degraded.

It never waits and never asks. Which modes there are is in `core/degrade.py`.
"""

from __future__ import annotations

from enforcer.core.degrade import FailRule, LocalBucket, fallback
from enforcer.limiting.lane import Decisions, Lane
from enforcer.types import Reason, Source, Verdict, outcome_code

#: What a client is told where nobody can know when the owner will be back.
_OWNER_AWAY_RETRY_MS = 1_000


def decide_alone(decisions: Decisions, rule: FailRule, lane: Lane, *, cost: int, now_ns: int) -> Verdict:
    """Decide and record. With the asker's lock held."""
    account = lane.account
    account.refuse(cost)
    kind = fallback(rule, account.plan, lane.resolution.fail_mode, k=account.k)
    bucket = account.local.get(kind)
    if bucket is None:
        bucket = account.local[kind] = LocalBucket(now_ns, kind)
    wait_ms = bucket.take(kind, cost, now_ns)
    allowed = wait_ms == 0
    return decisions.record(
        lane.basis_alone(),
        now_ns,
        allowed=allowed,
        code=outcome_code(Source.DEGRADED, Reason.NONE if allowed else kind.reason),
        cost=cost,
        remaining=bucket.remaining,
        wait_ms=wait_ms if wait_ms is not None else _OWNER_AWAY_RETRY_MS,
    )
