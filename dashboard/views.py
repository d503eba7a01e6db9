"""From what the store answered to what a page shows: every number on a page is made here, once.

Pure: no I/O, no clock; the same models feed the page, the CSV and the JSON, so their numbers cannot differ.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from zoneinfo import ZoneInfo

from dashboard import formats, sentences
from dashboard.charts import ChartRow, chart_rows
from dashboard.completeness import Completeness, completeness, completeness_line, totals_arriving
from dashboard.rows import (
    Busiest,
    CallerRecord,
    CallerStep,
    Counts,
    Decision,
    GrantFacts,
    LimitTerms,
    PlanChange,
    PlanTerms,
)
from dashboard.sentences import Sentence
from dashboard.spans import Bucket, Span
from enforcer.core.resolution import LIMIT_RATE
from enforcer.identity import CopyIdentity, format_request_id


@dataclass(frozen=True, slots=True)
class Frame:
    """What the viewer chose, and when he looked: the same frame and the same record give the same page."""

    span: Span
    zone: ZoneInfo
    now_us: int
    buckets: tuple[Bucket, ...]

    @property
    def from_us(self) -> int:
        """Where the span begins."""
        return self.buckets[0].start_s * 1_000_000

    @property
    def ends(self) -> tuple[str, str]:
        """Both ends of the span as they are shown, with the offset from UTC."""
        return formats.ends(self.from_us, self.now_us, self.zone)


@dataclass(frozen=True, slots=True)
class EndpointRow:
    """One endpoint's line of the table; `width` and `refused_width` are per cent of the busiest endpoint's bar."""

    scope: str
    counts: Counts
    share: str
    width: float
    refused_width: float


@dataclass(frozen=True, slots=True)
class RefusalRow:
    """One refusal as it is listed, and what it opens to; `terms` are the refusing limit's, `plan` is the caller's."""

    request_id: str
    at: str
    at_iso: str
    sentence: str
    decision: Decision
    terms: LimitTerms | None
    plan: PlanTerms | None
    grant: GrantLine | None


@dataclass(frozen=True, slots=True)
class GrantLine:
    """The grant that a decision names, in words."""

    facts: GrantFacts
    issued: str
    expires: str
    spent: str


@dataclass(frozen=True, slots=True)
class CallerView:
    """All that a page about one caller shows, apart from its first sentence.

    `arriving`: the totals are behind the exact record, which holds `decided` decisions at least; what is said of them
    then is said as "at least", and nothing is said that may be sent on.
    """

    caller: str
    frame: Frame
    plan: PlanTerms | None
    changed: PlanChange | None
    totals: Counts
    rows: tuple[ChartRow, ...]
    endpoints: tuple[EndpointRow, ...]
    refusals: tuple[RefusalRow, ...]
    busiest: Busiest | None
    copies: int
    arriving: bool
    decided: int
    complete: Completeness
    complete_line: str

    @property
    def terms(self) -> str | None:
        """The plan for the heading, None while it is not known; only its name where a sentence has its figures."""
        plan = self.plan
        if plan is None:
            return None
        told = self.busiest is not None and not self.arriving
        return plan.name if told else formats.plan_terms(plan.name, plan.rate_per_s, plan.burst)

    @property
    def locally(self) -> bool:
        """Whether any bar of the picture holds a decision that was made without the owner."""
        return any(row.degraded for row in self.rows)


def plan_change(steps: Sequence[CallerStep]) -> PlanChange | None:
    """The last change of the plan within a span, None if it was the same throughout."""
    known = [(step.plan, step.step_s) for step in steps if step.plan is not None]
    for (before, _), (after, since_s) in reversed(list(pairwise(known))):
        if before != after:
            return PlanChange(before, since_s)
    return None


def caller_view(caller: str, frame: Frame, record: CallerRecord, grants: Sequence[GrantFacts] = ()) -> CallerView:
    """Make the view of one caller from its record."""
    totals = sum(record.endpoints.values(), Counts())
    state = completeness(record.marks, now_us=frame.now_us, losses=record.losses, settled=record.settled)
    zone, unit, now_us = frame.zone, frame.span.unit, frame.now_us
    plan = next((step.plan for step in reversed(record.steps) if step.plan is not None), record.last_plan)
    arriving = totals_arriving(record, totals, state, now_us=now_us)
    return CallerView(
        caller=caller,
        frame=frame,
        plan=plan,
        changed=plan_change(record.steps),
        totals=totals,
        rows=tuple(chart_rows(frame.buckets, record, plan, zone, unit, now_us=now_us, complete=state)),
        endpoints=tuple(endpoint_rows(record.endpoints)),
        refusals=tuple(refusal_row(decision, record, frame, grants) for decision in record.refusals),
        busiest=record.busiest,
        copies=record.copies_reached,
        arriving=arriving,
        decided=record.decided,
        complete=state,
        complete_line=completeness_line(state, zone, now_us=now_us, arriving=arriving),
    )


def usage_sentence(view: CallerView) -> Sentence:
    """The first line of the customer's page."""
    frame = view.frame
    if view.arriving:
        return arriving_sentence(view, "Your")
    sent = sentences.usage_sentence(
        view.totals, frame.span.words, view.busiest, view.plan, frame.zone, now_us=frame.now_us
    )
    return (*sent, *change_sentence(view, "Your"))


def change_sentence(view: CallerView, whose: str) -> Sentence:
    """What is said where the plan changed within the span."""
    return sentences.plan_change_sentence(view.changed, whose, view.frame.zone, now_us=view.frame.now_us)


def verdict_sentence(view: CallerView) -> Sentence:
    """The first line of support's page."""
    if view.arriving:
        return arriving_sentence(view, f"{view.caller}’s")
    return sentences.verdict_sentence(view.caller, view.totals, view.frame.span.words)


def arriving_sentence(view: CallerView, whose: str) -> Sentence:
    """The first line while the totals are behind the record: the larger of what either knows."""
    sent = max(view.totals.offered, view.decided)
    refused = max(view.totals.refused, len(view.refusals))
    return sentences.arriving_sentence(whose, sent, refused, view.frame.span.words)


def endpoint_rows(endpoints: dict[str, Counts]) -> list[EndpointRow]:
    """The table by endpoint, busiest first."""
    most = max((counts.offered for counts in endpoints.values()), default=0)
    ordered = sorted(endpoints.items(), key=lambda pair: (-pair[1].offered, pair[0]))
    return [
        EndpointRow(
            scope=scope,
            counts=counts,
            share=formats.share(counts.refused, counts.offered),
            width=round(100 * counts.offered / most, 2) if most else 0,
            refused_width=round(100 * counts.refused / most, 2) if most else 0,
        )
        for scope, counts in ordered
    ]


def refusal_row(decision: Decision, record: CallerRecord, frame: Frame, grants: Sequence[GrantFacts]) -> RefusalRow:
    """One refusal with its sentence, the limit that it was measured by, the caller's plan, and its grant."""
    plan = plan_at(record, decision)
    terms = terms_of(decision, plan)
    found = next((g for g in grants if g.grant_id == decision.grant_id and g.limit == decision.limit), None)
    return RefusalRow(
        request_id=format_request_id(CopyIdentity(decision.copy_id, decision.epoch), decision.seq),
        at=formats.moment_ms(decision.at_us, frame.zone, now_us=frame.now_us),
        at_iso=formats.iso(decision.at_us, frame.zone),
        sentence=sentences.why(decision, terms, frame.zone),
        decision=decision,
        terms=terms,
        plan=plan,
        grant=None if found is None else grant_line(found, frame),
    )


def grant_line(facts: GrantFacts, frame: Frame) -> GrantLine:
    """One grant in words; what is not known yet is said to be so."""
    if facts.spent_tokens is None:
        spent = "not settled yet"
    else:
        spent = f"{formats.count(facts.spent_tokens)} of {formats.count(facts.size_tokens)}"
        spent += " (final)" if facts.final else " so far"
    return GrantLine(
        facts=facts,
        issued=formats.moment_ms(facts.issued_at_us, frame.zone, now_us=frame.now_us),
        expires=formats.moment_ms(facts.expires_at_us, frame.zone, now_us=frame.now_us),
        spent=spent,
    )


def plan_at(record: CallerRecord, decision: Decision) -> PlanTerms | None:
    """The caller's plan when the decision was made: the last one known by then, or the next after it.

    A decision by the plan's own limit names the plan, so only that one counts; one by a further limit does not.
    """
    at_s = decision.at_us // 1_000_000
    by_plan = decision.limit == LIMIT_RATE
    known = [(step.step_s, step.plan) for step in record.steps if step.plan is not None]
    fitting = [(step_s, plan) for step_s, plan in known if not by_plan or plan.name == decision.plan]
    before = [plan for step_s, plan in fitting if step_s <= at_s]
    if before:
        return before[-1]
    if fitting:
        return fitting[0][1]
    last = record.last_plan
    return last if last is not None and (not by_plan or last.name == decision.plan) else None


def terms_of(decision: Decision, plan: PlanTerms | None) -> LimitTerms | None:
    """What the limit that decided was held to: as recorded; else the plan's figures, where it was the plan's own."""
    if decision.terms is not None:
        return decision.terms
    if decision.limit != LIMIT_RATE or plan is None:
        return None
    return LimitTerms(plan.rate_per_s, plan.burst)
