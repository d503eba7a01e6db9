"""Closing when something on the way hangs or fails: the record is closed all the same, and has its time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from enforcer.clock import ManualClock, SystemClock
from enforcer.core.account import Account
from enforcer.identity import new_identity
from enforcer.limiting.limiter import Limiter
from enforcer.limiting.settling import settle_last, warn_not_settled
from enforcer.messages import Answer, Ask, AskFault
from enforcer.owners.memory import MemoryOwner
from enforcer.owners.port import Owner
from enforcer.settings import LimiterSettings
from enforcer.sink import GrantSettled
from enforcer.testing import RecordingSink
from tests.unit.enforcer.harness import Fleet, make_policy
from tests.unit.enforcer.limiting.test_limiter_silence import _StuckOwner
from tests.unit.enforcer.limiting.test_tending import _holding


class _Many:
    """Owners that hang, and at last one that answers and holds every bucket."""

    def __init__(self, hanging: int) -> None:
        self.stuck = [_StuckOwner() for _ in range(hanging)]
        self.good = MemoryOwner(now_us=SystemClock().unix_us)
        self.nodes: Mapping[str, Owner] = {**{f"stuck-{n}": one for n, one in enumerate(self.stuck)}, "z": self.good}
        self.version = 0
        for one in self.stuck:
            one.gate.clear()

    def place(self, caller: str, limit: str) -> str:
        return "z"

    def refresh(self) -> bool:
        return False

    def close(self) -> None:
        """Nothing is held."""


def test_owners_that_hang_share_one_deadline_and_leave_time_for_the_record() -> None:
    """Three nodes of a cluster that is cut off would take three times as long, and the record would be thrown away."""
    owners, sink = _Many(3), RecordingSink()
    settings = LimiterSettings(close_timeout_s=1.0, idle_settle_s=60)
    policy = make_policy(timeouts={"ask_ms": 10_000})
    limiter = Limiter(policy, owners, sink, new_identity("copy", unix_ms=1, pid=1), settings=settings)
    assert limiter.check("acme").allowed
    limiter.close()
    for one in owners.stuck:
        one.gate.set()
    assert sink.closed_within_s is not None
    assert sink.closed_within_s > 0
    bucket = owners.good.bucket("acme", "rate")
    assert bucket is not None
    assert [] == [member for member in bucket.members.values() if member.open], "the owner that answers hears its total"


def test_something_to_be_done_at_closing_that_fails_does_not_lose_the_record(caplog: pytest.LogCaptureFixture) -> None:
    """An exporter that is away; and a second `close` would do nothing any more."""
    fleet = Fleet()
    fleet.limiter.check("acme")
    done: list[str] = []

    def fail() -> None:
        raise RuntimeError("exporter away")

    fleet.limiter.at_close(fail)
    fleet.limiter.at_close(lambda: done.append("next"))
    fleet.limiter.close()
    assert ["next"] == done
    assert fleet.sink.closed_within_s is not None
    assert 1 == sum(total.spent for total in fleet.sink.final_totals().values())
    assert "exporter away" in caplog.text


def test_a_sink_that_fails_loses_its_fact_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    """It used to end the closing in the middle: other totals were never stated, and the record not closed."""
    fleet = Fleet()
    for name in ("acme", "next"):
        fleet.limiter.check(name)
    take = fleet.sink.grant_settled

    def fail_for_one(fact: GrantSettled) -> None:
        if fact.caller == "acme":
            raise RuntimeError("a bug in the sink")
        take(fact)

    monkeypatch.setattr(fleet.sink, "grant_settled", fail_for_one)
    fleet.limiter.close()
    assert fleet.sink.closed_within_s is not None
    assert [("next", 1)] == [(caller, total.spent) for (caller, _, _), total in fleet.sink.final_totals().items()]
    for name in ("acme", "next"):
        bucket = fleet.owner.bucket(name, "rate")
        assert bucket is not None
        assert [] == [member for member in bucket.members.values() if member.open]


def test_last_totals_that_are_not_answered_are_told(caplog: pytest.LogCaptureFixture) -> None:
    """Which of them the owner has heard cannot be known, so none counts as heard."""

    class _Short(MemoryOwner):
        def ask(self, asks: Sequence[Ask]) -> list[Answer | AskFault]:
            return super().ask(asks)[:1]

    clock = ManualClock()
    owing = [_holding(name, now_ns=1) for name in ("acme", "next")]

    def compose(account: Account) -> Ask:
        return account.ask(ask_no=2, member="a/1", now_ns=1, jitter=0.5, waiting=[], ahead=False)

    settle_last(_Short(now_us=clock.unix_us), owing, compose, clock=clock, deadline_ns=clock.monotonic_ns() + 1)
    assert "last totals of 2 callers not settled: 2 asks got 1 answers" in caplog.text


@pytest.mark.parametrize(("callers", "whose"), [(1, "1 caller"), (2, "2 callers")])
def test_what_was_not_settled_is_counted_in_words(callers: int, whose: str, caplog: pytest.LogCaptureFixture) -> None:
    """It is read by people, at the end of a process."""
    warn_not_settled(callers, "no time left")
    assert [f"last totals of {whose} not settled: no time left"] == [said.getMessage() for said in caplog.records]
