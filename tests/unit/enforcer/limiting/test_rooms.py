"""What each limit has left, as clients are told: every limit that can refuse, and nothing in the client's favour."""

from __future__ import annotations

import re

import pytest

from enforcer.core.headers import header_fields
from enforcer.limiting.limiter import Limiter
from enforcer.policies.model import Policy
from enforcer.types import Reason, Source, Verdict
from tests.unit.enforcer.harness import Fleet, make_policy

LIMITS = {
    "hourly": {"by": "caller", "quota": 20, "per": "hour"},
    "site": {"by": "everyone", "rate_per_s": 2, "burst": 50},
    "new": {"by": "caller", "rate_per_s": 0.001, "burst": 1, "mode": "shadow"},
}


def _told(limiter: Limiter, verdict: Verdict) -> dict[str, str]:
    return {name.decode(): value.decode() for name, value in header_fields(verdict, limiter.rooms(verdict))}


def _left(limiter: Limiter, verdict: Verdict) -> dict[str, int]:
    return {room.terms.limit: room.left for room in limiter.rooms(verdict)}


def test_every_enforced_limit_is_told_and_a_shadow_one_is_not() -> None:
    """E21: a client must see what can refuse it, and must not pace itself by what cannot."""
    fleet = Fleet(make_policy(limits=LIMITS))
    verdicts = [fleet.limiter.check("acme") for _ in range(3)]
    told = _told(fleet.limiter, verdicts[-1])
    assert '"rate";q=200;w=2, "hourly";q=20;w=3600, "site";q=50;w=25' == told["ratelimit-policy"]
    assert re.fullmatch(r'"rate";r=197;t=1, "hourly";r=17;t=\d+, "site";r=47;t=1', told["ratelimit"]), told
    assert {"ratelimit", "ratelimit-policy"} == set(told)


def test_a_quota_says_when_it_starts_anew_and_not_before() -> None:
    """t is true: at that second there is more, and the second before there is not."""
    fleet = Fleet(make_policy(limits={"hourly": {"by": "caller", "quota": 3, "per": "hour"}}))
    verdicts = [fleet.limiter.check("acme") for _ in range(3)]
    _, hourly = fleet.limiter.rooms(verdicts[-1])
    assert 0 == hourly.left
    fleet.clock.advance(hourly.more_in_s - 1)
    assert not fleet.limiter.check("acme").allowed
    fleet.clock.advance(1)
    assert fleet.limiter.check("acme").allowed


def test_the_limit_that_refused_says_what_the_refusal_says_and_the_others_their_own() -> None:
    """One number in two headers must be one number; what others have left is no secret of the refusal."""
    fleet = Fleet(make_policy(limits=LIMITS))
    for _ in range(21):
        refused = fleet.limiter.check("acme")
    told = _told(fleet.limiter, refused)
    wait = told["retry-after"]
    assert refused.retry_after_ms <= int(wait) * 1_000 < refused.retry_after_ms + 1_000
    assert f'"rate";r=180;t=1, "hourly";r=0;t={wait}, "site";r=30;t=1' == told["ratelimit"]


def test_after_a_large_cost_was_refused_smaller_ones_are_known_to_fit() -> None:
    """A client that could not have twenty must not be told that it has none."""
    fleet = Fleet(make_policy(rate_per_s=1, burst=30))
    assert fleet.limiter.check("acme", cost=12).allowed
    refused = fleet.limiter.check("acme", cost=20)
    assert not refused.allowed
    (room,) = fleet.limiter.rooms(refused)
    assert (18, -(-refused.retry_after_ms // 1_000)) == (room.left, room.more_in_s)
    assert fleet.limiter.check("acme", cost=room.left).allowed


def test_a_cost_that_can_never_be_paid_names_no_time_at_all() -> None:
    """A client that finds a t somewhere waits for it, and sends again what will never be admitted."""
    fleet = Fleet(make_policy(limits=LIMITS))
    fleet.limiter.check("acme")
    never = fleet.limiter.check("acme", cost=21)
    assert Reason.NEVER is never.reason
    told = _told(fleet.limiter, never)
    assert '"rate";r=199, "hourly";r=19, "site";r=49' == told["ratelimit"]
    assert "retry-after" not in told


def test_a_refusal_by_the_protection_is_no_refusal_by_a_limit() -> None:
    """The cap knows nobody: the caller has left what it had."""
    fleet = Fleet(make_policy(limits=LIMITS))
    fleet.limiter.check("acme")
    refused = fleet.limiter.refuse_for_cap("acme", wait_ms=1_500)
    told = _told(fleet.limiter, refused)
    assert {"rate": 199, "hourly": 19, "site": 49} == _left(fleet.limiter, refused)
    assert "2" == told["retry-after"]
    assert told["ratelimit"].startswith('"rate";r=199;t=1, ')


def test_an_empty_bucket_says_when_this_copy_stops_refusing() -> None:
    """After the last token there may be a longer pause than the next token takes; t must not be before its end."""
    fleet = Fleet(make_policy(rate_per_s=0.1, burst=5))
    verdicts = [fleet.limiter.check("acme") for _ in range(6)]
    refused = verdicts[-1]
    (room,) = fleet.limiter.rooms(verdicts[-2])
    assert (0, 10) == (room.left, room.more_in_s)
    assert not refused.allowed
    (of_refusal,) = fleet.limiter.rooms(refused)
    assert (0, -(-refused.retry_after_ms // 1_000)) == (of_refusal.left, of_refusal.more_in_s)


@pytest.mark.parametrize("mode", ["emergency", "by_plan"])
def test_without_the_owner_each_limit_tells_what_this_copy_still_admits(mode: str) -> None:
    """The plan divided by the copies refills that much slower, and a client must not be told the whole plan."""
    fleet = Fleet(
        make_policy(
            rate_per_s=10,
            burst=20,
            limits={"hourly": {"by": "caller", "quota": 40, "per": "hour"}},
            fleet={"copies": 10},
            fail={"mode": mode},
        )
    )
    fleet.owner.away = "tested"
    verdict = fleet.limiter.check("acme")
    assert Source.DEGRADED is verdict.source
    rate, hourly = fleet.limiter.rooms(verdict)
    # A quota is always divided: 4 in each copy, which come back at 4 an hour.
    assert ((1, 1) if mode == "emergency" else (19, 1), (3, 900)) == ((rate.left, rate.more_in_s), (hourly.left, 900))
    assert 900 == hourly.more_in_s
    later = [fleet.limiter.check("acme") for _ in range(4)]
    refused = next(one for one in later if not one.allowed)
    told = _told(fleet.limiter, refused)
    assert f";t={told['retry-after']}" in told["ratelimit"]


def test_of_a_policy_that_changed_since_only_the_verdicts_own_limit_is_told() -> None:
    """A list that mixes two versions would be true of neither."""
    fleet = Fleet(make_policy(limits=LIMITS))
    verdict = fleet.limiter.check("acme")
    fleet.limiter.apply(Policy.model_validate({**make_policy().model_dump(mode="json"), "version": 2}))
    assert ["rate"] == [room.terms.limit for room in fleet.limiter.rooms(verdict)]
    later = fleet.limiter.check("acme")
    assert [("rate", 2)] == [(room.terms.limit, room.terms.policy_version) for room in fleet.limiter.rooms(later)]
