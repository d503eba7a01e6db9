"""Limits that only say what they would do, and warnings before a limit is reached."""

from __future__ import annotations

from enforcer.sink import OwnerClock, SoftLimitReached, WouldRefuse
from tests.unit.enforcer.harness import Fleet, make_policy

SHADOW = {"new": {"by": "caller", "rate_per_s": 0.001, "burst": 5, "mode": "shadow"}}


def test_a_shadow_limit_refuses_nothing_and_says_what_it_would_refuse() -> None:
    """E21: a policy is tried on real traffic before anyone is refused by it."""
    fleet = Fleet(make_policy(limits=SHADOW))
    for _ in range(20):
        assert fleet.limiter.check("acme", cost=1).allowed
        fleet.limiter.tend()
    fleet.advance(2)
    told = [fact for fact in fleet.sink.events if isinstance(fact, WouldRefuse)]
    assert ("acme", "default", "new", 1, 15, 15) == (
        told[-1].caller,
        told[-1].scope,
        told[-1].limit,
        told[-1].policy_version,
        told[-1].requests,
        told[-1].cost,
    )


def test_a_shadow_limit_moves_no_counter_of_an_enforced_one() -> None:
    """E21: headers, record and buckets are those of the enforced limits alone."""
    fleet = Fleet(make_policy(rate_per_s=0.001, burst=10, limits=SHADOW))
    verdicts = [fleet.limiter.check("acme") for _ in range(20)]
    assert 10 == sum(verdict.allowed for verdict in verdicts)
    assert {((), "rate")} == {(verdict.basis.also, verdict.basis.limit) for verdict in verdicts}
    assert fleet.owner.bucket("acme", "new") is None


def test_a_shadow_limit_never_makes_a_request_wait() -> None:
    """Trying a limit must cost nobody a round trip: it is asked for behind the request's back."""
    fleet = Fleet(make_policy(limits=SHADOW))
    fleet.limiter.check("acme")
    fleet.owner.spoiled["acme", "new~shadow"] = "tested"
    assert all(fleet.limiter.check("acme").allowed for _ in range(10))


def test_a_shadow_limit_warns_nobody_and_has_no_grants_on_the_record() -> None:
    """Its caller would be warned of a limit that is not enforced, under a name that stands in no policy."""
    fleet = Fleet(make_policy(limits=SHADOW))
    for _ in range(20):
        fleet.limiter.check("acme")
        fleet.advance(0.2)
    fleet.limiter.close()
    assert {WouldRefuse} == {type(fact) for fact in fleet.sink.events} - {OwnerClock}
    assert {"rate"} == {fact.limit for fact in fleet.sink.grants} == {fact.limit for fact in fleet.sink.settlements}
    shadow = fleet.owner.bucket("acme", "new~shadow")
    assert shadow is not None
    assert shadow.tokens_micro < 5_000_000, "it was charged all the same"


def test_a_limit_that_is_nearly_used_up_warns_on_the_verdict_and_once_as_an_event() -> None:
    """At 80 % there is still time to do something; a warning a request would be noise."""
    fleet = Fleet(make_policy(rate_per_s=0.001, burst=100))
    soft = [fleet.limiter.check("acme").soft for _ in range(100)]
    assert not any(soft[:60])
    assert all(soft[90:])
    told = [fact for fact in fleet.sink.events if isinstance(fact, SoftLimitReached)]
    assert [("acme", "rate", 1)] == [(fact.subject, fact.limit, fact.policy_version) for fact in told]
    assert 0.8 <= told[0].used_share <= 1


def test_a_soft_share_of_zero_never_warns() -> None:
    """Whoever sells bursts to be spent does not want to be told that they are."""
    policy = make_policy(plans={"standard": {"rate_per_s": 0.001, "burst": 50, "soft_share": 0}})
    fleet = Fleet(policy)
    assert not any(fleet.limiter.check("acme").soft for _ in range(60))
    assert not [fact for fact in fleet.sink.events if isinstance(fact, SoftLimitReached)]


def test_a_check_in_shadow_decides_nothing_and_says_what_all_limits_would_refuse() -> None:
    """E21: a whole kind of requests is tried before any of them is refused."""
    limits = {"day": {"by": "caller", "quota": 15, "per": "day"}, **SHADOW}
    fleet = Fleet(make_policy(rate_per_s=0.001, burst=10, limits=limits))
    for _ in range(20):
        fleet.limiter.check_in_shadow("acme", cost=1)
        fleet.limiter.tend()
    assert [] == fleet.sink.verdicts
    assert [None, None] == [fleet.owner.bucket("acme", limit) for limit in ("rate", "day")]
    fleet.advance(2)
    told = {fact.limit: fact.requests for fact in fleet.sink.events if isinstance(fact, WouldRefuse)}
    assert {"rate": 10, "day": 5, "new": 15} == told
    assert 10 == sum(fleet.limiter.check("acme").allowed for _ in range(20)), "what is enforced is whole"
