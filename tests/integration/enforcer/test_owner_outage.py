"""The limiter on a real server that is frozen, killed, restarted: what a request pays, and what the record says."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from enforcer.identity import new_identity
from enforcer.limiting.limiter import Limiter
from enforcer.owners.redis import RedisOwner
from enforcer.settings import LimiterSettings
from enforcer.testing import RecordingSink
from enforcer.types import Source, Verdict
from tallygate.engines.valkey import Valkey, start_valkey
from tests.processes import freeze, thaw, wait_until
from tests.unit.enforcer.harness import make_policy

ASK_MS = 50


@contextmanager
def _limiter(address: str, *, rate_per_s: float = 1_000, burst: int = 2_000) -> Iterator[tuple[Limiter, RecordingSink]]:
    policy = make_policy(rate_per_s=rate_per_s, burst=burst, timeouts={"ask_ms": ASK_MS})
    sink = RecordingSink()
    owner = RedisOwner(address, timeout_s=ASK_MS / 1e3)
    identity = new_identity("copy", unix_ms=time.time_ns() // 1_000_000, pid=os.getpid())
    limiter = Limiter(policy, owner, sink, identity, settings=LimiterSettings(owner_name=owner.address))
    try:
        yield limiter, sink
    finally:
        limiter.close()


@contextmanager
def _frozen(server: Valkey) -> Iterator[None]:
    freeze(server.pid)
    try:
        yield
    finally:
        thaw(server.pid)


def _timed(limiter: Limiter, caller: str) -> tuple[Verdict, float]:
    before = time.monotonic()
    return limiter.check(caller), (time.monotonic() - before) * 1e3


def _assert_whole(sink: RecordingSink) -> None:
    assert list(range(len(sink.verdicts))) == sorted(verdict.seq for verdict in sink.verdicts)
    spent = sink.spent_by_grant()
    assert spent == {key: total.spent for key, total in sink.final_totals().items() if total.spent}


def test_a_frozen_owner_costs_one_request_its_timeout(fresh_valkey: Valkey) -> None:
    """E14: frozen is not dead; the first call pays its timeout, and then nobody pays."""
    with _limiter(fresh_valkey.url) as (limiter, sink):
        for _ in range(200):
            limiter.check("held")
        held = limiter._lanes["held", "default"].account.held
        with _frozen(fresh_valkey):
            first, first_ms = _timed(limiter, "new")
            assert Source.DEGRADED is first.source
            assert first_ms < 5 * ASK_MS
            wait_until(lambda: limiter.degraded, 1, what="the breaker to open")
            spent_alone = [limiter.check("held").source for _ in range(held)]
            assert {Source.LOCAL} == set(spent_alone)
            waits = sorted(_timed(limiter, f"caller-{number}")[1] for number in range(500))
            # Whoever waits for the owner waits its whole timeout; the machine itself may be busy for some milliseconds.
            assert waits[len(waits) // 2] < 5
            assert waits[int(len(waits) * 0.99)] < ASK_MS / 2
        wait_until(lambda: not limiter.degraded, 10, what="the recovery")
        wait_until(lambda: limiter.check("after").source is not Source.DEGRADED, 10, what="a grant after it")
    _assert_whole(sink)
    assert [True, False] == [change.entered for change in sink.changes]


def test_many_threads_on_a_frozen_owner_are_all_answered(fresh_valkey: Valkey) -> None:
    """No thread may be stuck: each waits its own timeout at most."""
    with _limiter(fresh_valkey.url) as (limiter, sink), _frozen(fresh_valkey):
        durations: list[float] = []
        threads = [
            threading.Thread(target=lambda n=number: durations.append(_timed(limiter, f"caller-{n}")[1]))
            for number in range(40)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(10)
        assert 40 == len(durations)
        assert max(durations) < 10 * ASK_MS
    _assert_whole(sink)


def test_a_killed_owner_is_missed_and_found_again(fresh_valkey: Valkey) -> None:
    """Its state is gone with it: callers start from full, once, and the copy recovers without help."""
    with _limiter(fresh_valkey.url, rate_per_s=1, burst=20) as (limiter, sink):
        for _ in range(5):
            limiter.check("acme")
        fresh_valkey.stop()
        sources = {limiter.check(f"caller-{number}").source for number in range(20)}
        assert {Source.DEGRADED} == sources
        second = start_valkey(port=fresh_valkey.port)
        try:
            wait_until(lambda: not limiter.degraded, 10, what="the recovery")
            wait_until(lambda: limiter.check("back").source is not Source.DEGRADED, 10, what="a grant after it")
            limiter.close()
        finally:
            second.stop()
    _assert_whole(sink)


@pytest.mark.parametrize("asynchronous", [False, True])
async def test_the_plan_holds_on_a_real_server(valkey_url: str, asynchronous: bool) -> None:
    """The same arithmetic as in memory: a burst of 50, refilled at one per second, and whole totals."""
    caller = f"plan-{time.time_ns()}"
    with _limiter(valkey_url, rate_per_s=1, burst=50) as (limiter, sink):
        verdicts = [await limiter.acheck(caller) if asynchronous else limiter.check(caller) for _ in range(80)]
        admitted = sum(verdict.allowed for verdict in verdicts)
        degraded = sum(verdict.source is Source.DEGRADED for verdict in verdicts)
    assert 50 <= admitted <= 52 + degraded
    _assert_whole(sink)
    assert sum(total.spent for total in sink.final_totals().values()) == admitted - degraded
