"""The customer's page: am I inside my plan, and if not, when and where? The same numbers as a page, CSV and JSON.

The caller comes from the session and from nowhere else.
"""

from __future__ import annotations

import csv
import io
from dataclasses import asdict
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from dashboard import formats, sentences
from dashboard.charts import chart_payload, json_text
from dashboard.reader import read_caller
from dashboard.rows import CallerRecord, Counts
from dashboard.sentences import advice, plain, reach_line, refusal_reasons
from dashboard.views import CallerView, RefusalRow, caller_view, usage_sentence
from dashboard.web import address, frame_of, house_of, only, session_of
from enforcer.types import Reason

_PARAMETERS = ("span", "zone")
#: How many refusals the page and the JSON list.
LISTED = 25


async def usage_page(request: Request) -> Response:
    """``GET /usage``."""
    view, record = await _view(request)
    frame = view.frame
    kept = {"span": frame.span.key, "zone": frame.zone.key}
    return house_of(request).page(
        "usage.html",
        session=session_of(request, "customer"),
        view=view,
        sentence=usage_sentence(view),
        reach=reach_line(view.copies),
        chart=json_text(chart_payload(view.rows, view.plan, frame.span, frame.zone, kind="usage")),
        advice=[advice(reason) for reason in _reasons(view)],
        refusals_line=sentences.listed_line(view.totals.refused, len(view.refusals), arriving=view.arriving),
        last_seen=_last_seen(view, record),
        csv=address("/usage.csv", **kept),
        json=address("/usage.json", **kept),
    )


async def usage_json(request: Request) -> Response:
    """``GET /usage.json``: the page's numbers for a program."""
    view, _ = await _view(request)
    return JSONResponse(usage_document(view))


async def usage_csv(request: Request) -> Response:
    """``GET /usage.csv``: the table by endpoint."""
    view, _ = await _view(request)
    name = f"usage-{view.frame.span.key}-{formats.local(view.frame.now_us, view.frame.zone):%Y-%m-%dT%H%M}.csv"
    headers = {"content-disposition": f'attachment; filename="{name}"'}
    return Response(usage_table(view), media_type="text/csv; charset=utf-8", headers=headers)


def usage_document(view: CallerView) -> dict[str, Any]:
    """The page as data: times in ISO 8601 of the chosen zone, shares as fractions."""
    frame, totals, complete = view.frame, view.totals, view.complete
    return {
        "caller": view.caller,
        "plan": None if view.plan is None else asdict(view.plan),
        "span": {
            "name": frame.span.key,
            "from": formats.iso(frame.from_us, frame.zone),
            "to": formats.iso(frame.now_us, frame.zone),
            "zone": frame.zone.key,
        },
        "answer": plain(usage_sentence(view)),
        "totals_arriving": view.arriving,
        "totals": {
            **_counted(totals),
            "refused_by_reason": {reason.name.lower(): number for reason, number in refusal_reasons(totals)},
        },
        "busiest": _busiest(view),
        "servers_reached": view.copies,
        "series": _series(view),
        "endpoints": [{"endpoint": row.scope, **_counted(row.counts)} for row in view.endpoints],
        "refusals": [_refusal(row) for row in view.refusals],
        "data_until": None if complete.until_us is None else formats.iso(complete.until_us, frame.zone),
        "settled_until": _settled_until(view),
        "servers_late": len(complete.late),
        "servers": complete.copies,
        "not_recorded": complete.lost + complete.gaps,
    }


def _settled_until(view: CallerView) -> str | None:
    """Up to when all is settled that is on record; None where nothing is."""
    settled = view.complete.settled
    if not settled.ever:
        return None
    return formats.iso(view.frame.now_us if settled.from_us is None else settled.from_us, view.frame.zone)


def _counted(counts: Counts) -> dict[str, Any]:
    return {
        "sent": counts.offered,
        "admitted": counts.admitted,
        "refused": counts.refused,
        "refused_share": _fraction(counts.refused, counts.offered),
        "tokens_spent": counts.cost_admitted,
    }


def _series(view: CallerView) -> list[dict[str, Any]]:
    return [
        {
            "from": formats.iso(row.start_s * 1_000_000, view.frame.zone),
            "seconds": row.seconds,
            "sent": row.offered,
            "admitted": row.admitted,
            "refused": row.refused,
            "plan_limit": row.limit,
            "still_filling": row.filling,
        }
        for row in view.rows
    ]


def _refusal(row: RefusalRow) -> dict[str, Any]:
    return {
        "at": row.at_iso,
        "endpoint": row.decision.scope,
        "reason": row.decision.reason.name.lower(),
        "why": row.sentence,
        "retry_after_ms": row.decision.retry_after_ms,
        "request_id": row.request_id,
    }


def usage_table(view: CallerView) -> str:
    """The table by endpoint as CSV, with the span and the zone in every row, so that files can be laid together."""
    target = io.StringIO()
    writer = csv.writer(target, lineterminator="\r\n")
    writer.writerow(["from", "to", "zone", "endpoint", *_counted(Counts())])
    span = [formats.iso(view.frame.from_us, view.frame.zone), formats.iso(view.frame.now_us, view.frame.zone)]
    for row in view.endpoints:
        counted = ["" if value is None else value for value in _counted(row.counts).values()]
        writer.writerow([*span, view.frame.zone.key, formats.cell(row.scope), *counted])
    return target.getvalue()


async def _view(request: Request) -> tuple[CallerView, CallerRecord]:
    session = session_of(request, "customer")
    only(request, *_PARAMETERS)
    frame = frame_of(request)
    caller = session.caller or ""
    record = await house_of(request).gate.read(read_caller, caller, frame, refusals=LISTED)
    return caller_view(caller, frame, record), record


def _reasons(view: CallerView) -> list[Reason]:
    """Why there were refusals: by the totals, or by the list while the totals are behind it."""
    if view.arriving:
        return list(dict.fromkeys(row.decision.reason for row in view.refusals))
    return [reason for reason, _ in refusal_reasons(view.totals)]


def _last_seen(view: CallerView, record: CallerRecord) -> str | None:
    if record.last_seen_us is None:
        return None
    return formats.minute_of(record.last_seen_us, view.frame.zone, now_us=view.frame.now_us)


def _busiest(view: CallerView) -> dict[str, Any] | None:
    busiest = view.busiest
    if busiest is None:
        return None
    return {
        "unit": busiest.unit,
        "at": formats.iso(busiest.at_us, view.frame.zone),
        "requests": busiest.requests,
    }


def _fraction(part: int, whole: int) -> float | None:
    return round(part / whole, 6) if whole else None
