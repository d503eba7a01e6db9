"""The limiter with its owner at hand: verdicts, what they cost the owner, and what the record holds."""

from __future__ import annotations

import math

import pytest

from enforcer.errors import EnforcerError, InvalidField
from enforcer.identity import CopyIdentity, parse_request_id
from enforcer.limiting.waiter import Waiter
from enforcer.messages import SettleCause
from enforcer.types import Reason, Source
from tests.unit.enforcer.harness import Fleet, make_policy


def _assert_record_is_whole(fleet: Fleet) -> None:
    """Every decision numbered without gap; every grant's final total is what its decisions spent."""
    for copy in fleet.copies:
        assert list(range(len(copy.sink.verdicts))) == [verdict.seq for verdict in copy.sink.verdicts]
        spent = copy.sink.spent_by_grant()
        assert spent == {key: total.spent for key, total in copy.sink.final_totals().items() if total.spent}


def test_a_full_burst_is_admitted_and_not_one_more() -> None:
    """The plan as sold, on one copy."""
    fleet = Fleet(make_policy(rate_per_s=1, burst=50))
    verdicts = [fleet.limiter.check("acme") for _ in range(60)]
    assert [True] * 50 + [False] * 10 == [verdict.allowed for verdict in verdicts]
    assert Reason.SPENT is verdicts[50].reason
    fleet.limiter.close()
    _assert_record_is_whole(fleet)


def test_the_owner_is_asked_for_grants_not_for_requests() -> None:
    """Requests divided by the grant: that is the whole saving."""
    fleet = Fleet()
    for _ in range(100):
        fleet.limiter.check("acme")
    sources = [verdict.source for verdict in fleet.sink.verdicts]
    assert Source.SHARED is sources[0]
    assert sources.count(Source.SHARED) <= 8
    assert len(fleet.sink.grants) == sources.count(Source.SHARED)


def test_a_refusal_is_remembered_and_honest() -> None:
    """E8: refused at 1/s and 0.2 s in → 800 ms; retrying then is admitted, one millisecond earlier is not."""
    fleet = Fleet(make_policy(rate_per_s=1, burst=1))
    assert fleet.limiter.check("acme").allowed
    fleet.clock.advance(0.2)
    refused = fleet.limiter.check("acme")
    assert (False, 800) == (refused.allowed, refused.retry_after_ms)
    fleet.clock.advance(0.799)
    early = fleet.limiter.check("acme")
    assert (False, Source.LOCAL, 1) == (early.allowed, early.source, early.retry_after_ms)
    fleet.clock.advance(0.001)
    assert fleet.limiter.check("acme").allowed


def test_a_cost_above_the_burst_is_never_and_costs_nothing() -> None:
    """E1, E2: never is no wait; it takes no grant, and the calls after it are untouched."""
    fleet = Fleet(make_policy(rate_per_s=1, burst=5))
    never = fleet.limiter.check("acme", cost=10)
    assert (False, Reason.NEVER, -1) == (never.allowed, never.reason, never.retry_after_ms)
    assert 5 == fleet.limiter.room(never)
    assert [] == fleet.sink.grants
    assert all(fleet.limiter.check("acme").allowed for _ in range(5))


def test_a_dear_request_is_all_or_nothing() -> None:
    """A refused request spends nothing, and a cheaper one behind it is still admitted."""
    fleet = Fleet(make_policy(rate_per_s=1, burst=10))
    assert fleet.limiter.check("acme", cost=7).allowed
    dear = fleet.limiter.check("acme", cost=7)
    assert (False, Reason.SPENT) == (dear.allowed, dear.reason)
    assert 3_000 < dear.retry_after_ms <= 4_000
    assert fleet.limiter.check("acme", cost=3).allowed
    fleet.limiter.close()
    _assert_record_is_whole(fleet)


def test_a_dear_request_retried_when_told_is_admitted() -> None:
    """Retry-After holds for every cost."""
    fleet = Fleet(make_policy(rate_per_s=10, burst=20))
    assert fleet.limiter.check("acme", cost=20).allowed
    refused = fleet.limiter.check("acme", cost=15)
    assert not refused.allowed
    fleet.advance(refused.retry_after_ms / 1e3)
    assert fleet.limiter.check("acme", cost=15).allowed


def test_cost_comes_from_the_policy_unless_it_is_given() -> None:
    """Weighted limits are decided by policy, not by code."""
    fleet = Fleet(make_policy(scopes={"POST /search": {"cost": 10}}))
    assert 10 == fleet.limiter.check("acme", "POST /search").cost
    assert 2 == fleet.limiter.check("acme", "POST /search", 2).cost
    assert 1 == fleet.limiter.check("acme", "GET /").cost


def test_scopes_share_their_callers_bucket() -> None:
    """One limit per plan: routes are counted apart and charged together."""
    fleet = Fleet(make_policy(rate_per_s=1, burst=10))
    verdicts = [fleet.limiter.check("acme", f"GET /{n % 3}") for n in range(12)]
    assert 10 == sum(verdict.allowed for verdict in verdicts)
    assert {"GET /0", "GET /1", "GET /2"} == {verdict.basis.scope for verdict in verdicts}
    fleet.limiter.close()
    _assert_record_is_whole(fleet)


class _Text(str):
    """What template engines hand out for text."""

    __slots__ = ()


def test_a_subclass_of_text_is_recorded_as_plain_text() -> None:
    """The record takes plain text only: one such name would otherwise cost all later decisions of the caller."""
    fleet = Fleet()
    for caller, scope in ((_Text("acme"), _Text("search")), ("acme", "search")):
        basis = fleet.limiter.check(caller, scope).basis
        assert (str, str) == (basis.caller.__class__, basis.scope.__class__)


def test_callers_do_not_share() -> None:
    """One caller's flood is no other's refusal."""
    fleet = Fleet(make_policy(rate_per_s=1, burst=5))
    for _ in range(50):
        fleet.limiter.check("flood")
    assert all(fleet.limiter.check("calm").allowed for _ in range(5))


@pytest.mark.parametrize(
    "caller", ["", "a" * 257, "a" * 1_000_000, "a\nb", "a\x00", "\u2028", "\ud800", None, 7, b"acme", ["a"]]
)
def test_a_caller_of_another_form_is_refused_by_name(caller: object) -> None:
    """Made-up keys must not reach the owner, the log or a page, and the message must not be a megabyte."""
    fleet = Fleet()
    with pytest.raises(InvalidField, match="caller") as caught:
        fleet.limiter.check(caller)  # type: ignore[arg-type]  # wrong on purpose
    assert len(str(caught.value)) < 300
    with pytest.raises(InvalidField, match="scope"):
        fleet.limiter.check("acme", caller)  # type: ignore[arg-type]  # wrong on purpose
    assert [] == fleet.sink.verdicts


@pytest.mark.parametrize("cost", [-1, math.nan, math.inf, 1.0, True, False, "1", 1_000_000_001, [1]])
def test_a_cost_of_another_form_is_refused_by_name(cost: object) -> None:
    """A cost of -1 would mint tokens, one of NaN would poison the bucket; also on a lane that is already open."""
    fleet = Fleet()
    fleet.limiter.check("acme")
    for caller in ("acme", "other"):
        with pytest.raises(InvalidField, match="cost"):
            fleet.limiter.check(caller, cost=cost)  # type: ignore[arg-type]  # wrong on purpose
    assert 1 == len(fleet.sink.verdicts)


def test_idle_tokens_go_home() -> None:
    """What one copy does not use, another can: idle stock is refused traffic elsewhere."""
    fleet = Fleet(make_policy(rate_per_s=1, burst=50))
    for _ in range(20):
        fleet.limiter.check("acme")
    fleet.advance(6.0)
    assert {SettleCause.ASK, SettleCause.EXPIRY} == {f.settlement.cause for f in fleet.sink.settlements}
    bucket = fleet.owner.bucket("acme", "rate")
    assert bucket is not None
    assert all(not member.open for member in bucket.members.values())
    _assert_record_is_whole(fleet)


def test_idle_callers_are_forgotten_and_come_back() -> None:
    """Memory is bounded by who is there now, not by who ever was."""
    fleet = Fleet(make_policy(rate_per_s=1, burst=50), evict_after_s=5)
    for number in range(100):
        fleet.limiter.check(f"caller-{number}")
    lane = fleet.limiter._lanes["caller-1", "default"]
    fleet.advance(12)
    assert {} == fleet.limiter._lanes
    assert lane.account.evicted
    assert fleet.limiter.check("caller-1").allowed
    # A thread that still held the lane of before must end up on the new account.
    fleet.advance(2)
    late = fleet.limiter._slow(lane, 1, fleet.clock.monotonic_ns(), None)
    assert isinstance(late, Waiter)
    fleet.limiter.tend()
    assert late.verdict is not None
    fleet.limiter.close()
    _assert_record_is_whole(fleet)


def test_made_up_callers_share_one_bucket_beyond_the_bound() -> None:
    """An attacker with a new key per request must not grow this process without end."""
    fleet = Fleet(make_policy(rate_per_s=1, burst=5), max_callers=10)
    verdicts = [fleet.limiter.check(f"made-up-{number}") for number in range(100)]
    callers = {verdict.basis.caller for verdict in verdicts}
    assert 11 == len(callers)
    assert "anonymous" in callers
    assert 5 == sum(verdict.allowed for verdict in verdicts if verdict.basis.caller == "anonymous")
    assert len(fleet.limiter._lanes) == 11


def test_request_id_leads_back_to_the_decision() -> None:
    """R13: support finds a refusal by the id in its body."""
    fleet = Fleet()
    verdict = fleet.limiter.check("acme")
    identity, seq = parse_request_id(fleet.limiter.request_id(verdict))
    assert (fleet.limiter.identity, verdict.seq) == (identity, seq)
    assert isinstance(identity, CopyIdentity)


def test_room_is_what_the_caller_may_expect_not_what_this_copy_holds() -> None:
    """A client that reads r=0 after its first request would stop for nothing."""
    fleet = Fleet()
    verdict = fleet.limiter.check("acme")
    assert verdict.remaining <= 1
    assert 190 <= fleet.limiter.room(verdict) <= 200


def test_closed_limiter_has_settled_everything_and_says_so() -> None:
    """After close nothing is held, nothing unrecorded, and a late request is an error, not a free pass."""
    fleet = Fleet()
    for _ in range(30):
        fleet.limiter.check("acme")
    fleet.limiter.close()
    fleet.limiter.close()
    assert fleet.sink.closed_within_s is not None
    assert 30 == sum(total.spent for total in fleet.sink.final_totals().values())
    bucket = fleet.owner.bucket("acme", "rate")
    assert bucket is not None
    assert all(not member.open for member in bucket.members.values())
    with pytest.raises(EnforcerError, match="closed"):
        fleet.limiter.check("acme")
    _assert_record_is_whole(fleet)


def test_traffic_that_moves_between_copies_is_not_refused() -> None:
    """E9: four copies, 60 s on A, then all on B at 95 per second."""
    fleet = Fleet(copies=4)
    for copy in (fleet.copies[0], fleet.copies[1]):
        for _ in range(1_000):
            fleet.advance(1 / 95)
            assert copy.limiter.check("acme").allowed
    _assert_close_and_whole(fleet)


def test_ten_requests_on_ten_copies_use_the_burst_of_ten() -> None:
    """E10: once the owner has counted the copies, a plan smaller than them is still worth its burst."""
    fleet = Fleet(make_policy(rate_per_s=100, burst=10), copies=48)
    for copy in fleet.copies:
        fleet.advance(0.02)
        assert copy.limiter.check("acme").allowed
    fleet.advance(0.2)
    assert all(copy.limiter.check("acme").allowed for copy in fleet.copies[:10])


def test_fractions_of_tokens_are_kept() -> None:
    """E4: 54 per minute, one request per second for 20 minutes, admits 0.90 per second."""
    fleet = Fleet(make_policy(rate_per_s=0.9, burst=10))
    admitted = 0
    for _ in range(1_200):
        fleet.advance(1)
        admitted += fleet.limiter.check("acme").allowed
    assert abs(admitted - (0.9 * 1_200 + 10)) <= 11


@pytest.mark.parametrize("locked", [False, True])
def test_both_ways_of_spending_decide_alike(locked: bool) -> None:
    """The lock of a free-threaded build must change the price, never the verdict."""
    fleet = Fleet(make_policy(rate_per_s=10, burst=20), locked=locked)
    verdicts = []
    for _ in range(100):
        fleet.advance(0.05)
        verdicts.append(fleet.limiter.check("acme"))
    plain = Fleet(make_policy(rate_per_s=10, burst=20))
    for verdict in verdicts:
        plain.advance(0.05)
        other = plain.limiter.check("acme")
        assert (other.allowed, other.remaining, other.retry_after_ms) == (
            verdict.allowed, verdict.remaining, verdict.retry_after_ms,
        )  # fmt: skip
    _assert_close_and_whole(fleet)


def _assert_close_and_whole(fleet: Fleet) -> None:
    for copy in fleet.copies:
        copy.limiter.close()
    _assert_record_is_whole(fleet)


@pytest.mark.parametrize("stem", ["made-up-", "anonymous/made-up-", "anonymous/"])
def test_callers_that_nobody_named_share_the_buckets_of_the_policy(stem: str) -> None:
    """Whatever they call themselves: neither this copy nor the owner grows with their names."""
    anonymous = {"plan": "standard", "buckets": 8}
    policy = make_policy(unnamed="anonymous", anonymous=anonymous, callers={"acme": "standard"})
    fleet = Fleet(policy)
    names = {fleet.limiter.check(f"{stem}{number}").basis.caller for number in range(100_000, 101_000)}
    assert {f"anonymous/{number:04}" for number in range(8)} == names
    assert len(fleet.limiter._directory.accounts) == len(fleet.limiter._lanes) == 8
    assert "acme" == fleet.limiter.check("acme").basis.caller
