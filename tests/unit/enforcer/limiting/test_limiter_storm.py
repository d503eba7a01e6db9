"""Everything at once: many threads, several limits, costs that change, policies that change, and an end in the middle.

On both variants of the limiter: the fast path without a lock, and a lock for every decision, which a build of Python
without the GIL takes. With the GIL, threads are made to interrupt each other as often as they can.
"""

from __future__ import annotations

import random
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from enforcer.clock import SystemClock
from enforcer.errors import EnforcerError
from enforcer.identity import new_identity
from enforcer.limiting.limiter import Limiter
from enforcer.owners.memory import MemoryOwner
from enforcer.policies.model import Policy
from enforcer.settings import LimiterSettings
from enforcer.sink import CostChanged
from enforcer.testing import RecordingSink
from enforcer.types import Verdict
from tests.unit.enforcer.harness import make_policy

CALLERS, SCOPES = ("acme", "birch", "cobalt"), ("read", "write")
THREADS, CHECKS = 8, 3_000
#: More than anybody sends: the limiter is closed first.
ENDLESS = 10**9


@contextmanager
def _fast_switching() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


def _policy(version: int) -> Policy:
    """Versions differ in what they grant, so that the terms of grants change while these are spent.

    A caller's bucket is spent by its reads alone, which need no lock where there is a fast path, and together with the
    bucket of all by its writes.
    """
    site = {"by": "everyone", "scopes": ["write"], "rate_per_s": 2_000, "burst": 1_500 + version}
    own: dict[str, object] = {"limits": {"site": site}, "scopes": {"write": {}}}
    return make_policy(version=version, rate_per_s=2_000, burst=500 + version, **own)


class Client:
    """One thread's requests, and what it was told of them."""

    def __init__(self, limiter: Limiter, seed: int) -> None:
        self.verdicts: list[Verdict] = []
        self.changes: list[tuple[Verdict, int]] = []
        self._limiter = limiter
        self._chance = random.Random(seed)

    def run(self, checks: int) -> None:
        try:
            for _ in range(checks):
                self._request()
        except EnforcerError:
            if checks != ENDLESS:
                raise

    def _request(self) -> None:
        chance = self._chance
        verdict = self._limiter.check(chance.choice(CALLERS), chance.choice(SCOPES), chance.choice((1, 1, 1, 2, 3)))
        self.verdicts.append(verdict)
        if not verdict.allowed or verdict.basis.grant_id == 0 or chance.random() < 0.2:
            return
        cost = chance.choice((0, verdict.cost + 2))
        self._limiter.charge(verdict, cost)
        self.changes.append((verdict, cost - verdict.cost))


def _storm(*, locked: bool | None, close_early: bool) -> tuple[Limiter, RecordingSink, list[Client]]:
    sink = RecordingSink()
    settings = LimiterSettings(locked=locked)
    owner = MemoryOwner(now_us=SystemClock.unix_us)
    limiter = Limiter(_policy(1), owner, sink, new_identity("copy", unix_ms=1, pid=1), settings=settings)
    clients = [Client(limiter, seed) for seed in range(THREADS)]
    threads = [threading.Thread(target=client.run, args=(ENDLESS if close_early else CHECKS,)) for client in clients]
    for thread in threads:
        thread.start()
    version = 1
    while any(thread.is_alive() for thread in threads):
        version += 1
        limiter.apply(_policy(version))
        threads[0].join(0.01)
        if close_early and len(sink.verdicts) > THREADS * CHECKS // 4:
            break
    limiter.close()
    for thread in threads:
        thread.join(60)
    assert version > 2
    return limiter, sink, clients


@pytest.mark.parametrize("close_early", [False, True], ids=["to-the-end", "closed-meanwhile"])
@pytest.mark.parametrize("locked", [None, True], ids=["build's-own", "locked"])
def test_everything_at_once_leaves_every_count_exact(locked: bool | None, close_early: bool) -> None:
    """A lost update is a token for nothing, or a decision that nobody finds."""
    with _fast_switching():
        limiter, sink, clients = _storm(locked=locked, close_early=close_early)
    told = [verdict for client in clients for verdict in client.verdicts]
    assert list(range(len(told))) == sorted(verdict.seq for verdict in sink.verdicts)
    assert {verdict.seq: verdict for verdict in told} == {verdict.seq: verdict for verdict in sink.verdicts}
    assert close_early or len(told) == THREADS * CHECKS
    assert {True, False} == {verdict.allowed for verdict in told}
    _assert_ledger(sink)
    _assert_changes(limiter, sink, [change for client in clients for change in client.changes])


def _assert_ledger(sink: RecordingSink) -> None:
    """Every grant's total is the cost of the decisions that name it and what was adjusted, and never above its size."""
    sizes = {(fact.caller, fact.limit, fact.grant.grant_id): fact.grant.size for fact in sink.grants}
    spent, totals = sink.spent_by_grant(), sink.final_totals()
    assert spent.keys() <= totals.keys()
    for key, total in totals.items():
        assert total.spent == spent.get(key, 0) + total.adjusted, key
        assert 0 <= total.spent <= sizes[key]


def _assert_changes(limiter: Limiter, sink: RecordingSink, changes: list[tuple[Verdict, int]]) -> None:
    """What was charged and refunded later stands in the totals of both limits, or is owed to them still."""
    by_subject: Counter[tuple[str, str]] = Counter()
    by_scope: Counter[tuple[str, str]] = Counter()
    for verdict, delta in changes:
        # Whoever is decided as the limiter closes may have been decided without one of its limits' owner.
        by_subject[verdict.basis.caller, "rate"] += delta
        for charge in verdict.basis.also:
            by_subject[charge.subject, charge.limit] += delta
        by_scope[verdict.basis.caller, verdict.basis.scope] += delta
    settled: Counter[tuple[str, str]] = Counter()
    for (subject, limit, _), total in sink.final_totals().items():
        settled[subject, limit] += total.adjusted
    for account in limiter._directory.accounts:
        settled[account.caller, account.limit] += account.owed
    assert by_subject == settled
    last = {(fact.caller, fact.scope): fact for fact in sink.events if isinstance(fact, CostChanged)}
    assert len(changes) == sum(fact.requests for fact in last.values())
    assert by_scope == {key: fact.charged - fact.refunded for key, fact in last.items()}
