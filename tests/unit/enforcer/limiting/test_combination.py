"""Several limits on one request: all of them admit, or none is charged."""

from __future__ import annotations

import asyncio

import pytest

from enforcer.core.account import Account
from enforcer.core.resolution import EVERYONE
from enforcer.limiting.limiter import Limiter
from enforcer.types import Charge, Reason, Source, Verdict
from tests.unit.enforcer.harness import Fleet, make_policy

SITE = {"site": {"by": "everyone", "rate_per_s": 100, "burst": 100}}


def _admitted(limiter: Limiter, caller: str, times: int, scope: str = "default") -> int:
    return sum(limiter.check(caller, scope).allowed for _ in range(times))


def _spent(fleet: Fleet, subject: str, limit: str) -> int:
    """What the owner knows to be spent of a bucket whose grants have all gone home."""
    bucket = fleet.owner.bucket(subject, limit)
    assert bucket is not None
    assert 0 == bucket.stock_out
    return round(sum(total.spent for key, total in fleet.sink.final_totals().items() if key[:2] == (subject, limit)))


def test_a_refusal_by_one_limit_charges_no_other() -> None:
    """E3: one user over its own limit must not use up what all users share."""
    fleet = Fleet(make_policy(rate_per_s=10 / 60, burst=10, limits=SITE))
    assert 10 == _admitted(fleet.limiter, "user", 50)
    fleet.limiter.close()
    assert 10 == _spent(fleet, EVERYONE, "site")
    assert 10 == _spent(fleet, "user", "rate")


def test_a_refusal_names_the_limit_that_refused() -> None:
    """Support must not send a customer to the wrong plan."""
    fleet = Fleet(make_policy(limits={"site": {"by": "everyone", "rate_per_s": 1, "burst": 3}}))
    verdicts = [fleet.limiter.check(f"user-{number}") for number in range(5)]
    assert [True, True, True, False, False] == [verdict.allowed for verdict in verdicts]
    refused = verdicts[3]
    assert ("user-3", "site", Reason.SPENT, 0) == (
        refused.basis.caller,
        refused.basis.limit,
        refused.reason,
        refused.basis.grant_id,
    )
    assert 0 < refused.retry_after_ms <= 1_000


def test_of_several_spent_limits_the_refusal_names_the_one_with_the_longest_wait() -> None:
    """Who comes back when the shortest wait is over is refused again for having obeyed."""
    fleet = Fleet(make_policy(rate_per_s=1, burst=10, limits={"hourly": {"by": "caller", "quota": 10, "per": "hour"}}))
    assert 10 == _admitted(fleet.limiter, "acme", 20)
    refused = fleet.limiter.check("acme")
    assert ("hourly", Reason.SPENT) == (refused.basis.limit, refused.reason)
    fleet.clock.advance((refused.retry_after_ms - 1) / 1e3)
    assert not fleet.limiter.check("acme").allowed
    fleet.clock.advance(1e-3)
    assert fleet.limiter.check("acme").allowed


def test_alone_too_the_longest_wait_of_all_limits_is_told() -> None:
    """The same in an outage, where each limit has a bucket of this copy's own."""
    limits = {"site": {"by": "everyone", "rate_per_s": 0.1, "burst": 3}}
    fleet = Fleet(make_policy(rate_per_s=1, burst=3, limits=limits))
    fleet.owner.away = "tested"
    assert 3 == _admitted(fleet.limiter, "acme", 3)
    refused = fleet.limiter.check("acme")
    assert ("site", 10_000) == (refused.basis.limit, refused.retry_after_ms)
    fleet.clock.advance(10)
    assert fleet.limiter.check("acme").allowed


def test_an_admission_names_every_grant_that_paid_for_it() -> None:
    """The ledger balances each grant against the decisions that name it."""
    fleet = Fleet(make_policy(limits=SITE))
    for _ in range(7):
        assert fleet.limiter.check("acme", cost=2).allowed
    fleet.limiter.close()
    totals = {key: total.spent for key, total in fleet.sink.final_totals().items() if total.spent}
    assert 14 == sum(spent for (_, limit, _), spent in totals.items() if limit == "site")
    assert totals == fleet.sink.spent_by_grant()


def test_a_cost_that_one_limit_can_never_hold_is_never() -> None:
    """E1: however much the plan allows, waiting will not help."""
    fleet = Fleet(make_policy(limits={"site": {"by": "everyone", "rate_per_s": 5, "burst": 5}}))
    verdict = fleet.limiter.check("acme", cost=6)
    assert (False, Reason.NEVER, "site", -1) == (
        verdict.allowed,
        verdict.reason,
        verdict.basis.limit,
        verdict.retry_after_ms,
    )
    assert fleet.limiter.check("acme", cost=5).allowed


def test_a_tenants_callers_share_its_limit_and_nobody_elses() -> None:
    """Whoever splits its traffic over more users buys no more."""
    limits = {"tenant": {"by": "tenant", "rate_per_s": 1, "burst": 10}}
    fleet = Fleet(
        make_policy(limits=limits, tenants={"separator": "/"}, callers={"boss": {"plan": "standard", "tenant": "acme"}})
    )
    assert 6 == _admitted(fleet.limiter, "acme/ann", 6)
    assert 4 == _admitted(fleet.limiter, "acme/bob", 6)
    assert 0 == _admitted(fleet.limiter, "boss", 1)
    assert 10 == _admitted(fleet.limiter, "other/ann", 20)
    assert 20 == _admitted(fleet.limiter, "nobody's", 20)


def test_a_limit_of_a_scope_applies_there_only_and_overrides_are_the_subjects_own() -> None:
    """The most specific rule sets the amount."""
    limits = {
        "search": {
            "by": "caller",
            "scopes": ["POST /search"],
            "rate_per_s": 1,
            "burst": 2,
            "overrides": {"acme": {"rate_per_s": 1, "burst": 5}},
        }
    }
    fleet = Fleet(make_policy(limits=limits, scopes={"POST /search": {}}))
    assert (2, 5) == tuple(_admitted(fleet.limiter, caller, 9, "POST /search") for caller in ("beta", "acme"))
    assert 9 == _admitted(fleet.limiter, "beta", 9, "GET /")


@pytest.mark.parametrize("locked", [False, True])
def test_requests_of_one_limit_and_of_two_share_what_is_held(locked: bool) -> None:
    """The fast path and the lock spend from one lease: no token twice."""
    limits = {"search": {"by": "caller", "scopes": ["s"], "rate_per_s": 1, "burst": 50}}
    fleet = Fleet(make_policy(rate_per_s=1, burst=80, limits=limits, scopes={"s": {}}), locked=locked)
    admitted = sum(
        _admitted(fleet.limiter, "acme", 1, "s") + _admitted(fleet.limiter, "acme", 1, "t") for _ in range(99)
    )
    assert 80 <= admitted <= 81
    fleet.limiter.close()
    assert admitted == _spent(fleet, "acme", "rate")
    totals = {key: total.spent for key, total in fleet.sink.final_totals().items() if total.spent}
    assert totals == fleet.sink.spent_by_grant()


def test_an_outage_of_one_bucket_degrades_those_who_need_it_only_in_that_part() -> None:
    """What can be decided exactly is; the rest by the fail mode, and the verdict says so."""
    fleet = Fleet(make_policy(limits=SITE))
    fleet.owner.spoiled[EVERYONE, "site"] = "tested"
    verdict = fleet.limiter.check("acme")
    assert (True, Source.DEGRADED, ()) == (verdict.allowed, verdict.source, verdict.basis.also)
    assert verdict.basis.grant_id > 0
    assert not fleet.limiter.degraded


def test_without_the_owner_all_limits_still_admit_or_none_is_charged() -> None:
    """A refusal in an outage must not use up the local bucket of another limit."""
    fleet = Fleet(make_policy(rate_per_s=1, burst=3, limits={"site": {"by": "everyone", "rate_per_s": 1, "burst": 5}}))
    fleet.owner.away = "tested"
    assert 3 == _admitted(fleet.limiter, "ann", 9)
    assert 2 == _admitted(fleet.limiter, "bob", 9)
    reasons = {(verdict.source, verdict.reason) for verdict in fleet.sink.verdicts if not verdict.allowed}
    assert {(Source.DEGRADED, Reason.SPENT)} == reasons


def test_a_free_request_is_always_admitted_and_spends_nothing() -> None:
    """Cost 0: a health check of a caller that is over its limit is recorded, and answered."""
    fleet = Fleet(make_policy(rate_per_s=1, burst=2, scopes={"ping": {"cost": 0}}, limits=SITE))
    assert 2 == _admitted(fleet.limiter, "acme", 5)
    free = [fleet.limiter.check("acme", "ping") for _ in range(3)]
    assert [(True, 0)] * 3 == [(verdict.allowed, verdict.cost) for verdict in free]
    fleet.owner.away = "tested"
    assert fleet.limiter.check("acme", cost=0).allowed
    fleet.limiter.close()
    assert 2 == _spent(fleet, "acme", "rate")


def test_a_limit_for_a_part_of_the_callers_is_always_for_the_same() -> None:
    """A staged limit that changes its mind refuses everybody now and then."""
    limits = {"new": {"by": "caller", "rate_per_s": 1, "burst": 1, "percent": 30}}
    fleet = Fleet(make_policy(limits=limits))
    enforced = {name for name in (f"user-{n}" for n in range(200)) if _admitted(fleet.limiter, name, 3) == 1}
    assert 40 <= len(enforced) <= 80
    other = Fleet(make_policy(limits=limits))
    assert enforced == {name for name in (f"user-{n}" for n in range(200)) if _admitted(other.limiter, name, 3) == 1}


def _charges(verdict: Verdict) -> tuple[Charge, ...]:
    return verdict.basis.also


def test_the_other_limits_of_a_verdict_change_with_their_grants() -> None:
    """A stale grant id would be charged for what another grant paid."""
    fleet = Fleet(make_policy(limits=SITE))
    seen = {_charges(fleet.limiter.check("acme"))[0].grant_id for _ in range(30)}
    assert len(seen) > 2
    assert 0 not in seen


def test_a_local_refusal_gives_back_what_a_grant_had_paid() -> None:
    """One limit is decided exactly, the other alone: a refusal by the second spends nothing of the first."""
    fleet = Fleet(make_policy(limits={"site": {"by": "everyone", "rate_per_s": 0.001, "burst": 2}}))
    fleet.owner.spoiled[EVERYONE, "site"] = "tested"
    assert 2 == _admitted(fleet.limiter, "acme", 9)
    fleet.limiter.close()
    assert 2 == _spent(fleet, "acme", "rate")


def test_a_local_refusal_gives_back_what_another_local_bucket_had_paid() -> None:
    """Without any owner the same: the caller's own bucket is as full as before."""
    limits = {"site": {"by": "everyone", "rate_per_s": 0.001, "burst": 5}}
    fleet = Fleet(make_policy(rate_per_s=0.001, burst=3, limits=limits))
    fleet.owner.away = "tested"
    assert (3, 2) == (_admitted(fleet.limiter, "ann", 9), _admitted(fleet.limiter, "bob", 9))
    (bucket,) = fleet.limiter._lanes["bob", "default"].account.local.values()
    assert 1 == bucket.remaining


@pytest.mark.parametrize("asynchronous", [False, True])
@pytest.mark.parametrize("limits", [{}, SITE])
def test_the_next_grant_is_asked_for_early_for_each_limit_that_runs_low(
    asynchronous: bool, limits: dict[str, object]
) -> None:
    """A steady caller never waits, whichever of its limits runs out first, in threads and in event loops."""
    fleet = Fleet(make_policy(rate_per_s=1_000, burst=2_000, limits=limits), ask_ahead_above_ms=0.0)
    sources: list[Source] = []
    for _ in range(64):
        fleet.advance(0.02)
        check, acheck = fleet.limiter.check, fleet.limiter.acheck
        sources.append((asyncio.run(acheck("acme")) if asynchronous else check("acme")).source)
    assert [Source.LOCAL] * 40 == sources[-40:]


def test_a_request_with_more_limits_than_the_fast_path_has_room_for_is_decided_all_the_same() -> None:
    """Slower, and by the same rules."""
    many = {f"limit-{number}": {"by": "everyone", "rate_per_s": 1, "burst": 5 + number} for number in range(6)}
    fleet = Fleet(make_policy(limits=many))
    assert 5 == _admitted(fleet.limiter, "acme", 20)
    fleet.limiter.close()
    assert {5} == {_spent(fleet, EVERYONE, limit) for limit in many}


def test_what_one_limit_paid_is_given_back_if_another_was_spent_in_between(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another thread's fast path may take the last token after this request looked: nothing may be half charged."""
    fleet = Fleet(make_policy(limits=SITE), locked=True)
    for _ in range(20):
        fleet.limiter.check("acme")
    spend, taken = Account.spend, [0]

    def taken_in_between(account: Account, cost: int, now_ns: int, *, past_expiry: bool = False) -> int:
        if account.limit == "site" and not taken[0]:
            taken[0] += 1
            return -1
        return spend(account, cost, now_ns, past_expiry=past_expiry)

    monkeypatch.setattr(Account, "spend", taken_in_between)
    assert fleet.limiter.check("acme").allowed
    assert taken == [1]
    fleet.limiter.close()
    totals = {key: total.spent for key, total in fleet.sink.final_totals().items() if total.spent}
    assert totals == fleet.sink.spent_by_grant()
