"""The limiter without its owner: which error it chooses, and that it says so."""

from __future__ import annotations

import pytest

from enforcer.errors import OwnerUnavailable
from enforcer.messages import Answer
from enforcer.types import Reason, Source
from tests.unit.enforcer.harness import Fleet, make_policy, owner_of


def _is_degraded(fleet: Fleet) -> bool:
    """Read anew at each call: a property may have changed since."""
    return fleet.limiter.degraded


def test_held_grants_are_spent_before_anything_is_degraded() -> None:
    """Fail static: the owner's last word stands."""
    fleet = Fleet()
    for _ in range(20):
        fleet.limiter.check("acme")
    held = fleet.limiter._lanes["acme", "default"].account.held
    assert held > 0
    fleet.owner.away = "tested"
    sources = [fleet.limiter.check("acme").source for _ in range(held + 1)]
    assert [Source.LOCAL] * held + [Source.DEGRADED] == sources


def test_an_outage_is_told_once_at_each_end() -> None:
    """Ops sees one change, not one per request."""
    fleet = Fleet()
    fleet.owner.away = "tested"
    for _ in range(10):
        fleet.limiter.check("acme")
        fleet.advance(0.3)
    assert _is_degraded(fleet)
    fleet.owner.away = None
    fleet.advance(3)
    assert not _is_degraded(fleet)
    assert Source.SHARED is fleet.limiter.check("acme").source
    assert [(True, "owner"), (False, "owner")] == [(change.entered, change.owner) for change in fleet.sink.changes]
    assert "tested" in fleet.sink.changes[0].cause


def test_small_plans_get_their_full_bucket_in_each_copy() -> None:
    """E16: wrong, bounded, survivable for an hour, also for callers that were idle before; never none of the plan."""
    fleet = Fleet(make_policy(rate_per_s=10, burst=20, fleet={"copies": 4, "ceiling_per_s": 1_000}), copies=4)
    fleet.owner.away = "tested"
    verdicts = [copy.limiter.check("acme") for copy in fleet.copies for _ in range(30)]
    assert 4 * 20 == sum(verdict.allowed for verdict in verdicts)
    refused = [verdict for verdict in verdicts if not verdict.allowed]
    assert {(Source.DEGRADED, Reason.SPENT)} == {(verdict.source, verdict.reason) for verdict in refused}
    assert {0} == {verdict.basis.grant_id for verdict in verdicts}


def test_large_plans_get_their_share_of_the_fleet() -> None:
    """The largest caller's full plan in every copy would be forty times the fleet."""
    fleet = Fleet(make_policy(rate_per_s=1_000, burst=2_000, fleet={"copies": 10, "ceiling_per_s": 1_500}))
    fleet.owner.away = "tested"
    verdicts = [fleet.limiter.check("acme") for _ in range(300)]
    assert 200 == sum(verdict.allowed for verdict in verdicts)
    assert Reason.EMERGENCY is verdicts[-1].reason
    assert 10 == verdicts[-1].retry_after_ms


def test_a_tiny_plan_over_many_copies_is_neither_nothing_nor_one_each() -> None:
    """E13: plan 10/s, 48 copies, one connection at 6/s; the owner down for a minute."""
    fleet = Fleet(make_policy(rate_per_s=10, burst=10, fleet={"copies": 48, "ceiling_per_s": 20}))
    fleet.owner.away = "tested"
    admitted = 0
    for _ in range(360):
        fleet.advance(1 / 6)
        admitted += fleet.limiter.check("marlow").allowed
    assert 360 == admitted


def test_closed_routes_refuse_and_emergency_routes_have_a_tiny_budget() -> None:
    """A route's own mode wins over the plan's."""
    scopes = {"POST /pay": {"fail_mode": "closed"}, "GET /status": {"fail_mode": "emergency"}}
    fleet = Fleet(make_policy(scopes=scopes, fleet={"copies": 50}))
    fleet.owner.away = "tested"
    closed = fleet.limiter.check("acme", "POST /pay")
    assert (False, Reason.CLOSED) == (closed.allowed, closed.reason)
    assert closed.retry_after_ms >= 1_000
    emergency = [fleet.limiter.check("acme", "GET /status") for _ in range(6)]
    assert 4 == sum(verdict.allowed for verdict in emergency)
    assert Reason.EMERGENCY is emergency[-1].reason
    assert fleet.limiter.check("acme", "GET /other").allowed


def test_outages_do_not_add_up() -> None:
    """A flapping owner must not hand out a fresh burst at every flap."""
    fleet = Fleet(make_policy(rate_per_s=1, burst=20))
    admitted = 0
    for _ in range(10):
        fleet.owner.away = "tested"
        verdicts = [fleet.limiter.check("acme") for _ in range(30)]
        admitted += sum(verdict.allowed for verdict in verdicts if verdict.source is Source.DEGRADED)
        fleet.owner.away = None
        fleet.advance(1.5, step_s=0.5)
    assert admitted <= 20 + 10 * 1.5 + 1


def test_a_cost_above_the_burst_is_never_also_without_the_owner() -> None:
    """No outage makes a limit larger."""
    fleet = Fleet()
    fleet.owner.away = "tested"
    assert Reason.NEVER is fleet.limiter.check("acme", cost=201).reason


def test_an_outage_in_a_flood_does_not_hand_out_the_burst_that_was_just_spent() -> None:
    """The owner had nothing left a moment ago: a lost answer gives this copy what refills, not a new burst."""
    fleet = Fleet(make_policy(rate_per_s=10, burst=20, fleet={"copies": 4, "ceiling_per_s": 1_000}))
    while fleet.limiter.check("acme").allowed:
        pass
    fleet.owner.away = "tested"
    fleet.advance(0.25)
    assert 2 == sum(fleet.limiter.check("acme").allowed for _ in range(50))


def test_an_outage_knows_how_much_of_a_quota_was_spent_elsewhere() -> None:
    """A quota does not refill until its turn: what the owner said is left bounds its share in an outage, too."""
    policy = make_policy(limits={"hour": {"by": "caller", "quota": 40, "per": "hour"}}, fleet={"copies": 4})
    fleet = Fleet(policy, copies=2)
    here, elsewhere = (copy.limiter for copy in fleet.copies)
    assert elsewhere.check("acme", cost=37).allowed
    assert here.check("acme").allowed
    fleet.owner.away = "tested"
    fleet.advance(5)
    assert 2 == sum(here.check("acme").allowed for _ in range(20))


def test_totals_that_were_not_heard_are_stated_after_the_outage() -> None:
    """An outage may delay the owner's knowledge, never change it."""
    fleet = Fleet(make_policy(rate_per_s=1, burst=50))
    for _ in range(20):
        fleet.limiter.check("acme")
    fleet.owner.away = "tested"
    held = fleet.limiter._lanes["acme", "default"].account.held
    for _ in range(held + 5):
        fleet.limiter.check("acme")
    fleet.advance(2)
    fleet.owner.away = None
    fleet.advance(4)
    account = fleet.limiter._lanes["acme", "default"].account
    assert [] == account.finals
    spent = fleet.sink.spent_by_grant()
    assert spent == {key: total.spent for key, total in fleet.sink.final_totals().items() if total.spent}


@pytest.mark.parametrize("answers", ["too few", "an error"])
def test_an_owner_that_misbehaves_is_treated_as_away(answers: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A fault in the owner's code or answers must cost accuracy, never a request."""
    fleet = Fleet()

    def misbehave(asks: object) -> list[object]:
        if answers == "an error":
            raise RuntimeError("a bug")
        return []

    monkeypatch.setattr(fleet.owner, "ask", misbehave)
    monkeypatch.setattr(owner_of(fleet.limiter), "ask", misbehave)
    assert Source.DEGRADED is fleet.limiter.check("acme").source


def test_an_owner_that_passes_its_probe_and_refuses_asks_is_asked_ever_less(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each time that it is believed costs requests a round trip, the record two changes, and the operator two lines."""
    fleet = Fleet()
    asked_at: list[int] = []

    def refuse(asks: object) -> list[Answer]:
        asked_at.append(fleet.clock.monotonic_ns())
        raise OwnerUnavailable("tested")

    monkeypatch.setattr(owner_of(fleet.limiter), "ask", refuse)
    for _ in range(100):
        assert Source.DEGRADED is fleet.limiter.check("acme").source
        fleet.advance(0.1)
    assert 10 <= len(asked_at) <= 16
    monkeypatch.undo()
    fleet.advance(2)
    assert Source.SHARED is fleet.limiter.check("acme").source


def test_a_step_probes_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Probes of a fleet add up at the very moment at which its owner is struggling."""
    fleet = Fleet()
    fleet.owner.away = "tested"
    fleet.limiter.check("acme")
    probes: list[int] = []
    passes = owner_of(fleet.limiter).probe

    def probe() -> None:
        probes.append(1)
        passes()

    monkeypatch.setattr(owner_of(fleet.limiter), "probe", probe)
    for _ in range(40):
        before = len(probes)
        fleet.limiter.tend()
        assert len(probes) - before <= 1
        fleet.clock.advance(0.05)
    assert 0 < len(probes) <= 8


def test_idle_callers_are_forgotten_in_an_outage_too() -> None:
    """A day without the owner and a new key per request would fill the copy, and lump everybody into one bucket."""
    fleet = Fleet(make_policy(rate_per_s=1, burst=50), evict_after_s=5)
    for _ in range(10):
        fleet.limiter.check("owing")
    fleet.owner.away = "tested"
    for number in range(100):
        fleet.limiter.check(f"caller-{number}")
    fleet.advance(60)
    assert [("owing", "default")] == list(fleet.limiter._lanes), "its totals are owed to the owner"
    fleet.owner.away = None
    fleet.advance(4)
    spent = fleet.sink.spent_by_grant()
    assert spent == {key: total.spent for key, total in fleet.sink.final_totals().items() if total.spent}
    fleet.advance(12)
    assert {} == fleet.limiter._lanes


def test_nobody_is_forgotten_into_a_new_burst() -> None:
    """Who spent the local bucket and pauses would come back to a full one, as often as wanted."""
    fleet = Fleet(make_policy(rate_per_s=0.1, burst=20), evict_after_s=5)
    fleet.owner.away = "tested"
    admitted = 0
    for _ in range(5):
        admitted += sum(fleet.limiter.check("acme").allowed for _ in range(30))
        fleet.advance(20, step_s=1)
    assert admitted <= 20 + 0.1 * 100
    fleet.advance(220, step_s=1)
    assert {} == fleet.limiter._lanes
