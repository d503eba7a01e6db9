"""Requests that are given up while they wait: not decided, or given back, and the record says which."""

from __future__ import annotations

import asyncio

import pytest

from enforcer.identity import new_identity
from enforcer.limiting.limiter import Limiter
from enforcer.limiting.waiter import Waiter
from enforcer.settings import LimiterSettings
from enforcer.sink import CostChanged
from enforcer.testing import RecordingSink
from tests.processes import wait_until
from tests.unit.enforcer.harness import make_policy
from tests.unit.enforcer.limiting.test_limiter_threads import GatedOwner

COST = 5


class _Died(Exception):
    """As a signal's handler raises it, in whatever the thread is doing."""


def _limiter() -> tuple[Limiter, RecordingSink, GatedOwner]:
    owner, sink = GatedOwner(lambda ask: ask.waiting), RecordingSink()
    policy = make_policy(timeouts={"ask_ms": 10_000})
    settings = LimiterSettings(idle_settle_s=60)
    return Limiter(policy, owner, sink, new_identity("copy", unix_ms=1, pid=1), settings=settings), sink, owner


def _assert_given_back(limiter: Limiter, sink: RecordingSink) -> None:
    """The decision stands, as every one does; its tokens are home, and the change of its cost is told."""
    limiter.close()
    assert [(True, COST)] == [(verdict.allowed, verdict.cost) for verdict in sink.verdicts]
    (total,) = sink.final_totals().values()
    assert (0, -COST) == (total.spent, total.adjusted)
    changed = [event for event in sink.events if isinstance(event, CostChanged)]
    assert [(0, COST)] == [(event.charged, event.refunded) for event in changed]


def test_a_request_that_dies_before_it_is_decided_spends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Servers end slow requests with a signal: the owner's answer must not be spent by one that is gone."""
    limiter, sink, owner = _limiter()
    owner.gate.clear()

    def die(_waiter: Waiter, _timeout_s: float) -> None:
        assert owner.arrived.acquire(timeout=20)
        raise _Died

    monkeypatch.setattr(Waiter, "wait", die)
    with pytest.raises(_Died):
        limiter.check("acme", cost=COST)
    owner.gate.set()
    limiter.close()
    assert [] == sink.verdicts
    assert [0] == [total.spent for total in sink.final_totals().values()]


def test_a_request_that_dies_with_its_verdict_unread_is_refunded(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was decided in time, and nobody was served."""
    limiter, sink, _ = _limiter()
    wait = Waiter.wait

    def wait_and_die(waiter: Waiter, timeout_s: float) -> None:
        wait(waiter, timeout_s)
        raise _Died

    monkeypatch.setattr(Waiter, "wait", wait_and_die)
    with pytest.raises(_Died):
        limiter.check("acme", cost=COST)
    _assert_given_back(limiter, sink)


def test_a_task_that_is_cancelled_between_its_decision_and_its_turn_is_refunded() -> None:
    """While the loop is busy its clients hang up: they would pay for nothing."""
    limiter, sink, _ = _limiter()

    async def run() -> None:
        task = asyncio.create_task(limiter.acheck("acme", cost=COST))
        await asyncio.sleep(0)
        # This loop is busy meanwhile: the decision cannot be told.
        wait_until(lambda: len(sink.verdicts) == 1, 20, what="the decision", poll_s=0.001)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(run())
    _assert_given_back(limiter, sink)
