"""``tallygate audit as-of``: one caller's totals as they were reported at a time, by hour or by scope.

Counts settled totals only, so that the answer is what a page or a bill could have said then, and says what of the span
is not settled. Changes nothing.
"""

from __future__ import annotations

import argparse

from aggregator.audit.totals import Totals, bounds, counted, facts_of, minutes_of, summed, tell
from aggregator.store import Store
from aggregator.words import Finding, add_caller, add_json, add_span, moment, moment_us

HELP = "a caller's totals as they were reported at a time"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """See `aggregator.audit.command.Action`."""
    add_caller(parser, required=True)
    add_span(parser)
    parser.add_argument("--at", type=moment_us, required=True, metavar="TIME", help="when they were reported")
    parser.add_argument("--by", choices=["hour", "scope"], default="hour", help="one line each (hour)")
    add_json(parser)


def run(options: argparse.Namespace, store: Store) -> int:
    """See `aggregator.audit.command.Action`: 0; 3 if nothing of the caller was settled."""
    span = minutes_of(options)
    totals = Totals(store, options.caller)
    rows = totals.rows("totals_as_of", **bounds(span), at_us=options.at, by=options.by)
    cells = [(str(place), tuple(int(number) for number in numbers)) for place, *numbers in rows]
    whole = summed(numbers for _, numbers in cells)
    findings = [
        Finding(f"{place} {counted(*numbers)}", {options.by: place, **facts_of(*numbers)}) for place, numbers in cells
    ]
    unsettled = totals.unsettled(span, at_us=options.at)
    said = counted(*whole) if cells else "cannot say: nothing of this caller was settled"
    summary = f"{options.caller}, {span.words}, as of {moment(options.at)}: {said}{unsettled.words}"
    facts = {"as_of": moment(options.at), **unsettled.facts, **facts_of(*whole)}
    return tell(options, summary, findings, facts, said=bool(cells))
