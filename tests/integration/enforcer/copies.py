"""A limiter as it stands in a gateway, on real owners, and what must be true of its record when it is closed."""

from __future__ import annotations

import os
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from enforcer.identity import new_identity
from enforcer.limiting.limiter import Limiter
from enforcer.messages import Answer, Ask
from enforcer.owners.addresses import owners_from_url
from enforcer.owners.port import Owner, Owners
from enforcer.testing import RecordingSink
from enforcer.types import Plan, Verdict
from tests.unit.enforcer.harness import make_policy

BURST = 200
#: Refills nothing in the time of a test.
RATE_PER_S = 1e-6
PLAN = Plan("standard", RATE_PER_S, BURST)


@contextmanager
def limiter_on(
    owner: Owner | Owners, *, ask_ms: int, rate_per_s: float = RATE_PER_S, burst: int = BURST
) -> Iterator[tuple[Limiter, RecordingSink]]:
    """A started limiter; at the end it is closed, and its record held to be whole."""
    policy = make_policy(rate_per_s=rate_per_s, burst=burst, timeouts={"ask_ms": ask_ms})
    sink = RecordingSink()
    limiter = Limiter(policy, owner, sink, new_identity("copy", unix_ms=time.time_ns() // 1_000_000, pid=os.getpid()))
    try:
        yield limiter, sink
    finally:
        limiter.close()
    assert list(range(len(sink.verdicts))) == sorted(verdict.seq for verdict in sink.verdicts)
    assert sink.spent_by_grant() == {key: total.spent for key, total in sink.final_totals().items() if total.spent}


def check_at_once(limiter: Limiter, callers: Sequence[str]) -> dict[str, Verdict]:
    """One request of each caller, all at the same time."""
    verdicts: dict[str, Verdict] = {}
    gate = threading.Barrier(len(callers))

    def check(caller: str) -> None:
        gate.wait(10)
        verdicts[caller] = limiter.check(caller)

    threads = [threading.Thread(target=check, args=(caller,)) for caller in callers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert len(verdicts) == len(callers), "a request was never answered"
    return verdicts


def assert_buckets_hold_the_rest(url: str, sink: RecordingSink, callers: Sequence[str]) -> None:
    """After the close, every bucket is short of exactly what was admitted on its grants: none was minted or lost."""
    spent: Counter[str] = Counter()
    for verdict in sink.verdicts:
        if verdict.allowed and verdict.basis.grant_id:
            spent[verdict.basis.caller] += verdict.cost
    owners = owners_from_url(url, timeout_s=5.0)
    owners.refresh()
    levels = {caller: round(_level(owners, caller), 2) for caller in callers}
    for owner in owners.nodes.values():
        owner.close()
    owners.close()
    assert levels == {caller: BURST - spent[caller] for caller in callers}


def _level(owners: Owners, caller: str) -> float:
    asked = Ask(caller, "rate", PLAN, "watcher/1", time.monotonic_ns(), (), 0, 0, 0.0, 0, 0.0)
    (outcome,) = owners.nodes[owners.place(caller, "rate")].ask([asked])
    assert isinstance(outcome, Answer), outcome
    return outcome.tokens
