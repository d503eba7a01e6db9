"""Owners that are found, replaced or gone: the copy goes where they are, and says no more than is so."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from enforcer.clock import ManualClock
from enforcer.identity import new_identity
from enforcer.limiting.limiter import Limiter
from enforcer.messages import Answer, Ask, AskFault
from enforcer.owners.memory import MemoryOwner
from enforcer.settings import LimiterSettings
from enforcer.testing import RecordingSink
from enforcer.types import Source
from tests.processes import wait_until
from tests.unit.enforcer.harness import MovingOwners, make_policy


class _Two(MovingOwners):
    """Two nodes, `all`; `nodes` are those that there are."""

    def __init__(self, clock: ManualClock) -> None:
        self.all = {name: MemoryOwner(now_us=clock.unix_us) for name in "AB"}
        super().__init__(dict(self.all), where="A")


def _on_two() -> tuple[Limiter, _Two, RecordingSink]:
    clock, sink = ManualClock(), RecordingSink()
    owners = _Two(clock)
    settings = LimiterSettings(threaded=False, jitter=lambda: 0.5)
    limiter = Limiter(
        make_policy(), owners, sink, new_identity("copy", unix_ms=1, pid=1), settings=settings, clock=clock
    )
    return limiter, owners, sink


def test_an_owner_that_is_replaced_while_it_is_away_is_no_outage_any_more() -> None:
    """Nobody would ever say that it is over: the gauge and the last fact stood at degraded for ever."""
    limiter, owners, sink = _on_two()
    owners.all["A"].away = "dead"
    assert limiter.check("acme").source is Source.DEGRADED
    owners.nodes = {"B": owners.all["B"]}
    owners.move("B")
    limiter._askers.look_again()
    assert not limiter.degraded
    assert [("A", True), ("A", False)] == [(change.owner, change.entered) for change in sink.changes]
    assert limiter.check("acme").source is Source.SHARED
    limiter.close()


def test_a_bucket_that_comes_to_another_owner_leaves_its_faults_behind() -> None:
    """It could not be read where it was; where it is now it can."""
    limiter, owners, _ = _on_two()
    owners.all["A"].spoiled["acme", "rate"] = "tested"
    assert limiter.check("acme").source is Source.DEGRADED
    owners.move("B")
    limiter._askers.look_again()
    assert limiter.check("acme").source is Source.SHARED
    limiter.close()


def test_a_bucket_that_cannot_be_read_is_decided_alone_without_a_wait() -> None:
    """Until it is asked for again nobody lines up: each would wait a round trip for the same fault."""
    limiter, owners, _ = _on_two()
    owners.all["A"].spoiled["acme", "rate"] = "tested"
    limiter.check("acme")
    (account,) = limiter._directory.accounts
    assert account.backoff.until_ns
    assert limiter._askers.is_away(account, account.backoff.until_ns - 1)
    assert not limiter._askers.is_away(account, account.backoff.until_ns)
    limiter.close()


def test_asks_of_all_owners_are_numbered_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bucket that moves knows the highest number: an ask with a lower one would be an old one, and get nothing."""
    limiter, owners, _ = _on_two()
    numbers: dict[str, list[int]] = {"A": [], "B": []}

    def noted(name: str) -> Callable[[Sequence[Ask]], Sequence[Answer | AskFault]]:
        ask = owners.all[name].ask

        def note(asks: Sequence[Ask]) -> Sequence[Answer | AskFault]:
            numbers[name] += [one.ask_no for one in asks]
            return ask(asks)

        return note

    for name, owner in owners.all.items():
        monkeypatch.setattr(owner, "ask", noted(name))
    for caller in ("acme", "beta", "acme"):
        limiter.check(caller, cost=60)
    owners.move("B")
    limiter._askers.look_again()
    limiter.check("acme", cost=60)
    limiter.close()
    assert numbers["A"]
    assert numbers["B"]
    assert min(numbers["B"]) > max(numbers["A"])


def test_a_copy_asks_where_its_buckets_are_before_its_first_word_to_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """A service behind sentinels has no address yet, and a cluster's seeds are not all of it: a start is no outage."""
    owners, sink, done = _Two(ManualClock()), RecordingSink(), list[str]()
    owners.nodes = {"A": owners.all["A"]}

    def look() -> bool:
        done.append("look")
        return False

    monkeypatch.setattr(owners, "refresh", look)
    monkeypatch.setattr(owners.all["A"], "probe", lambda: done.append("probe"))
    limiter = Limiter(make_policy(), owners, sink, new_identity("copy", unix_ms=1, pid=1))
    wait_until(lambda: "probe" in done, 20, what="the first probe", poll_s=0.002)
    limiter.close()
    assert ["look", "probe"] == done[:2]
    assert [] == sink.changes
