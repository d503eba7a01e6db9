"""Costs that are known only after the response: charged later or given back, exactly, whatever the grants do."""

from __future__ import annotations

import pytest

from enforcer.errors import InvalidField
from enforcer.sink import CostChanged
from tests.unit.enforcer.harness import Fleet, make_policy


def _assert_ledger(fleet: Fleet) -> None:
    """Every grant's total is the cost of the decisions that name it and what was adjusted."""
    fleet.limiter.close()
    spent = fleet.sink.spent_by_grant()
    for key, total in fleet.sink.final_totals().items():
        assert total.spent == spent.get(key, 0) + total.adjusted, key


def _bucket(fleet: Fleet) -> float:
    bucket = fleet.owner.bucket("acme", "rate")
    assert bucket is not None
    return bucket.tokens_micro / 1e6 + bucket.stock_out


def test_a_later_charge_is_paid_from_what_is_held_and_the_rest_by_the_owner() -> None:
    """A model's answer costs what it costs: the caller's next request must find that gone."""
    fleet = Fleet(make_policy(rate_per_s=1, burst=100))
    verdict = fleet.limiter.check("acme")
    fleet.limiter.charge(verdict, 61)
    fleet.advance(2)
    assert _bucket(fleet) == pytest.approx(41, abs=2)
    assert not fleet.limiter.check("acme", cost=60).allowed
    _assert_ledger(fleet)


def test_a_charge_beyond_the_bucket_is_a_debt_that_refill_pays() -> None:
    """Nothing is forgiven, and nothing is refused for longer than it takes to pay."""
    fleet = Fleet(make_policy(rate_per_s=10, burst=20))
    fleet.limiter.charge(fleet.limiter.check("acme"), 70)
    assert not fleet.limiter.check("acme").allowed
    fleet.advance(4)
    assert not fleet.limiter.check("acme").allowed
    fleet.advance(3)
    assert fleet.limiter.check("acme").allowed
    _assert_ledger(fleet)


def test_a_refund_is_spent_again() -> None:
    """A request that failed on our side must not count against the caller."""
    fleet = Fleet(make_policy(rate_per_s=1, burst=10))
    verdicts = [fleet.limiter.check("acme") for _ in range(10)]
    assert not fleet.limiter.check("acme").allowed
    for verdict in verdicts[:4]:
        fleet.limiter.refund(verdict)
    fleet.advance(3)
    assert 7 == sum(fleet.limiter.check("acme").allowed for _ in range(20))
    _assert_ledger(fleet)


def test_a_refund_after_its_grant_was_settled_comes_back_with_the_next_one() -> None:
    """Slow requests end when the grant that paid for them is long gone."""
    fleet = Fleet(make_policy(rate_per_s=1, burst=30))
    verdict = fleet.limiter.check("acme", cost=20)
    fleet.advance(7)
    fleet.limiter.refund(verdict)
    spent = sum(fleet.limiter.check("acme").cost for _ in range(37) if fleet.limiter.check("acme").allowed)
    assert spent > 0
    fleet.advance(3)
    _assert_ledger(fleet)


def test_cost_changes_are_told_as_totals() -> None:
    """The customer's page adds them to what the decisions cost; a lost one is said again by the next."""
    fleet = Fleet()
    for _ in range(3):
        fleet.limiter.charge(fleet.limiter.check("acme", "chat"), 5)
    fleet.limiter.refund(fleet.limiter.check("acme", "chat"))
    fleet.advance(2)
    told = [fact for fact in fleet.sink.events if isinstance(fact, CostChanged)]
    assert ("acme", "chat", 4, 12, 1) == (
        told[-1].caller,
        told[-1].scope,
        told[-1].requests,
        told[-1].charged,
        told[-1].refunded,
    )


@pytest.mark.parametrize("cost", [-1, 1.5, True, "1", 1_000_000_001])
def test_a_charge_of_another_form_is_refused_by_name(cost: object) -> None:
    """Half a charge is worse than none."""
    fleet = Fleet()
    with pytest.raises(InvalidField, match="cost"):
        fleet.limiter.charge(fleet.limiter.check("acme"), cost)  # type: ignore[arg-type]  # wrong on purpose


def test_a_refusal_cannot_be_charged() -> None:
    """It spent nothing, so there is nothing to change."""
    fleet = Fleet(make_policy(rate_per_s=1, burst=1))
    fleet.limiter.check("acme")
    with pytest.raises(InvalidField, match="verdict"):
        fleet.limiter.refund(fleet.limiter.check("acme"))


def test_several_limits_are_charged_and_refunded_together() -> None:
    """A day's quota that forgets the charges is no quota."""
    fleet = Fleet(make_policy(limits={"site": {"by": "everyone", "rate_per_s": 0.001, "burst": 50}}))
    fleet.limiter.charge(fleet.limiter.check("acme"), 41)
    fleet.advance(3)
    assert 9 == sum(fleet.limiter.check("beta").allowed for _ in range(30))
    _assert_ledger(fleet)
