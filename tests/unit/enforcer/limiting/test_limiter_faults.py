"""The limiter with an owner that is there, and that cannot answer for one bucket."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from enforcer.errors import OwnerUnavailable
from enforcer.limiting.waiter import Waiter
from enforcer.messages import Answer, Ask, AskFault
from enforcer.types import Reason, Source
from tests.unit.enforcer.harness import Fleet, asker_of, make_policy, owner_of

BAD = ("bad", "rate")


def _warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]


def test_a_bad_bucket_costs_nobody_but_its_caller(caplog: pytest.LogCaptureFixture) -> None:
    """One caller's broken state used to put the whole copy on its own, again at each of that caller's requests."""
    fleet = Fleet(make_policy(rate_per_s=1, burst=20))
    fleet.owner.spoiled[BAD] = "tested"
    for number in range(300):
        assert Source.DEGRADED is fleet.limiter.check("bad").source
        assert Source.DEGRADED is not fleet.limiter.check(f"good-{number % 20}").source
        fleet.advance(0.1)
        assert not fleet.limiter.degraded
    assert [] == fleet.sink.changes
    assert 1 == len(_warnings(caplog))
    assert all(word in _warnings(caplog)[0] for word in ("'bad'", "'rate'", "tested"))


def test_a_bad_bucket_is_asked_for_ever_less_and_found_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It may stay bad for days, and be mended at any time."""
    fleet = Fleet(make_policy(rate_per_s=1, burst=20))
    asked: list[int] = []
    ask = owner_of(fleet.limiter).ask

    def count(asks: Sequence[Ask]) -> Sequence[Answer | AskFault]:
        asked.extend(1 for one in asks if one.caller == "bad")
        return ask(asks)

    monkeypatch.setattr(owner_of(fleet.limiter), "ask", count)
    fleet.owner.spoiled[BAD] = "tested"
    for _ in range(1_200):
        fleet.limiter.check("bad")
        fleet.advance(0.05)
    assert 8 <= len(asked) <= 20
    fleet.owner.spoiled.clear()
    fleet.advance(10)
    assert Source.SHARED is fleet.limiter.check("bad").source
    assert [1, 1] == [line.count("'bad'") for line in _warnings(caplog)]


def test_a_bad_bucket_is_decided_by_plan_and_route() -> None:
    """It is an outage of one bucket, so the policy's fail modes say what it means."""
    fleet = Fleet(make_policy(rate_per_s=1, burst=20, scopes={"POST /pay": {"fail_mode": "closed"}}))
    fleet.owner.spoiled[BAD] = "tested"
    assert Reason.CLOSED is fleet.limiter.check("bad", "POST /pay").reason
    verdicts = [fleet.limiter.check("bad") for _ in range(30)]
    assert 20 == sum(verdict.allowed for verdict in verdicts)
    assert {Source.DEGRADED} == {verdict.source for verdict in verdicts}


def test_what_is_held_of_a_bad_bucket_is_spent_and_settled_once_it_is_mended() -> None:
    """Totals are owed until they were heard; meanwhile they are not stated once a second."""
    fleet = Fleet(make_policy(rate_per_s=1, burst=50))
    for _ in range(20):
        fleet.limiter.check("bad")
    held = fleet.limiter._lanes["bad", "default"].account.held
    assert held > 0
    fleet.owner.spoiled[BAD] = "tested"
    sources = [fleet.limiter.check("bad").source for _ in range(held + 1)]
    assert [Source.LOCAL] * held + [Source.DEGRADED] == sources
    fleet.advance(20)
    fleet.owner.spoiled.clear()
    fleet.advance(20)
    account = fleet.limiter._directory.accounts
    assert [] == [one for one in account if one.finals]
    bucket = fleet.owner.bucket(*BAD)
    assert bucket is not None
    assert all(not member.open for member in bucket.members.values())
    spent = fleet.sink.spent_by_grant()
    assert spent == {key: total.spent for key, total in fleet.sink.final_totals().items() if total.spent}


def test_faults_of_every_bucket_are_an_outage_if_the_probe_fails_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that cannot run the script faults each bucket alike: that is one outage, not thousands of them."""
    fleet = Fleet()

    def fault(asks: Sequence[Ask]) -> list[AskFault]:
        return [AskFault("tested") for _ in asks]

    def refuse() -> None:
        raise OwnerUnavailable("tested")

    monkeypatch.setattr(owner_of(fleet.limiter), "ask", fault)
    monkeypatch.setattr(owner_of(fleet.limiter), "probe", refuse)
    assert Source.DEGRADED is fleet.limiter.check("acme").source
    assert fleet.limiter.degraded


def test_closing_states_the_totals_of_all_others() -> None:
    """A bad bucket at the head of the list must not keep the rest from being settled."""
    fleet = Fleet(make_policy(rate_per_s=1, burst=50))
    callers = ["bad", *(f"good-{number}" for number in range(5))]
    for caller in callers:
        for _ in range(10):
            fleet.limiter.check(caller)
    fleet.owner.spoiled[BAD] = "tested"
    fleet.limiter.close()
    for caller in callers[1:]:
        bucket = fleet.owner.bucket(caller, "rate")
        assert bucket is not None
        assert all(not member.open for member in bucket.members.values())


def test_a_request_that_lines_up_while_the_owner_is_found_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the clock of the round's beginning its bucket was still to be left alone: nobody asked, and it timed out."""
    fleet = Fleet(make_policy(rate_per_s=1, burst=20))
    fleet.owner.spoiled[BAD] = "tested"
    fleet.limiter.check("bad")
    fleet.owner.spoiled.clear()
    fleet.owner.away = "tested"
    fleet.limiter.check("other")
    assert fleet.limiter.degraded
    fleet.owner.away = None
    asker, lane = asker_of(fleet.limiter), fleet.limiter._lanes["bad", "default"]
    waiter, probe = Waiter(lane, 1, None), asker.probe

    def find_and_line_up() -> None:
        probe()
        fleet.clock.advance(1.0)
        with fleet.limiter._lock:
            asker.line_up(waiter, lane.account)

    monkeypatch.setattr(asker, "probe", find_and_line_up)
    # A probe is due, and the bad bucket is not: it is in the same instant that it becomes so.
    asker._breaker._probe_at_ns = fleet.clock.monotonic_ns()
    fleet.limiter.tend()
    assert waiter.verdict is not None
    assert waiter.verdict.allowed
