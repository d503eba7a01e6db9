"""What the store answers, as values: one type a query, with units in the names. Nothing here computes."""

from __future__ import annotations

from dataclasses import dataclass

from enforcer.types import Reason, Source


@dataclass(frozen=True, slots=True)
class Counts:
    """Totals of one caller over some stretch of time or one endpoint; cost in tokens."""

    offered: int = 0
    admitted: int = 0
    refused_spent: int = 0
    refused_never: int = 0
    refused_emergency: int = 0
    refused_closed: int = 0
    refused_ceiling: int = 0
    degraded: int = 0
    cost_offered: int = 0
    cost_admitted: int = 0

    @property
    def refused(self) -> int:
        """All that was asked for and not admitted."""
        return self.offered - self.admitted

    def __add__(self, other: Counts) -> Counts:
        return Counts(*(getattr(self, name) + getattr(other, name) for name in self.__slots__))


@dataclass(frozen=True, slots=True)
class PlanTerms:
    """A plan as it stood in the record."""

    name: str
    rate_per_s: float
    burst: int


@dataclass(frozen=True, slots=True)
class LimitTerms:
    """What one limit was held to; `per` is the calendar of a quota, whose amount is then the burst, else empty."""

    rate_per_s: float
    burst: int
    per: str = ""


@dataclass(frozen=True, slots=True)
class CallerStep:
    """What was known of the caller in one step of time: its plan (or None), and the copies that it reached."""

    step_s: int
    plan: PlanTerms | None
    copies: int
    k_counted: int


@dataclass(frozen=True, slots=True)
class PlanChange:
    """That the plan was another one earlier in the span, and the step of time in which the last one was first seen."""

    before: PlanTerms
    since_s: int


@dataclass(frozen=True, slots=True)
class Decision:
    """One decision, as the record has it. `retry_after_ms` is -1 for never, `grant_id` 0 for none.

    `terms` is what the limit that it names was held to; None where that is not recorded with it.
    """

    caller: str
    at_us: int
    copy_id: str
    epoch: int
    seq: int
    scope: str
    limit: str
    plan: str
    terms: LimitTerms | None
    allowed: bool
    source: Source
    reason: Reason
    cost_tokens: int
    remaining_tokens: int
    retry_after_ms: int
    policy_version: int
    grant_id: int
    k: int


@dataclass(frozen=True, slots=True)
class GrantFacts:
    """One grant with the largest total that was stated for it; `spent_tokens` None while nothing was."""

    limit: str
    grant_id: int
    size_tokens: int
    issued_at_us: int
    expires_at_us: int
    copy_id: str
    spent_tokens: int | None
    final: bool


@dataclass(frozen=True, slots=True)
class CopyMark:
    """How far one copy's record is complete, and whether it said that it stopped."""

    copy_id: str
    epoch: int
    sealed_at_us: int
    stopped: bool


@dataclass(frozen=True, slots=True)
class Busiest:
    """The second (or the minute) in which the caller offered most."""

    at_us: int
    requests: int
    unit: str


@dataclass(frozen=True, slots=True)
class Losses:
    """Decisions that the record lacks: `lost` by the copies' own word, `silent` without any."""

    lost: int = 0
    silent: int = 0


@dataclass(frozen=True, slots=True)
class Settled:
    """How far what is on record is settled: `from_us` is the first minute that is not, None if all is.

    `ever` is False where no settler has run.
    """

    from_us: int | None = None
    ever: bool = True


@dataclass(frozen=True, slots=True)
class CallerRecord:
    """All that a page about one caller is made from: read in one go, for one span.

    `last_plan` and `last_seen_us` are looked for only where the span holds nothing; None also if there is nothing.
    `decided` is how many decisions the exact record is known to hold at least: the totals must not say fewer.
    """

    series: dict[int, Counts]
    endpoints: dict[str, Counts]
    steps: list[CallerStep]
    copies_reached: int
    last_plan: PlanTerms | None
    last_seen_us: int | None
    busiest: Busiest | None
    decided: int
    refusals: list[Decision]
    marks: list[CopyMark]
    losses: Losses
    settled: Settled
