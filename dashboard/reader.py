"""Reads what a page needs, query by query, and turns rows into values. No page logic, no SQL."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from dashboard.rows import (
    Busiest,
    CallerRecord,
    CallerStep,
    CopyMark,
    Counts,
    Decision,
    GrantFacts,
    LimitTerms,
    PlanTerms,
)
from dashboard.store import Ask, Record
from dashboard.views import Frame
from enforcer.identity import CopyIdentity
from enforcer.types import Reason, Source

#: Up to so many decisions in a span the busiest second is counted in the exact record; beyond, the busiest minute is
#: taken from the totals. A second of counting is worth about 25 million rows on an idle core, a page is worth less.
SECONDS_COUNTED_UP_TO = 1_000_000
#: A copy's mark older than this says nothing about now.
_MARKS_SINCE_S = 2 * 86_400
#: Where the decisions of a block are: this long before it was sealed, and after (clocks are read a moment apart).
_BEFORE_SEAL_S, _AFTER_SEAL_S = 90, 5
_DAY_S = 86_400


def read_caller(record: Record, caller: str, frame: Frame, *, refusals: int) -> CallerRecord:
    """Everything about one caller in one span, with the last `refusals` refusals.

    Raises:
        RecordUnavailable: the record cannot be read now.
    """
    span = {"from_s": frame.buckets[0].start_s, "to_s": frame.now_us // 1_000_000 + 1}
    with record.of_caller(caller) as ask:
        series, endpoints = _usage(ask("caller_usage", **span, step=frame.span.step_s))
        steps, reached = _steps(ask("caller_steps", **span, step=frame.span.step_s))
        # Only a caller that sent nothing in the span needs a look further back.
        last = [] if steps else ask("caller_last_seen")
        offered = sum(counts.offered for counts in endpoints.values())
        refused = [_decision(row) for row in ask("caller_refusals", **span, rows=refusals)]
        busiest = _busiest(ask, span, offered)
        decided = _decided(ask, span, offered, refused, busiest)
    marks, lost = read_marks(record, frame)
    return CallerRecord(
        series=series,
        endpoints=endpoints,
        steps=steps,
        copies_reached=reached,
        last_plan=_plan(*last[0][1:]) if last else None,
        last_seen_us=int(last[0][0]) * 1_000_000 if last else None,
        busiest=busiest,
        decided=decided,
        refusals=refused,
        marks=marks,
        lost=lost,
    )


def read_marks(record: Record, frame: Frame) -> tuple[list[CopyMark], int]:
    """How far each copy's record is complete, and how many decisions were lost in the span."""
    now_s = frame.now_us // 1_000_000
    since_s = now_s - _MARKS_SINCE_S
    with record.of_fleet() as ask:
        stopped = {(str(copy_id), int(epoch)) for copy_id, epoch in ask("fleet_stopped", since_s=since_s)}
        marks = [
            CopyMark(str(copy_id), int(epoch), int(sealed_at_us), (str(copy_id), int(epoch)) in stopped)
            for copy_id, epoch, sealed_at_us in ask("fleet_marks", since_s=since_s)
        ]
        lost = ask("fleet_lost", from_s=frame.buckets[0].start_s, to_s=now_s + 1)
    return marks, int(lost[0][0]) if lost else 0


def read_grants(record: Record, caller: str, decisions: Iterable[Decision]) -> list[GrantFacts]:
    """The grants that these decisions of one caller name."""
    grant_ids = sorted({decision.grant_id for decision in decisions if decision.grant_id})
    if not grant_ids:
        return []
    with record.of_caller(caller) as ask:
        return [_grant(row) for row in ask("caller_grants", grant_ids=grant_ids)]


def find_decision(record: Record, identity: CopyIdentity, seq: int) -> Decision | None:
    """One decision by its identity; None if the record does not hold it (yet).

    The block that holds it says when to look; only if it is not there is the whole of that day searched.
    """
    key = {"copy_id": identity.copy_id, "epoch": identity.epoch, "seq": seq}
    with record.of_support() as ask:
        sealed = ask("support_block", **key)
        if not sealed:
            return None
        sealed_s = int(sealed[0][0]) // 1_000_000
        for before_s, after_s in ((_BEFORE_SEAL_S, _AFTER_SEAL_S), (_DAY_S, _DAY_S)):
            found = ask("support_decision", **key, from_s=max(0, sealed_s - before_s), to_s=sealed_s + after_s)
            if found:
                return _decision(found[0])
    return None


def known_callers(record: Record, prefix: str, *, rows: int) -> list[str]:
    """Callers whose name begins with `prefix`, whatever the capitals, at most `rows`, sorted."""
    with record.of_support() as ask:
        return sorted(str(row[0]) for row in ask("support_callers", prefix=prefix, rows=rows))


def _usage(rows: Sequence[tuple[Any, ...]]) -> tuple[dict[int, Counts], dict[str, Counts]]:
    series: dict[int, Counts] = {}
    endpoints: dict[str, Counts] = {}
    for is_step, place, *numbers in rows:
        counts = Counts(*(int(number) for number in numbers))
        if is_step:
            series[int(place)] = counts
        else:
            endpoints[str(place)] = counts
    return dict(sorted(series.items())), endpoints


def _steps(rows: Sequence[tuple[Any, ...]]) -> tuple[list[CallerStep], int]:
    steps: list[CallerStep] = []
    reached = 0
    for is_span, step_s, name, rate_per_s, burst, copies, k_counted, distinct in rows:
        if is_span:
            reached = int(distinct)
        else:
            steps.append(CallerStep(int(step_s), _plan(name, rate_per_s, burst), int(copies), int(k_counted)))
    return steps, reached


def _plan(name: Any, rate_per_s: Any, burst: Any) -> PlanTerms | None:
    """A plan; None where the totals hold none, because only further limits were named."""
    return PlanTerms(str(name), float(rate_per_s), int(burst)) if name else None


def _busiest(ask: Ask, span: dict[str, int], offered: int) -> Busiest | None:
    if not offered:
        return None
    unit = "second" if offered <= SECONDS_COUNTED_UP_TO else "minute"
    rows = ask(f"caller_busiest_{unit}", **span)
    return Busiest(int(rows[0][0]) * 1_000_000, int(rows[0][1]), unit) if rows else None


def _decided(ask: Ask, span: dict[str, int], offered: int, refused: Sequence[Decision], busiest: Busiest | None) -> int:
    """How many decisions the exact record holds at least, from what was read of it anyway."""
    if offered or refused:
        counted = busiest.requests if busiest is not None and busiest.unit == "second" else 0
        return max(len(refused), counted)
    return len(ask("caller_decided", **span))


def _decision(row: tuple[Any, ...]) -> Decision:
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


def _grant(row: tuple[Any, ...]) -> GrantFacts:
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
