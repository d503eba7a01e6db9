"""Refusing from memory: as cheap as admitting, and as exact."""

from __future__ import annotations

import asyncio

import pytest

from enforcer.types import Reason, Source
from tests.unit.enforcer.harness import Fleet, make_policy


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_remembered_refusal_is_decided_on_the_fast_path(asynchronous: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A flood on an empty bucket must cost less than admitting it, in threads and in event loops."""
    fleet = Fleet(make_policy(rate_per_s=1, burst=1))
    limiter = fleet.limiter
    assert fleet.limiter.check("acme").allowed
    assert not fleet.limiter.check("acme").allowed
    account = limiter._lanes["acme", "default"].account
    offered = account.offered
    monkeypatch.setattr(limiter, "_slow", None)
    for milliseconds in (1_000, 1_000, 999):
        if milliseconds == 999:
            fleet.clock.advance(0.0015)
        refused = asyncio.run(limiter.acheck("acme")) if asynchronous else limiter.check("acme")
        assert (False, Source.LOCAL, Reason.SPENT, 0) == (
            refused.allowed, refused.source, refused.reason, refused.remaining,
        )  # fmt: skip
        assert milliseconds == refused.retry_after_ms
    assert offered + 3 == account.offered
    assert (0, 1) == (account.held, account.spent)
    assert [0, 1, 2, 3, 4] == [verdict.seq for verdict in fleet.sink.verdicts]
