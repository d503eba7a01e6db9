"""Owners that are found, replaced or gone: the copy goes where they are, and says no more than is so."""

from __future__ import annotations

from collections.abc import Mapping

from enforcer.clock import ManualClock, SystemClock
from enforcer.identity import new_identity
from enforcer.limiting.limiter import Limiter
from enforcer.owners.memory import MemoryOwner
from enforcer.owners.port import Owner
from enforcer.owners.sentinel import SentinelOwners
from enforcer.settings import LimiterSettings
from enforcer.testing import RecordingSink
from enforcer.types import Source
from tests.processes import wait_until
from tests.unit.enforcer.harness import asker_of, make_policy


class _Two:
    """Two nodes; `live` are those that there are, and all buckets are at `where`."""

    def __init__(self, clock: ManualClock) -> None:
        self.all = {name: MemoryOwner(now_us=clock.unix_us) for name in "AB"}
        self.live: Mapping[str, Owner] = dict(self.all)
        self.where, self.version = "A", 0

    @property
    def nodes(self) -> Mapping[str, Owner]:
        return self.live

    def place(self, caller: str, limit: str) -> str:
        return self.where

    def refresh(self) -> bool:
        return False

    def close(self) -> None:
        """Nothing is held."""

    def move(self, where: str) -> None:
        self.where = where
        self.version += 1


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
    owners.live = {"B": owners.all["B"]}
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


def test_asks_of_all_owners_are_numbered_together() -> None:
    """A bucket that moves knows the highest number: an ask with a lower one would be an old one, and get nothing."""
    limiter, owners, _ = _on_two()
    for _ in range(5):
        limiter.check("acme", cost=7)
    # The same bucket is there, as after a slot has moved.
    owners.all["B"]._buckets.update(owners.all["A"]._buckets)
    owners.move("B")
    limiter._askers.look_again()
    assert limiter.check("acme", cost=50).source is Source.SHARED
    limiter.close()


def test_a_copy_behind_sentinels_starts_with_its_service() -> None:
    """Its address is to be asked for first: each start used to be an outage, and its first verdicts degraded."""
    owner, sink = MemoryOwner(now_us=SystemClock.unix_us), RecordingSink()
    owners = SentinelOwners(
        ["redis://127.0.0.1:1"],
        "service",
        name="sentinel",
        url_of=lambda host, port: f"redis://{host}:{port}",
        owner_of=lambda _: owner,
        timeout_s=1.0,
        ask=lambda *_, **__: [b"127.0.0.1", b"2"],
    )
    policy = make_policy(timeouts={"ask_ms": 10_000})
    limiter = Limiter(policy, owners, sink, new_identity("copy", unix_ms=1, pid=1))
    asker = asker_of(limiter)
    wait_until(lambda: asker.presence._heard_ns >= 0, 20, what="the first probe", poll_s=0.002)
    assert limiter.check("acme").source is Source.SHARED
    limiter.close()
    assert [] == sink.changes
