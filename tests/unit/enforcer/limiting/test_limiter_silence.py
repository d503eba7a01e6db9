"""An asker that is itself stuck: one request waits, then nobody does, and everybody is told."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence

import pytest

from enforcer.clock import SystemClock
from enforcer.identity import new_identity
from enforcer.limiting.limiter import Limiter
from enforcer.limiting.presence import Presence
from enforcer.limiting.reporting import Reporting
from enforcer.messages import Answer, Ask
from enforcer.settings import LimiterSettings
from enforcer.testing import RecordingSink
from enforcer.types import Source
from tests.processes import wait_until
from tests.unit.enforcer.harness import asker_of, make_policy
from tests.unit.enforcer.limiting.test_limiter_threads import GatedOwner

ASK_MS = 300
S = 1_000_000_000


class _StuckOwner(GatedOwner):
    """Its probe waits at the gate, too, as one whose name is being resolved."""

    def __init__(self) -> None:
        super().__init__(lambda ask: ask.waiting + ask.want)
        self.probing = threading.Event()

    def probe(self) -> None:
        self.probing.set()
        assert self.gate.wait(20)

    def ask(self, asks: Sequence[Ask]) -> list[Answer]:
        return super().ask(asks)


def _limiter(owner: GatedOwner) -> tuple[Limiter, RecordingSink]:
    sink = RecordingSink()
    policy = make_policy(timeouts={"ask_ms": ASK_MS})
    settings = LimiterSettings(idle_settle_s=60)
    return Limiter(policy, owner, sink, new_identity("copy", unix_ms=1, pid=1), settings=settings), sink


@pytest.mark.parametrize("asynchronous", [False, True])
@pytest.mark.parametrize("stuck_in", ["probe", "ask"])
def test_nobody_waits_behind_the_first_for_an_asker_that_is_stuck(stuck_in: str, asynchronous: bool) -> None:
    """An owner that drips its answer, a name server that is silent: each request would wait its whole timeout."""
    owner = _StuckOwner()
    if stuck_in == "probe":
        owner.gate.clear()
    limiter, sink = _limiter(owner)
    assert owner.probing.wait(20)
    owner.gate.clear()
    before_ns = SystemClock.monotonic_ns()
    for number in range(30):
        name = f"caller-{number}"
        verdict = asyncio.run(limiter.acheck(name)) if asynchronous else limiter.check(name)
        assert verdict.source is Source.DEGRADED
        assert limiter.degraded
    assert SystemClock.monotonic_ns() - before_ns < 5 * ASK_MS * 1_000_000, "one timeout and not thirty"
    wait_until(lambda: limiter.check("told").allowed and len(sink.changes) == 1, 20, what="the fact", poll_s=0.02)
    owner.gate.set()
    wait_until(lambda: not limiter.degraded, 20, what="the end of the silence", poll_s=0.002)
    assert limiter.check("after").source is Source.SHARED
    limiter.close()
    assert [True, False] == [change.entered for change in sink.changes]


def _presence() -> tuple[Presence, RecordingSink]:
    sink = RecordingSink()
    return Presence(Reporting(sink, SystemClock(), member="copy/1"), name="owner"), sink


def test_a_request_that_waited_while_others_were_answered_says_nothing_about_the_owner() -> None:
    """It stood behind a round that was not for it; the owner is there."""
    presence, _ = _presence()
    presence.heard(5 * S)
    presence.overdue(4 * S)
    assert not presence.is_away(6 * S)
    presence.overdue(5 * S + 1)
    assert presence.is_away(6 * S)


def test_a_short_silence_is_no_outage() -> None:
    """A copy that computes is late by itself: two facts and two lines for each time would bury the outages."""
    presence, sink = _presence()
    presence.overdue(S)
    assert presence.is_away(S + S // 4)
    presence.heard(S + S // 3)
    assert not presence.is_away(2 * S)
    assert [] == sink.changes
    presence.overdue(3 * S)
    assert presence.is_away(4 * S)
    assert [True] == [change.entered for change in sink.changes], "a long one is told by whoever meets it"
    presence.lost("tested")
    presence.lost("tested")
    assert not presence.is_silent
    presence.heard(5 * S)
    assert [True, False] == [change.entered for change in sink.changes]


def test_a_silence_that_is_found_by_an_asker_at_rest_is_ended_by_a_probe() -> None:
    """Nobody asks an owner that is taken for away: without that it would stay so."""
    owner = _StuckOwner()
    limiter, _ = _limiter(owner)
    assert limiter.check("acme").source is Source.SHARED
    with limiter._lock:
        asker_of(limiter).presence.overdue(SystemClock.monotonic_ns())
    assert limiter.degraded
    wait_until(lambda: not limiter.degraded, 20, what="the probe", poll_s=0.002)
    limiter.close()
