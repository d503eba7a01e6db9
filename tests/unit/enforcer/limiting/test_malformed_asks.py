"""What this copy composed wrongly is a fault of one bucket: never of the batch, and never a lost owner."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import pytest

from enforcer.errors import InvalidField
from enforcer.limiting.sound import ask_each
from enforcer.messages import Answer, Ask, AskFault
from enforcer.owners.memory import MemoryOwner
from enforcer.types import Source
from tests.unit.enforcer.harness import Fleet, make_policy


def _spoil(monkeypatch: pytest.MonkeyPatch, caller: str) -> None:
    """Have the ask for one caller carry a number that no owner takes."""
    ask = MemoryOwner.ask

    def spoiled(owner: MemoryOwner, asks: Sequence[Ask]) -> list[Answer | AskFault]:
        if any(one.caller == caller for one in asks):
            raise InvalidField("offered", -3, "a whole number from 0")
        return ask(owner, asks)

    def wrong(one: Ask) -> None:
        if one.caller == caller:
            raise InvalidField("offered", -3, "a whole number from 0")

    monkeypatch.setattr(MemoryOwner, "ask", spoiled)
    monkeypatch.setattr("enforcer.limiting.sound.check_ask", wrong)


def test_a_malformed_ask_degrades_its_own_caller_only(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """One caller's wrong number must not take the owner from all the others."""
    caplog.set_level(logging.ERROR)
    fleet = Fleet()
    _spoil(monkeypatch, "acme")
    assert fleet.limiter.check("acme").source is Source.DEGRADED
    assert fleet.limiter.check("beta").source is Source.SHARED
    assert not fleet.limiter.degraded
    assert not fleet.sink.changes
    (told,) = (record for record in caplog.records if record.getMessage().startswith("this copy's own"))
    assert "'acme'" in told.getMessage()
    assert "offered is -3" in told.getMessage()


def test_a_malformed_ask_leaves_the_last_totals_of_others_settled(monkeypatch: pytest.MonkeyPatch) -> None:
    """At the end of a copy all callers share one batch: who is not wrong gets its tokens back."""
    fleet = Fleet()
    for caller in ("acme", "beta"):
        fleet.limiter.check(caller)
    _spoil(monkeypatch, "acme")
    fleet.limiter.close()
    bucket = fleet.owner.bucket("beta", "rate")
    assert bucket is not None
    assert not any(member.open for member in bucket.members.values())


def test_an_owner_that_refuses_sound_asks_is_at_fault_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing may be blamed on a bucket whose ask is sound."""
    fleet = Fleet()
    _spoil(monkeypatch, "acme")
    monkeypatch.setattr("enforcer.limiting.sound.check_ask", lambda _: None)
    assert fleet.limiter.check("acme").source is Source.DEGRADED
    assert fleet.limiter.degraded
    assert not ask_each(fleet.owner, [])


@pytest.mark.parametrize(("rate_per_s", "burst", "ahead_ms"), [(100, 100, 0.0), (10, 10, 0.0), (1, 400, 2.0)])
def test_refunds_never_lower_what_was_offered(rate_per_s: int, burst: int, ahead_ms: float) -> None:
    """What was asked for stays asked for: an ask with less than nothing on offer is one that no owner takes."""
    fleet = Fleet(make_policy(rate_per_s=rate_per_s, burst=burst), ask_ahead_above_ms=ahead_ms)
    account = fleet.limiter._new_lane("acme", "default").account
    for _ in range(30):
        verdicts = [fleet.limiter.check("acme", cost=2) for _ in range(4)]
        offered = account.offered
        fleet.advance(0.3)
        for verdict in verdicts:
            if verdict.allowed:
                fleet.limiter.refund(verdict)
        assert offered <= account.offered
        assert 0 <= account.rate_per_s
    assert not fleet.sink.changes
    assert not account.backoff.until_ns
