"""The values that the enforcer deals in: plans, grants, asks, verdicts.

All are immutable. Nothing here reads a clock, a file or the network.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

import msgspec

#: `Verdict.ready_at_ns` where no wait helps.
NEVER_NS: Final = -1
#: Longest wait that is told, about 63 years: its end is still a number of nanoseconds in 64 bits.
MAX_RETRY_MS: Final = 2_000_000_000_000
#: Longest wait that the record of a decision can carry, 24.8 days; a longer one is recorded as this.
MAX_RECORDED_MS: Final = (1 << 31) - 1
_NS_PER_MS: Final = 1_000_000


class Source(IntEnum):
    """Who decided. Stored and sent as its number: append only."""

    LOCAL = 0
    """This copy, from the grant it held or from what it knew to be empty."""
    SHARED = 1
    """The owner, asked for this request."""
    DEGRADED = 2
    """This copy alone, because the owner could not be reached."""
    CAP = 3
    """The protection: this server was at its in-flight ceiling."""


class Reason(IntEnum):
    """Why a request was refused; NONE for an admitted one. Stored and sent as its number: append only."""

    NONE = 0
    SPENT = 1
    """The limit's tokens were spent."""
    NEVER = 2
    """The cost is above the limit's capacity: no wait will help."""
    EMERGENCY = 3
    """The owner was away and this copy's emergency share was spent."""
    CLOSED = 4
    """The owner was away and the route's fail mode is `closed`."""
    CEILING = 5
    """This server had as much to do as it can take: at its in-flight ceiling, or, without the owner, at its share of
    the fleet's (`open_capped`)."""


def outcome_code(source: Source, reason: Reason) -> int:
    """Both in one byte: what the log and the tables carry."""
    return int(source) << 4 | int(reason)


class Plan(msgspec.Struct, frozen=True, cache_hash=True):
    """What a caller was sold: a sustained rate and the burst that may exceed it."""

    name: str
    rate_per_s: float
    burst: int


class Grant(msgspec.Struct, frozen=True):
    """A lease on `size` tokens, debited at the owner when it was issued.

    `grant_id` is unique per (caller, limit) and rises with the owner's clock; times are the owner's, in unix
    microseconds.
    """

    grant_id: int
    size: int
    k: int
    issued_at_us: int
    expires_at_us: int


class Terms(msgspec.Struct, frozen=True, gc=False, cache_hash=True):
    """What many callers are held to alike: a limit, a plan, and the version of the policy that says so.

    `per` is empty for a token bucket; for a calendar quota it names the calendar, such as ``day`` or
    ``month Europe/Berlin``. The plan's burst is then the amount for one period, and its rate the average of that.
    """

    limit: str
    plan: Plan
    policy_version: int
    per: str = ""


class Standing(msgspec.Struct, frozen=True, gc=False):
    """A caller and its terms; one object for as long as the limiter knows the caller."""

    caller: str
    terms: Terms


class Charge(msgspec.Struct, frozen=True, gc=False):
    """A further limit that an admitted request was charged to, beside the one that its basis names.

    `subject` is whose bucket it was: the caller, its tenant, a scope or everyone. `grant_id` is 0 without a grant.
    """

    subject: str
    limit: str
    grant_id: int


class Basis(msgspec.Struct, frozen=True, gc=False):
    """What a verdict stands on; one object is shared by all verdicts that a grant carries in one scope.

    Standings, terms and the text of a scope outlive it and are shared in turn: the log finds them by identity, and
    reads each once a block. `grant_id` is 0 where no grant was involved; `k` is what the owner had counted by then.
    `also` names the other limits that were charged. `soft` says that the caller had come near a limit.
    """

    standing: Standing
    scope: str
    grant_id: int
    k: int
    also: tuple[Charge, ...] = ()
    soft: bool = False

    @property
    def caller(self) -> str:
        """Whose limit was charged."""
        return self.standing.caller

    @property
    def limit(self) -> str:
        """Which rule of the plan was applied."""
        return self.standing.terms.limit

    @property
    def plan(self) -> Plan:
        """What the caller was sold."""
        return self.standing.terms.plan

    @property
    def policy_version(self) -> int:
        """Version of the policy that was in force."""
        return self.standing.terms.policy_version


class Verdict(msgspec.Struct, frozen=True, gc=False):
    """The answer to one check, and at the same time the event that records it.

    Attributes:
        seq: contiguous number of the decision in this copy's epoch, from 0.
        at_ns: the copy's monotonic clock; the block that ships it carries the way to wall time.
        basis: standing (caller, limit, plan, policy version), scope, grant and k that it stands on.
        allowed: whether the request may go on.
        code: `outcome_code(source, reason)`.
        cost: tokens asked for.
        remaining: tokens that this copy still holds for the caller.
        ready_at_ns: from when on the same request may be admitted, by that clock; 0 if allowed, `NEVER_NS` for never.
    """

    seq: int
    at_ns: int
    basis: Basis
    allowed: bool
    code: int
    cost: int
    remaining: int
    ready_at_ns: int

    @property
    def source(self) -> Source:
        """Who decided."""
        return Source(self.code >> 4)

    @property
    def reason(self) -> Reason:
        """Why it was refused; `Reason.NONE` if it was not."""
        return Reason(self.code & 15)

    @property
    def soft(self) -> bool:
        """Whether the caller had used so much of a limit that it should be warned: 80 % where nothing else is said."""
        return self.basis.soft

    @property
    def retry_after_ms(self) -> int:
        """How long to wait for the same request to be admitted, rounded up; 0 if allowed, -1 for never."""
        if self.allowed:
            return 0
        if self.ready_at_ns == NEVER_NS:
            return -1
        return max(1, -((self.at_ns - self.ready_at_ns) // _NS_PER_MS))

    def __repr__(self) -> str:
        """One line for people, with names instead of numbers."""
        basis = self.basis
        return (
            f"Verdict(allowed={self.allowed}, source={self.source.name}, reason={self.reason.name}, "
            f"caller={basis.caller!r}, scope={basis.scope!r}, limit={basis.limit!r}, plan={basis.plan.name!r}, "
            f"policy_version={basis.policy_version}, cost={self.cost}, remaining={self.remaining}, "
            f"retry_after_ms={self.retry_after_ms}, grant_id={basis.grant_id}, seq={self.seq}, at_ns={self.at_ns})"
        )
