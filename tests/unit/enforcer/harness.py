"""Limiters on a clock that stands still, with an owner in this process: all is decided on the calling thread."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from enforcer.clock import ManualClock
from enforcer.identity import new_identity
from enforcer.limiting.asker import Asker
from enforcer.limiting.limiter import Limiter
from enforcer.owners.memory import MemoryOwner
from enforcer.owners.port import Owner
from enforcer.policies.model import Policy
from enforcer.settings import LimiterSettings
from enforcer.testing import RecordingSink


def make_policy(*, rate_per_s: float = 100, burst: int = 200, **fields: object) -> Policy:
    """A policy of one plan, "standard", with whatever else is given."""
    document: dict[str, object] = {
        "version": 1,
        "plans": {"standard": {"rate_per_s": rate_per_s, "burst": burst}},
        "default_plan": "standard",
    }
    return Policy.model_validate({**document, **fields})


@dataclass
class Copy:
    """One copy of a fleet in a test."""

    limiter: Limiter
    sink: RecordingSink


class Fleet:
    """Copies that share one clock and one owner."""

    def __init__(self, policy: Policy | None = None, *, copies: int = 1, **settings: object) -> None:
        self.clock = ManualClock()
        self.owner = MemoryOwner(now_us=self.clock.unix_us)
        self.policy = policy or make_policy()
        self.copies = [self._copy(number, settings) for number in range(copies)]

    @property
    def limiter(self) -> Limiter:
        """The first copy's limiter."""
        return self.copies[0].limiter

    @property
    def sink(self) -> RecordingSink:
        """The first copy's sink."""
        return self.copies[0].sink

    def advance(self, seconds: float, *, step_s: float = 0.25) -> None:
        """Let time pass, with each copy's background work done every `step_s`."""
        left = seconds
        while left > 1e-9:
            step = min(step_s, left)
            self.clock.advance(step)
            left -= step
            for copy in self.copies:
                copy.limiter.tend()

    def _copy(self, number: int, settings: dict[str, object]) -> Copy:
        sink = RecordingSink()
        chosen = LimiterSettings(**{"threaded": False, "jitter": lambda: 0.5, **settings})  # type: ignore[arg-type]  # keyword by name
        identity = new_identity(f"copy-{number}", unix_ms=1_700_000_000_000, pid=number)
        limiter = Limiter(self.policy, _Shared(self.owner), sink, identity, settings=chosen, clock=self.clock)
        return Copy(limiter, sink)


def asker_of(limiter: Limiter) -> Asker:
    """The one asker of a limiter with one owner."""
    (asker,) = limiter._askers._askers.values()
    return asker


def owner_of(limiter: Limiter) -> Owner:
    """The one owner of a limiter, as it has it."""
    (owner,) = limiter._owners.nodes.values()
    return owner


class MovingOwners:
    """Owners of which one, named by the test, has all buckets; it moves them, as another thread moves a cluster's."""

    def __init__(self, nodes: Mapping[str, Owner], *, where: str) -> None:
        self.nodes = nodes
        self.where, self.version = where, 0

    def place(self, caller: str, limit: str) -> str:
        """Where the test says."""
        return self.where

    def refresh(self) -> bool:
        """Nothing but the test moves them."""
        return False

    def close(self) -> None:
        """Nothing is held."""

    def move(self, where: str) -> None:
        """All buckets are there from now on."""
        self.where = where
        self.version += 1


class _Shared(MemoryOwner):
    """A copy's own handle on the fleet's owner: closing it leaves the owner to the others."""

    def __init__(self, owner: MemoryOwner) -> None:
        self.__dict__ = owner.__dict__

    def close(self) -> None:
        """Leave the shared owner open."""
