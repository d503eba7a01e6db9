"""``tallygate audit bill``: one caller's total of a billing period in a time zone, by scope, with its revisions.

Whole UTC days come from the settled days, which are kept for years; the hours by which the zone's month begins and ends
elsewhere, and days that are not over, from the settled minutes. Changes nothing.
"""

from __future__ import annotations

import argparse
import re
from collections import defaultdict
from datetime import UTC, datetime
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from aggregator.audit.totals import Totals, bounds, change_of, counted, facts_of, revision_finding, summed, tell
from aggregator.core.settled.revisions import grouped
from aggregator.core.settled.settling import DAY_US, MINUTES_PER_DAY
from aggregator.store import Store
from aggregator.words import Finding, Span, add_caller, add_json, moment

HELP = "a caller's total of a month, with the list of its revisions"
_PERIOD = re.compile(r"([0-9]{4})-(0[1-9]|1[0-2])")
_MONTHS = 12


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """See `aggregator.audit.command.Action`."""
    add_caller(parser, required=True)
    parser.add_argument("--period", type=_period, required=True, metavar="YYYY-MM", help="the month, as in 2026-10")
    parser.add_argument("--zone", type=_zone, default=ZoneInfo("UTC"), metavar="ZONE", help="whose month (UTC)")
    add_json(parser)


def run(options: argparse.Namespace, store: Store) -> int:
    """See `aggregator.audit.command.Action`: 0; a revision is no fault. 3 if the record knows no such caller."""
    span = month_of(options.period[0], options.period[1], options.zone)
    totals = Totals(store, options.caller)
    cells = _cells(totals, span)
    whole = summed(cells.values())
    found = grouped(totals.revisions(span), MINUTES_PER_DAY)
    offered, admitted, cost = change_of(found)
    findings = [
        Finding(f"{scope} {counted(*sums)}", {"scope": scope, **facts_of(*sums)}) for scope, sums in cells.items()
    ]
    unsettled = totals.unsettled(span)
    period = f"{options.period[0]}-{options.period[1]:02d}"
    known = totals.known
    told = f"{counted(*whole)}; {len(found)} revisions ({offered:+d} offered, {admitted:+d} admitted, {cost:+d} tokens)"
    summary = (
        f"{options.caller}, {period} in {options.zone.key} ({moment(span.from_us)} to {moment(span.to_us)}): "
        f"{told if known else 'cannot say: the record knows no such caller'}{unsettled.words}"
    )
    facts = {
        "caller": options.caller,
        "period": period,
        "zone": options.zone.key,
        "revisions": [revision_finding(one).facts for one in found],
        **unsettled.facts,
        **facts_of(*whole),
    }
    if not options.json:
        findings += map(revision_finding, found)
    return tell(options, summary, findings, facts, said=known)


def _cells(totals: Totals, span: Span) -> dict[str, tuple[int, int, int, int]]:
    """Scope → its totals, from whole days and, where there are none, from minutes."""
    scopes: dict[str, list[tuple[int, ...]]] = defaultdict(list)
    days: set[int] = set()
    first_day, after_day = -(-span.from_us // DAY_US), span.to_us // DAY_US
    for day, scope, *numbers in totals.rows("totals_days", from_day=first_day, to_day=after_day):
        days.add(int(day))
        scopes[str(scope)].append(tuple(int(number) for number in numbers))
    for scope, *numbers in totals.rows("totals_other_minutes", **bounds(span), days=sorted(days)):
        scopes[str(scope)].append(tuple(int(number) for number in numbers))
    return {scope: summed(parts) for scope, parts in sorted(scopes.items())}


def month_of(year: int, month: int, zone: ZoneInfo) -> Span:
    """A calendar month of a zone, to the microsecond, whatever its clocks do within it."""
    starts = datetime(year, month, 1, tzinfo=zone)
    ends = datetime(year + month // _MONTHS, month % _MONTHS + 1, 1, tzinfo=zone)
    return Span(*(int(one.astimezone(UTC).timestamp()) * 1_000_000 for one in (starts, ends)))


def _period(text: str) -> tuple[int, int]:
    match = _PERIOD.fullmatch(text)
    if match is None or not 1971 <= int(match[1]) <= 2100:
        raise argparse.ArgumentTypeError(f"{text!r} is no month; allowed: 1971-01 to 2100-12, as in 2026-10")
    return int(match[1]), int(match[2])


def _zone(text: str) -> ZoneInfo:
    try:
        return ZoneInfo(text)
    except (ValueError, OSError, ZoneInfoNotFoundError) as fault:
        raise argparse.ArgumentTypeError(f"{text!r} is no time zone; allowed: a name such as Europe/London") from fault
