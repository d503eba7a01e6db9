"""The port through which facts leave the enforcer, and the sink that keeps none.

The enforcer never learns where they go. A sink never blocks, and never raises into the request path.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeAlias

import msgspec

from enforcer.messages import Settlement
from enforcer.types import Grant, Verdict


class GrantIssued(msgspec.Struct, frozen=True):
    """The owner granted, and this copy holds it."""

    caller: str
    limit: str
    policy_version: int
    grant: Grant
    tokens_left: float


class GrantSettled(msgspec.Struct, frozen=True):
    """A total was stated for a grant. `member` is whose grant it was: ``copy_id/epoch``."""

    caller: str
    limit: str
    member: str
    settlement: Settlement
    at_us: int


class DegradeChanged(msgspec.Struct, frozen=True):
    """This copy began (or ceased) to decide without an owner. `owner` is its address without credentials."""

    owner: str
    entered: bool
    cause: str
    at_us: int


class CostChanged(msgspec.Struct, frozen=True):
    """What requests cost became known after they were decided: what their caller pays has changed.

    `requests`, `charged` and `refunded` are totals of this copy's epoch, for this caller and scope.
    """

    caller: str
    scope: str
    requests: int
    charged: int
    refunded: int
    at_us: int


class SoftLimitReached(msgspec.Struct, frozen=True):
    """So much of a limit is used that its caller should be warned. Once as it comes near, not at every request."""

    subject: str
    limit: str
    policy_version: int
    used_share: float
    k: int
    at_us: int


class WouldRefuse(msgspec.Struct, frozen=True):
    """A limit in shadow mode would have refused requests, which were decided by the enforced ones alone.

    `requests` and `cost` are totals of this copy's epoch, for this caller, scope, limit and version.
    """

    caller: str
    scope: str
    limit: str
    policy_version: int
    requests: int
    cost: int
    at_us: int


class PolicyChanged(msgspec.Struct, frozen=True):
    """A policy was loaded, or was refused and the last good one stays in force.

    `policy_version` is the one now in force. `faults` is empty if the document was taken.
    """

    policy_version: int
    digest: str
    source: str
    faults: tuple[str, ...]
    at_us: int


class OwnerClock(msgspec.Struct, frozen=True):
    """How far the owner's clock is ahead of this copy's wall clock, in microseconds, as its answers show.

    Told when it is first known, at once when it has moved by more than 20 ms, else once a minute at most. `owner` is
    the one whose answer took the least time of late.
    """

    owner: str
    offset_us: int
    at_us: int


#: What happens beside decisions, grants and settlements.
Event: TypeAlias = CostChanged | SoftLimitReached | WouldRefuse | PolicyChanged | OwnerClock


class Sink(Protocol):
    """Where verdicts, grants, settlements and changes of state go."""

    @property
    def capture(self) -> Callable[[Verdict], None]:
        """Take one verdict: fetched once by the limiter, called for every decision, as cheap as `list.append`."""
        ...

    def grant_issued(self, fact: GrantIssued) -> None:
        """Take one issued grant."""
        ...

    def grant_settled(self, fact: GrantSettled) -> None:
        """Take one settlement."""
        ...

    def degrade_changed(self, fact: DegradeChanged) -> None:
        """Take one change of state."""
        ...

    def event(self, fact: Event) -> None:
        """Take one of the rarer facts."""
        ...

    def close(self, timeout_s: float) -> None:
        """Ship what was taken; give up after `timeout_s` and count what is left as lost."""
        ...


class NullSink:
    """Keeps nothing: for a limiter whose decisions nobody records."""

    @property
    def capture(self) -> Callable[[Verdict], None]:
        """A callable that forgets."""
        return _forget

    def grant_issued(self, fact: GrantIssued) -> None:
        """Forget it."""

    def grant_settled(self, fact: GrantSettled) -> None:
        """Forget it."""

    def degrade_changed(self, fact: DegradeChanged) -> None:
        """Forget it."""

    def event(self, fact: Event) -> None:
        """Forget it."""

    def close(self, timeout_s: float) -> None:
        """Nothing to ship."""


def _forget(verdict: Verdict) -> None:
    """Take a verdict and keep nothing."""
