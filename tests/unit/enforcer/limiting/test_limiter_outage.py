"""Grants that expire while nobody can renew them: spent, marked as degraded, and accounted for afterwards."""

from __future__ import annotations

import pytest

from enforcer.messages import SettleCause
from enforcer.types import Source, Verdict
from tests.unit.enforcer.harness import Fleet, make_policy

BURST = 50
#: Longer than any grant lasts.
EXPIRED_S = 10


def _holding(*, copies: int = 1, **fields: object) -> tuple[Fleet, int]:
    """A fleet whose first copy holds a grant, and how much of it; the plan hardly refills."""
    fleet = Fleet(make_policy(rate_per_s=1e-6, burst=BURST, **fields), copies=copies)
    for _ in range(20):
        fleet.limiter.check("acme")
    held = fleet.limiter._lanes["acme", "default"].account.held
    assert held > 0
    return fleet, held


def _level(fleet: Fleet) -> float:
    bucket = fleet.owner.bucket("acme", "rate")
    assert bucket is not None
    assert all(not member.open for member in bucket.members.values())
    return bucket.tokens_micro / 1e6


def _is_from_a_grant(verdict: Verdict) -> bool:
    return verdict.allowed and verdict.source is Source.DEGRADED and verdict.basis.grant_id > 0


def test_a_grant_that_expires_in_an_outage_is_spent_before_the_fail_mode() -> None:
    """Fail static: the owner's last word stands for as long as there is no other, and says so."""
    fleet, held = _holding()
    fleet.owner.away = "tested"
    fleet.limiter.check("other")
    fleet.advance(EXPIRED_S)
    verdicts = [fleet.limiter.check("acme") for _ in range(held + 1)]
    assert [True] * held + [False] == [_is_from_a_grant(verdict) for verdict in verdicts]
    assert list(range(held - 1, -1, -1)) == [verdict.remaining for verdict in verdicts[:held]]
    assert (Source.DEGRADED, 0) == (verdicts[held].source, verdicts[held].basis.grant_id)


def test_what_was_spent_past_its_expiry_is_debited_once_the_owner_is_back() -> None:
    """The owner gave the grant back meanwhile; the total that it hears then must make its bucket exact again."""
    fleet, held = _holding(copies=2)
    fleet.owner.away = "tested"
    fleet.limiter.check("other")
    fleet.advance(EXPIRED_S)
    for _ in range(held - 1):
        fleet.limiter.check("acme")
    fleet.owner.away = None
    other = fleet.copies[1]
    other.limiter.check("acme")
    given_back = [fact.settlement for fact in other.sink.settlements if fact.settlement.cause is SettleCause.CREDITED]
    assert 1 == len(given_back), "the other copy's ask comes first"
    fleet.advance(5)
    assert BURST - 20 - (held - 1) - 1 == pytest.approx(_level(fleet), abs=0.01)
    spent = fleet.sink.spent_by_grant()
    assert spent == {key: total.spent for key, total in fleet.sink.final_totals().items() if total.spent}


def test_an_expired_grant_is_not_spent_again_after_the_outage() -> None:
    """By then it was given back: others spend those tokens."""
    fleet, _ = _holding()
    fleet.owner.away = "tested"
    fleet.limiter.check("other")
    fleet.advance(EXPIRED_S)
    fleet.owner.away = None
    fleet.advance(2)
    assert Source.SHARED is fleet.limiter.check("acme").source


def test_closed_routes_spend_only_what_the_owner_still_vouches_for() -> None:
    """A route that fails closed is one where a request too many costs more than one too few."""
    fleet, held = _holding(scopes={"POST /pay": {"fail_mode": "closed"}})
    fleet.owner.away = "tested"
    fleet.limiter.check("other")
    assert fleet.limiter.check("acme", "POST /pay").allowed
    fleet.advance(EXPIRED_S)
    assert not fleet.limiter.check("acme", "POST /pay").allowed
    assert [True] * (held - 1) == [_is_from_a_grant(fleet.limiter.check("acme")) for _ in range(held - 1)]


def test_both_grants_of_a_caller_are_spent_in_an_outage() -> None:
    """The one in reserve is held as much as the other."""
    fleet = Fleet(make_policy(rate_per_s=1e-6, burst=200), ask_ahead_above_ms=0)
    for _ in range(100):
        fleet.limiter.check("acme")
        account = fleet.limiter._lanes["acme", "default"].account
        if account.upcoming is not None:
            break
        fleet.advance(0.01)
    assert account.upcoming is not None
    held = account.held
    fleet.owner.away = "tested"
    fleet.limiter.check("other")
    fleet.advance(EXPIRED_S)
    assert [True] * held + [False] == [_is_from_a_grant(fleet.limiter.check("acme")) for _ in range(held + 1)]


def test_a_grant_that_expires_while_its_bucket_is_bad_is_settled_truly() -> None:
    """The same for one bucket: whatever is spent of a grant is in the total that the owner hears at last."""
    fleet, held = _holding()
    fleet.owner.spoiled["acme", "rate"] = "tested"
    for _ in range(held + 5):
        fleet.limiter.check("acme")
        fleet.advance(0.4)
    fleet.owner.spoiled.clear()
    fleet.advance(30)
    spent = fleet.sink.spent_by_grant()
    assert spent == {key: total.spent for key, total in fleet.sink.final_totals().items() if total.spent}
    assert BURST - sum(spent.values()) == pytest.approx(_level(fleet), abs=0.01)


def test_an_owner_that_is_back_is_told_at_once_what_is_held() -> None:
    """It may have lost its state, and would lend the same tokens to whoever asks first."""
    fleet = Fleet(make_policy(rate_per_s=10, burst=BURST), idle_settle_s=60)
    for _ in range(20):
        fleet.limiter.check("acme")
    held = fleet.limiter._lanes["acme", "default"].account.held
    assert held > 0
    fleet.owner.away = "tested"
    assert fleet.limiter.check("other").source is Source.DEGRADED
    fleet.owner.lose_state()
    fleet.owner.away = None
    fleet.advance(1)
    bucket = fleet.owner.bucket("acme", "rate")
    assert bucket is not None, "nobody has asked for anything since, and the owner knows of the grant"
    assert [held] == [grant.size - grant.spent for member in bucket.members.values() for grant in member.open]
