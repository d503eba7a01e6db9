"""The owner in memory keeps the contract."""

from __future__ import annotations

import pytest

from enforcer.core.dials import DEFAULT_DIALS
from enforcer.errors import OwnerUnavailable
from enforcer.messages import Ask
from enforcer.owners.memory import MemoryOwner
from enforcer.types import Plan
from tests.contract.desk import START_US, Desk, MemoryDesk
from tests.contract.owner import OwnerContract
from tests.contract.owner_faults import OwnerFaults

PLAN = Plan("standard", 100.0, 200)


class TestMemoryOwner(OwnerContract, OwnerFaults):
    """All of it."""

    @pytest.fixture
    def desk(self) -> Desk:
        """With a clock in hand."""
        return MemoryDesk()


def _ask(caller: str) -> Ask:
    return Ask(caller, "rate", PLAN, "gw-1/1", 1, (), 1, 0, 0.0, 1, 0.0)


def test_owner_that_is_away_or_closed_says_so() -> None:
    """Tests of the enforcer's degraded side rest on it."""
    owner = MemoryOwner(now_us=lambda: START_US)
    owner.away = "unplugged"
    with pytest.raises(OwnerUnavailable, match="unplugged"):
        owner.ask([_ask("a")])
    owner.away = None
    owner.ask([_ask("a")])
    owner.close()
    with pytest.raises(OwnerUnavailable, match="closed"):
        owner.probe()


def test_buckets_that_would_be_full_are_forgotten() -> None:
    """Made-up callers must not fill the process."""
    now_us = START_US
    owner = MemoryOwner(now_us=lambda: now_us)
    for number in range(3_000):
        owner.ask([_ask(f"made-up-{number}")])
    now_us += 2 * (DEFAULT_DIALS.keep_us + DEFAULT_DIALS.expiry_us + DEFAULT_DIALS.grace_us)
    for number in range(5_000):
        owner.ask([_ask(f"later-{number % 10}")])
    assert owner.bucket("made-up-0", "rate") is None
    assert owner.bucket("later-0", "rate") is not None
