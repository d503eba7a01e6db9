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
    with pytest.raises(InvalidField, match="verdict is 'refused'; allowed: the verdict of an admitted request"):
        fleet.limiter.refund(fleet.limiter.check("acme"))


def test_several_limits_are_charged_and_refunded_together() -> None:
    """A day's quota that forgets the charges is no quota."""
    fleet = Fleet(make_policy(limits={"site": {"by": "everyone", "rate_per_s": 0.001, "burst": 50}}))
    fleet.limiter.charge(fleet.limiter.check("acme"), 41)
    fleet.advance(3)
    assert 9 == sum(fleet.limiter.check("beta").allowed for _ in range(30))
    _assert_ledger(fleet)


def _site(burst: int) -> dict[str, object]:
    return {"site": {"by": "everyone", "rate_per_s": 0.001, "burst": burst}}


def test_a_refund_makes_no_tokens_at_a_limit_that_was_decided_alone() -> None:
    """Nothing was spent there, so there is nothing to give back: it would be sold to others."""
    fleet = Fleet(make_policy(rate_per_s=0.001, burst=100, limits=_site(50)))
    fleet.limiter.check("beta")
    fleet.owner.spoiled["(everyone)", "site"] = "tested"
    fleet.advance(6)
    verdicts = [fleet.limiter.check("acme", cost=10) for _ in range(4)]
    assert not verdicts[-1].basis.also
    for verdict in verdicts:
        fleet.limiter.refund(verdict)
    fleet.owner.spoiled.clear()
    fleet.advance(15)
    assert 49 == sum(fleet.limiter.check(f"caller-{number}").allowed for number in range(150))
    _assert_ledger(fleet)


def test_a_charge_counts_at_a_limit_with_its_owner_where_the_first_was_decided_alone() -> None:
    """One bucket that cannot be read must not let the others be overspent."""
    fleet = Fleet(make_policy(rate_per_s=0.001, burst=100, limits=_site(50)))
    fleet.owner.spoiled["acme", "rate"] = "tested"
    fleet.limiter.check("acme")
    verdict = fleet.limiter.check("acme")
    assert verdict.basis.grant_id == 0
    assert verdict.basis.also
    fleet.limiter.charge(verdict, 40)
    fleet.advance(3)
    assert 10 == sum(fleet.limiter.check("beta").allowed for _ in range(80))
    _assert_ledger(fleet)


def test_what_cost_nothing_at_first_is_owed_by_all_limits() -> None:
    """Asked for before anybody knows the price: a charge that is dropped in silence is service for nothing."""
    fleet = Fleet(make_policy(rate_per_s=1, burst=100, limits=_site(50)))
    fleet.limiter.charge(fleet.limiter.check("acme", cost=0), 45)
    fleet.advance(2)
    assert not fleet.limiter.check("acme", cost=60).allowed
    assert 5 == sum(fleet.limiter.check("beta").allowed for _ in range(30))
    _assert_ledger(fleet)


def test_what_cost_nothing_while_the_owner_was_away_is_owed_to_it_later() -> None:
    """Nothing of this copy's own bucket was spent on it, so nobody else has been paid."""
    fleet = Fleet(make_policy(rate_per_s=1, burst=100))
    fleet.owner.away = "tested"
    fleet.limiter.check("acme")
    fleet.limiter.charge(fleet.limiter.check("acme", cost=0), 90)
    fleet.owner.away = None
    fleet.advance(12)
    assert _bucket(fleet) < 30
    _assert_ledger(fleet)


def _quota() -> Fleet:
    limits = {"hour": {"quota": 20, "per": "hour"}}
    plans = {"standard": {"rate_per_s": 1e6, "burst": 1_000_000, "limits": limits}}
    fleet = Fleet(make_policy(plans=plans))
    fleet.clock.advance(3600 - fleet.clock.unix_us() / 1e6 % 3600 - 10)
    return fleet


@pytest.mark.parametrize("known", [True, False])
def test_a_quota_takes_back_nothing_of_a_period_that_is_over(known: bool) -> None:
    """Never more than its amount in a period: yesterday's tokens cannot be spent today."""
    fleet = _quota()
    old = [verdict for verdict in (fleet.limiter.check("acme") for _ in range(40)) if verdict.allowed]
    assert 20 == len(old)
    fleet.advance(11)
    new = sum(fleet.limiter.check("acme").allowed for _ in range(10)) if known else 0
    for verdict in old:
        fleet.limiter.refund(verdict)
    for _ in range(60):
        new += fleet.limiter.check("acme").allowed
        fleet.advance(0.3)
    assert 20 == new


def test_a_credit_of_a_quota_ends_with_its_period() -> None:
    """Given back in time, but there was no grant to take it back before the turn."""
    fleet = _quota()
    old = [fleet.limiter.check("acme") for _ in range(20)]
    fleet.advance(5)
    for verdict in old:
        fleet.limiter.refund(verdict)
    fleet.advance(6)
    new = 0
    for _ in range(60):
        new += fleet.limiter.check("acme").allowed
        fleet.advance(0.3)
    assert 20 == new


def test_a_refund_within_a_quotas_period_is_spent_again() -> None:
    """What failed on our side must not use up the caller's day."""
    fleet = _quota()
    verdicts = [fleet.limiter.check("acme", cost=5) for _ in range(3)]
    fleet.limiter.refund(verdicts[0])
    assert 10 == sum(fleet.limiter.check("acme").allowed for _ in range(30))
    _assert_ledger(fleet)


def test_a_limit_that_came_later_takes_no_part_in_a_refund() -> None:
    """It was never charged: crediting it would sell its amount several times."""
    policy = make_policy(rate_per_s=0.001, burst=100)
    fleet = Fleet(policy)
    verdicts = [fleet.limiter.check("acme", cost=10) for _ in range(5)]
    limits = {"site": {"by": "everyone", "quota": 20, "per": "day"}}
    fleet.limiter.apply(make_policy(rate_per_s=0.001, burst=100, version=2, limits=limits))
    for verdict in verdicts:
        fleet.limiter.refund(verdict)
    assert 20 == sum(fleet.limiter.check(caller).allowed for caller in ("beta", "acme") for _ in range(100))


def test_a_limit_that_is_gone_is_still_given_back_what_it_was_charged() -> None:
    """The policy may bring it back, and other copies may still go by it."""
    fleet = Fleet(make_policy(rate_per_s=1, burst=100, limits=_site(50)))
    verdict = fleet.limiter.check("acme", cost=40)
    fleet.limiter.apply(make_policy(rate_per_s=1, burst=100, version=2))
    fleet.limiter.refund(verdict)
    fleet.limiter.close()
    bucket = fleet.owner.bucket("(everyone)", "site")
    assert bucket is not None
    assert bucket.tokens_micro == pytest.approx(50e6)
    _assert_ledger(fleet)


def test_a_verdict_is_changed_once() -> None:
    """Fifty refunds of one request would be fifty requests for nothing."""
    fleet = Fleet(make_policy(rate_per_s=0.001, burst=100))
    verdict = fleet.limiter.check("acme", cost=10)
    fleet.limiter.refund(verdict)
    for cost in (0, 50):
        with pytest.raises(InvalidField, match=r"verdict is 0; .* only once"):
            fleet.limiter.charge(verdict, cost)
    assert 100 == sum(fleet.limiter.check("acme").allowed for _ in range(300))
    _assert_ledger(fleet)


def test_a_verdict_that_this_limiter_has_not_come_to_is_refused() -> None:
    """It is another limiter's: the caller spent nothing here."""
    fleet = Fleet(copies=2)
    for _ in range(3):
        verdict = fleet.copies[1].limiter.check("acme", cost=50)
    fleet.limiter.check("beta")
    with pytest.raises(InvalidField, match=r"verdict is 2; allowed: a verdict of this limiter: 0 to 0"):
        fleet.limiter.refund(verdict)


@pytest.mark.parametrize(("rate_per_s", "burst", "charged"), [(7, 1, 20), (1, 5, 40), (100, 5, 300), (100, 200, 900)])
def test_a_wait_counts_the_debt(rate_per_s: float, burst: int, charged: int) -> None:
    """A client that comes when it was told to come, and is sent away again, asks for nothing each time."""
    fleet = Fleet(make_policy(rate_per_s=rate_per_s, burst=burst))
    fleet.limiter.charge(fleet.limiter.check("acme"), charged)
    for cost in (1, 1, burst):
        refused = fleet.limiter.check("acme", cost=cost)
        assert not refused.allowed
        assert refused.retry_after_ms >= (charged - burst) / rate_per_s * 1e3 - 500
    fleet.advance(refused.retry_after_ms / 1e3)
    assert fleet.limiter.check("acme", cost=burst).allowed
    _assert_ledger(fleet)


def test_a_debt_is_paid_although_nobody_comes() -> None:
    """The refill of the time in between must not be lost to a full bucket, nor be asked for all the time."""
    fleet = Fleet(make_policy(rate_per_s=10, burst=20))
    fleet.limiter.charge(fleet.limiter.check("acme"), 120)
    asked = len(fleet.sink.grants)
    fleet.advance(10.5)
    assert fleet.limiter.check("acme").allowed
    assert len(fleet.sink.grants) - asked < 25
    _assert_ledger(fleet)


def test_a_wait_for_a_quota_counts_the_periods_of_its_debt() -> None:
    """The turn alone does not help where what was charged is more than a period's amount."""
    fleet = _quota()
    fleet.limiter.charge(fleet.limiter.check("acme"), 50)
    fleet.advance(1)
    refused = fleet.limiter.check("acme")
    assert 3_600_000 < refused.retry_after_ms <= 3_610_000
    fleet.advance(refused.retry_after_ms / 1e3, step_s=9)
    assert fleet.limiter.check("acme").allowed
