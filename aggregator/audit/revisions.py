"""``tallygate audit revisions``: what changed after it had been reported: when, by how much, because of which blocks.

Reads settled totals, the journal and raw decisions, as far as they are kept. Changes nothing.
"""

from __future__ import annotations

import argparse

from aggregator.audit.totals import Totals, change_of, minutes_of, revision_finding, tell
from aggregator.core.settled.revisions import grouped
from aggregator.store import Store
from aggregator.words import add_caller, add_json, add_span, plural

HELP = "what changed of a caller's totals after it had been reported, and why"
_UNITS = {"minute": 1, "hour": 60, "day": 1_440}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """See `aggregator.audit.command.Action`."""
    add_caller(parser, required=True)
    add_span(parser)
    parser.add_argument("--by", choices=list(_UNITS), default="hour", help="one line for each and time (hour)")
    add_json(parser)


def run(options: argparse.Namespace, store: Store) -> int:
    """See `aggregator.audit.command.Action`: 0; a revision is no fault. 3 if the record knows no such caller."""
    span = minutes_of(options)
    totals = Totals(store, options.caller)
    found = grouped(totals.revisions(span), _UNITS[options.by])
    offered, admitted, cost = change_of(found)
    known = totals.known
    told = f"{plural(len(found), 'revision')}, {offered:+d} offered, {admitted:+d} admitted, {cost:+d} tokens"
    summary = f"{options.caller}, {span.words}: {told if known else 'cannot say: the record knows no such caller'}"
    return tell(options, summary, [revision_finding(one) for one in found], {"caller": options.caller}, said=known)
