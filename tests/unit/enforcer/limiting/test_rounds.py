"""What one round trip carries: never more than a server answers in one ask's time, and no account's words twice."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from enforcer.limiting.settling import BATCH
from enforcer.messages import Answer, Ask, AskFault
from tests.unit.enforcer.harness import Fleet, asker_of, make_policy, owner_of

CALLERS = 3 * BATCH


class _Counted:
    """A fleet whose copy holds a grant for each of many callers, and what its owner is asked from then on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.fleet = Fleet(make_policy(rate_per_s=100, burst=200), idle_settle_s=60)
        for _ in range(3):
            for number in range(CALLERS):
                self.fleet.limiter.check(f"caller-{number}")
            self.fleet.advance(0.1)
        self.trips: list[list[Ask]] = []
        ask = owner_of(self.fleet.limiter).ask

        def count(asks: Sequence[Ask]) -> Sequence[Answer | AskFault]:
            self.trips.append(list(asks))
            return ask(asks)

        monkeypatch.setattr(owner_of(self.fleet.limiter), "ask", count)

    @property
    def holding(self) -> int:
        return sum(account.holds_grant for account in self.fleet.limiter._directory.accounts)

    def lose(self) -> None:
        """The owner's memory is gone."""
        self.fleet.owner._buckets.clear()

    def drain(self) -> list[str]:
        """Rounds until nothing is due; who was asked for in them."""
        before = len(self.trips)
        for _ in range(50):
            self.fleet.limiter.tend()
        assert not self.fleet.limiter.degraded
        return [ask.caller for trip in self.trips[before:] for ask in trip]


def test_a_state_that_was_lost_is_told_once_and_again_only_when_it_is_lost_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each batch that was taken in used to start the telling anew: the more callers, the longer the storm."""
    counted = _Counted(monkeypatch)
    for _ in range(2):
        held = counted.holding
        assert held > BATCH
        counted.lose()
        account = next(account for account in counted.fleet.limiter._directory.accounts if account.holds_grant)
        with counted.fleet.limiter._lock:
            asker_of(counted.fleet.limiter).enqueue(account)
        asked = counted.drain()
        assert len(set(asked)) >= held
        assert len(asked) <= held + 2, "and the one by which the loss was found"


@pytest.mark.parametrize("unannounced", [10, CALLERS])
def test_a_round_is_bounded_as_a_whole_and_leaves_room_for_what_nobody_waits_for(
    monkeypatch: pytest.MonkeyPatch, unannounced: int
) -> None:
    """After an outage all three kinds are due at once: more than the server answers in time is the next outage."""
    counted = _Counted(monkeypatch)
    limiter = counted.fleet.limiter
    accounts = [account for account in limiter._directory.accounts if account.holds_grant]
    asker = asker_of(limiter)
    counted.fleet.clock.advance(61)
    counted.drain()
    counted.trips.clear()
    with limiter._lock:
        asker.tending.announce(accounts[BATCH : BATCH + unannounced])
        for account in accounts[:BATCH]:
            asker.enqueue(account)
    counted.fleet.clock.advance(61)
    limiter.tend()
    assert len(counted.trips[0]) == BATCH
    waited_for = {account.caller for account in accounts[:BATCH]}
    assert 0 < sum(ask.caller not in waited_for for ask in counted.trips[0]) <= BATCH // 4
    counted.drain()
    assert max(map(len, counted.trips)) <= BATCH
