"""Support's page: why was this caller refused? Finds a caller by name, or the decision behind a refusal's request id.

Only for the support role; every look at a caller goes through the same fenced reader as the customer's own page.
"""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from dashboard import sentences
from dashboard.charts import chart_payload, json_text
from dashboard.reader import find_decision, known_callers, read_caller, read_grants
from dashboard.rows import Decision
from dashboard.sentences import Phrase, Sentence
from dashboard.store import Record
from dashboard.views import CallerView, Frame, RefusalRow, caller_view, change_sentence, refusal_row, verdict_sentence
from dashboard.web import frame_of, house_of, only, session_of
from enforcer.errors import InvalidField
from enforcer.identity import parse_request_id

#: How many refusals the page lists, and how many callers it offers.
LISTED = 50
OFFERED = 20


async def support_page(request: Request) -> Response:
    """``GET /support``: the search box, and below it what ``q`` names."""
    session = session_of(request, "support")
    only(request, "q", "span", "zone")
    frame = frame_of(request)
    sought = request.query_params.get("q", "").strip()[:300]
    found = await house_of(request).gate.read(look_up, sought, frame)
    return house_of(request).page("support.html", session=session, q=sought, frame=frame, **_values(found, frame))


class SearchResult:
    """What a search led to: a caller's page, perhaps with one decision, or an explanation why there is none."""

    def __init__(self, *, view: CallerView | None = None, row: RefusalRow | None = None) -> None:
        self.view = view
        self.row = row
        self.title = "Find a caller, or one refused request"
        self.text = "Paste the request id from a refusal’s body, or type the caller’s name or how it begins."
        self.callers: list[str] = []
        self.callers_title = "Callers on record"


def look_up(record: Record, sought: str, frame: Frame) -> SearchResult:
    """A request id if it reads like one and is on record; else a caller of that name; else what begins like it.

    Raises:
        RecordUnavailable: the record cannot be read now.
    """
    if not sought:
        found = SearchResult()
        found.callers = known_callers(record, "", rows=OFFERED)
        return found
    decision, is_id = _by_request_id(record, sought)
    caller = decision.caller if decision is not None else sought
    rows = read_caller(record, caller, frame, refusals=LISTED)
    known = rows.steps or rows.endpoints or rows.last_seen_us is not None or rows.decided
    if decision is None and not known:
        return _not_found(record, sought, is_id=is_id)
    shown = [*rows.refusals, *([decision] if decision is not None else [])]
    grants = read_grants(record, caller, shown)
    row = refusal_row(decision, rows, frame, grants) if decision is not None else None
    return SearchResult(view=caller_view(caller, frame, rows, grants), row=row)


def _by_request_id(record: Record, sought: str) -> tuple[Decision | None, bool]:
    try:
        identity, seq = parse_request_id(sought)
    except InvalidField:
        return None, False
    return find_decision(record, identity, seq), True


def _not_found(record: Record, sought: str, *, is_id: bool) -> SearchResult:
    found = SearchResult()
    found.callers = known_callers(record, sought, rows=OFFERED)
    found.callers_title = ""
    if is_id:
        found.title = f"No request {sought} on record"
        found.text = (
            "It may not have arrived yet: a refusal is usually here within seconds, later while its server cannot "
            "reach the log. If it stays away, check that the id was copied whole. No caller has that name either."
        )
    else:
        found.title = f"No caller is called exactly “{sought}”"
        found.text = "No caller’s name begins with it either: nothing is on record for such a name."
        if found.callers:
            found.text = "These begin with it:" if len(found.callers) > 1 else "This one begins with it:"
    return found


def _values(found: SearchResult, frame: Frame) -> dict[str, Any]:
    view = found.view
    if view is None:
        names = ("title", "text", "callers", "callers_title")
        return {"view": None, **{name: getattr(found, name) for name in names}}
    return {
        "view": view,
        "sentence": verdict_sentence(view),
        "context": _context(view),
        "chart": json_text(chart_payload(view.rows, view.plan, frame.span, frame.zone, kind="support")),
        "found": found.row,
        "found_sentence": _found_sentence(found.row, frame),
        "refusals_line": sentences.listed_line(view.totals.refused, len(view.refusals), arriving=view.arriving),
        # A letter made of half of the totals would be a false one.
        "reply": None if view.arriving else _reply(view, found.row),
    }


def _context(view: CallerView) -> Sentence:
    if view.arriving:
        return (Phrase("The refusals below are exact; what was sent and admitted follows in a few seconds."),)
    frame = view.frame
    context = sentences.context_sentence(
        view.plan, view.busiest, view.copies, view.totals, frame.zone, now_us=frame.now_us
    )
    return (*context, *change_sentence(view, "Its"))


def _found_sentence(row: RefusalRow | None, frame: Frame) -> str:
    if row is None:
        return ""
    if row.decision.allowed:
        return f"Admitted at {row.at} on {row.decision.scope}: this request was not refused by the limiter."
    return f"{sentences.why(row.decision, row.terms, frame.zone, at=True)} Endpoint: {row.decision.scope}."


def _reply(view: CallerView, row: RefusalRow | None) -> str:
    rows = [row] if row is not None else list(view.refusals[:1])
    told = [
        f"Request {r.request_id} ({r.at}, {view.frame.zone.key}, {r.decision.scope}): {r.sentence}"
        for r in rows
        if not r.decision.allowed
    ]
    return sentences.reply_text(
        view.caller,
        view.totals,
        span=view.frame.ends,
        plan=view.plan,
        busiest=view.busiest,
        refusals=told,
        changed=sentences.plain(change_sentence(view, "Your")),
    )
