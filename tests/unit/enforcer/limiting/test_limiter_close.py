"""Closing a limiter that is busy: whoever waits is decided and recorded, and afterwards nothing is."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from enforcer.errors import EnforcerError, InvalidField, OwnerUnavailable
from enforcer.identity import new_identity
from enforcer.limiting.limiter import Limiter
from enforcer.messages import Answer, Ask, AskFault
from enforcer.settings import LimiterSettings
from enforcer.testing import RecordingSink
from enforcer.types import Source, Verdict
from tests.processes import wait_until
from tests.unit.enforcer.harness import Fleet, asker_of, make_policy, owner_of
from tests.unit.enforcer.limiting.test_limiter_threads import GatedOwner

CALLERS = 8


class _ClosingSink(RecordingSink):
    """Knows how much it had when it was closed."""

    taken: tuple[int, ...] = ()

    @property
    def all_taken(self) -> tuple[int, ...]:
        return tuple(len(facts) for facts in (self.verdicts, self.grants, self.settlements, self.changes))

    def close(self, timeout_s: float) -> None:
        super().close(timeout_s)
        self.taken = self.all_taken


class _FailingOwner(GatedOwner):
    """Waits at the gate, and then is away."""

    def ask(self, asks: Sequence[Ask]) -> list[Answer]:
        super().ask(asks)
        raise OwnerUnavailable("tested")


def _limiter(owner: GatedOwner, *, close_timeout_s: float = 10.0) -> tuple[Limiter, _ClosingSink]:
    sink = _ClosingSink()
    policy = make_policy(rate_per_s=1e6, burst=1_000_000, timeouts={"ask_ms": 10_000})
    settings = LimiterSettings(idle_settle_s=60, close_timeout_s=close_timeout_s)
    return Limiter(policy, owner, sink, new_identity("copy", unix_ms=1, pid=1), settings=settings), sink


def _waiting(limiter: Limiter, owner: GatedOwner, pool: ThreadPoolExecutor) -> list[Future[Verdict]]:
    """One request whose ask is under way, and others behind it."""
    owner.gate.clear()
    first = pool.submit(limiter.check, "first")
    assert owner.arrived.acquire(timeout=20)
    rest = [pool.submit(limiter.check, f"caller-{number % 4}") for number in range(CALLERS)]
    wait_until(lambda: len(asker_of(limiter)._lines) >= CALLERS + 1, 20, what="all requests in line", poll_s=0.001)
    return [first, *rest]


def _closing(limiter: Limiter) -> threading.Thread:
    """A thread that is inside `close`: no request is taken in any more."""
    thread = threading.Thread(target=limiter.close)
    thread.start()

    def refuses() -> bool:
        try:
            limiter._new_lane("late", "default")
        except EnforcerError:
            return True
        return False

    wait_until(refuses, 20, what="a limiter that takes nobody in", poll_s=0.001)
    return thread


def _assert_whole(sink: _ClosingSink, returned: list[Verdict]) -> None:
    assert sink.taken == sink.all_taken, "something was recorded after the record was closed"
    assert sorted(verdict.seq for verdict in returned) == sorted(verdict.seq for verdict in sink.verdicts)
    spent = sink.spent_by_grant()
    assert spent == {key: total.spent for key, total in sink.final_totals().items() if total.spent}


def test_whoever_waits_while_it_closes_is_answered_by_the_owner_and_recorded() -> None:
    """They used to wait their whole timeout, and then got verdicts that no record has."""
    owner = GatedOwner(lambda ask: ask.waiting + 3 if ask.waiting else 0)
    limiter, sink = _limiter(owner)
    with ThreadPoolExecutor(CALLERS + 1) as pool:
        futures = _waiting(limiter, owner, pool)
        thread = _closing(limiter)
        owner.gate.set()
        thread.join(20)
        returned = [future.result(1) for future in futures]
    assert {Source.SHARED} == {verdict.source for verdict in returned}
    assert {0} == {ask.waiting for ask in owner.trips[-1]}, "a last total is no request for tokens"
    _assert_whole(sink, returned)


def test_whoever_waits_for_an_owner_that_is_lost_meanwhile_is_recorded() -> None:
    """They are decided where they are released, not where their thread goes on some time later."""
    owner = _FailingOwner(lambda _: 0)
    limiter, sink = _limiter(owner)
    with ThreadPoolExecutor(CALLERS + 1) as pool:
        futures = _waiting(limiter, owner, pool)
        thread = _closing(limiter)
        owner.gate.set()
        thread.join(20)
        returned = [future.result(1) for future in futures]
    assert {Source.DEGRADED} == {verdict.source for verdict in returned}
    _assert_whole(sink, returned)


def test_an_owner_that_never_answers_does_not_hold_up_the_record() -> None:
    """Its answer may still come: it must find everything decided, and the record closed."""
    owner = GatedOwner(lambda ask: ask.waiting + 3)
    limiter, sink = _limiter(owner, close_timeout_s=0.1)
    with ThreadPoolExecutor(CALLERS + 1) as pool:
        futures = _waiting(limiter, owner, pool)
        limiter.close()
        returned = [future.result(1) for future in futures]
        owner.gate.set()
    assert asker_of(limiter)._has_ended(20)
    assert {Source.DEGRADED} == {verdict.source for verdict in returned}
    _assert_whole(sink, returned)


@pytest.mark.parametrize("at", ["ask", "close"])
def test_an_error_of_the_owner_does_not_lose_the_record(
    at: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A fault while the last totals are stated used to come out of `close`."""
    fleet = Fleet()
    fleet.limiter.check("acme")
    closed: list[str] = []

    def fail(*_: object) -> Sequence[Answer | AskFault]:
        closed.append(at)
        raise RuntimeError("a bug")

    monkeypatch.setattr(owner_of(fleet.limiter), at, fail)
    fleet.limiter.close()
    assert [at] == closed
    assert fleet.sink.closed_within_s is not None
    assert any(record.exc_info and "a bug" in str(record.exc_info[1]) for record in caplog.records)
    assert 1 == sum(total.spent for total in fleet.sink.final_totals().values())


def test_a_decision_that_comes_too_late_for_the_record_is_not_returned() -> None:
    """A thread that was interrupted in the middle of its decision must not go on with a verdict that nobody has."""
    fleet = Fleet()
    fleet.limiter.check("acme")
    lane = fleet.limiter._lanes["acme", "default"]
    fleet.limiter.close()
    with pytest.raises(EnforcerError, match="closed"):
        fleet.limiter.record(lane.basis, 0, allowed=True, code=0, cost=1, remaining=0, wait_ms=0)
    assert 1 == len(fleet.sink.verdicts)


def test_what_is_wrong_with_a_check_stands_alone() -> None:
    """The reason below a KeyError of ours is a reason that nobody reads."""
    fleet = Fleet()
    with pytest.raises(InvalidField) as wrong:
        fleet.limiter.check("")
    fleet.limiter.close()
    with pytest.raises(EnforcerError) as closed:
        fleet.limiter.check("new")
    assert wrong.value.__suppress_context__
    assert closed.value.__suppress_context__
