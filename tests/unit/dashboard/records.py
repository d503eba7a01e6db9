"""Records to make views of: small, by hand, with the numbers in sight."""

from __future__ import annotations

from zoneinfo import ZoneInfo

from dashboard.rows import (
    Busiest,
    CallerRecord,
    CallerStep,
    CopyMark,
    Counts,
    Decision,
    LimitTerms,
    Losses,
    PlanTerms,
    Settled,
)
from dashboard.spans import SPANS, cut
from dashboard.views import Frame
from enforcer.types import Reason, Source

NOW_US = 1_795_989_600_000_000
STANDARD = PlanTerms("standard", 100.0, 200)


def frame(span: str = "1h", zone: str = "UTC", now_us: int = NOW_US) -> Frame:
    """What a viewer chose."""
    place = ZoneInfo(zone)
    return Frame(SPANS[span], place, now_us, tuple(cut(SPANS[span], now_s=now_us / 1e6, zone=place)))


def refusal(
    at_us: int = NOW_US - 60_000_000,
    *,
    reason: Reason = Reason.SPENT,
    plan: str = "standard",
    allowed: bool = False,
    limit: str = "rate",
    terms: LimitTerms | None = None,
) -> Decision:
    """One decision."""
    return Decision(
        caller="acme",
        at_us=at_us,
        copy_id="gw-1",
        epoch=77,
        seq=5,
        scope="GET /v1",
        limit=limit,
        plan=plan,
        terms=terms,
        allowed=allowed,
        source=Source.LOCAL,
        reason=reason,
        cost_tokens=1,
        remaining_tokens=0,
        retry_after_ms=310,
        policy_version=41,
        grant_id=9,
        k=3,
    )


def record(
    *,
    series: dict[int, Counts] | None = None,
    endpoints: dict[str, Counts] | None = None,
    steps: list[CallerStep] | None = None,
    last_plan: PlanTerms | None = None,
    refusals: list[Decision] | None = None,
    marks: list[CopyMark] | None = None,
    busiest: Busiest | None = None,
    decided: int | None = None,
) -> CallerRecord:
    """What the store answered; empty where nothing is given."""
    return CallerRecord(
        series=series or {},
        endpoints=endpoints or {},
        steps=steps or [],
        copies_reached=3,
        last_plan=last_plan,
        last_seen_us=None,
        busiest=busiest,
        decided=len(refusals or []) if decided is None else decided,
        refusals=refusals or [],
        marks=marks if marks is not None else [CopyMark("gw-1", 1, NOW_US, False)],
        losses=Losses(),
        settled=Settled(),
    )
