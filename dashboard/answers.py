"""What the queries of the catalogue answer, row by row, turned into values. Asks nothing, decides nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from dashboard.rows import Busiest, CallerStep, Counts, Decision, GrantFacts, LimitTerms, PlanTerms
from enforcer.types import Reason, Source

#: A quarter of an hour: what is rolled up.
QUARTER_S = 900
#: Rows of `caller_totals`: of a step of time, of an endpoint, of the whole span.
_OF_STEP, _OF_ENDPOINT = 1, 2


@dataclass(slots=True)
class Totals:
    """What the record says of one caller in a span.

    Attributes:
        series: by step of time, unix seconds; a step lies in one bucket of the page.
        endpoints: by scope.
        steps: the plan and the copies by step of time; a step lies in one bucket, and has one plan.
        copies: those reached in the whole span.
        quarters: requests by quarter of an hour, unix seconds / 900, where that is the step or finer.
        second, minute: the busiest ones in quarters that are rolled up.
        unsure: quarters whose busiest second is not known for certain, each with how many requests it may have had.
    """

    series: dict[int, Counts] = field(default_factory=dict)
    endpoints: dict[str, Counts] = field(default_factory=dict)
    steps: list[CallerStep] = field(default_factory=list)
    copies: set[str] = field(default_factory=set)
    quarters: dict[int, int] = field(default_factory=dict)
    second: Busiest | None = None
    minute: Busiest | None = None
    unsure: list[tuple[int, int]] = field(default_factory=list)

    def add(self, rows: Sequence[tuple[Any, ...]]) -> None:
        """Add the rows of `caller_minutes`, whose steps are quarters of an hour."""
        plans: dict[int, PlanTerms] = {}
        reached: dict[int, tuple[int, int]] = {}
        for kind, minute_s, scope, *numbers in sorted(rows, key=lambda row: (row[1], row[0], row[2])):
            step_s = int(minute_s) // QUARTER_S * QUARTER_S
            terms, copies, k_counted = numbers[10:]
            if kind == "usage":
                self._count(step_s, str(scope), Counts(*(int(number) for number in numbers[:10])))
                continue
            plan, (most, k) = plan_of(*terms), reached.get(step_s, (0, 0))
            reached[step_s] = max(most, len(copies)), max(k, int(k_counted))
            if plan is not None:
                plans[step_s] = plan
            self.copies.update(copies)
        for step_s, (most, k) in reached.items():
            self.steps.append(CallerStep(step_s, plans.get(step_s), most, k))
        self._in_order()

    def correct(self, rows: Sequence[tuple[Any, ...]]) -> None:
        """Add the rows of `caller_corrections`."""
        for step_s, scope, *numbers in rows:
            self._count(int(step_s), str(scope), Counts(*(int(number) for number in numbers)))
        self._in_order()

    def _count(self, step_s: int, scope: str, counts: Counts) -> None:
        self.series[step_s] = self.series.get(step_s, Counts()) + counts
        self.endpoints[scope] = self.endpoints.get(scope, Counts()) + counts
        quarter = step_s // QUARTER_S
        self.quarters[quarter] = self.quarters.get(quarter, 0) + counts.offered

    def _in_order(self) -> None:
        self.series = dict(sorted(self.series.items()))
        self.steps.sort(key=lambda step: step.step_s)


def totals_of(rows: Sequence[tuple[Any, ...]]) -> Totals:
    """The rows of `caller_totals`."""
    found = Totals()
    for level, place, usage_rows, caller_rows, *numbers in rows:
        counts = Counts(*(int(number) for number in numbers[:10]))
        terms, reached, k_counted, copies = numbers[10:]
        if level == _OF_STEP:
            if usage_rows:
                found.series[int(place)] = counts
            if caller_rows:
                found.steps.append(CallerStep(int(place), plan_of(*terms), int(reached), int(k_counted)))
        elif level == _OF_ENDPOINT:
            if usage_rows:
                found.endpoints[str(place)] = counts
        else:
            found.copies = set(copies)
    return found


def plan_of(name: Any, rate_per_s: Any, burst: Any) -> PlanTerms | None:
    """A plan; None where the totals hold none, because only further limits were named."""
    return PlanTerms(str(name), float(rate_per_s), int(burst)) if name else None


def decision_of(row: tuple[Any, ...]) -> Decision:
    """One decision."""
    (
        caller,
        at_us,
        copy_id,
        epoch,
        seq,
        scope,
        limit,
        plan,
        rate_per_s,
        burst,
        per,
        allowed,
        source,
        reason,
        *numbers,
    ) = row
    cost, remaining, retry_after_ms, policy_version, grant_id, k = (int(number) for number in numbers)
    return Decision(
        caller=str(caller),
        at_us=int(at_us),
        copy_id=str(copy_id),
        epoch=int(epoch),
        seq=int(seq),
        scope=str(scope),
        limit=str(limit),
        plan=str(plan),
        terms=LimitTerms(float(rate_per_s), int(burst), str(per)) if burst else None,
        allowed=bool(allowed),
        source=Source(int(source)),
        reason=Reason(int(reason)),
        cost_tokens=cost,
        remaining_tokens=remaining,
        retry_after_ms=retry_after_ms,
        policy_version=policy_version,
        grant_id=grant_id,
        k=k,
    )


def grant_of(row: tuple[Any, ...]) -> GrantFacts:
    """One grant with what was stated of it."""
    limit, grant_id, size, issued_at_us, expires_at_us, copy_id, totals, spent, final = row
    return GrantFacts(
        limit=str(limit),
        grant_id=int(grant_id),
        size_tokens=int(size),
        issued_at_us=int(issued_at_us),
        expires_at_us=int(expires_at_us),
        copy_id=str(copy_id),
        spent_tokens=int(spent) if totals else None,
        final=bool(final),
    )
