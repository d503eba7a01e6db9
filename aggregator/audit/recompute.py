"""``tallygate audit recompute``: a caller's totals counted from raw decisions now, and whether the settled ones agree.

The same question has the same answer, byte for byte, as long as the record is the same. Changes nothing: what is
settled is changed by the settler alone.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from aggregator.audit.totals import Totals, bounds, counted, facts_of, minutes_of, summed
from aggregator.core.settled.settling import MINUTE_US
from aggregator.store import Store
from aggregator.words import Answer, Finding, add_caller, add_json, add_span, moment

HELP = "count a caller's totals from raw decisions again, and compare the settled ones"
_LISTED = 100


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """See `aggregator.audit.command.Action`."""
    add_caller(parser, required=True)
    add_span(parser)
    add_json(parser)


def run(options: argparse.Namespace, store: Store) -> int:
    """See `aggregator.audit.command.Action`: 1 if a settled minute is not what the raw decisions say.

    3 if there is neither.
    """
    span = minutes_of(options)
    totals = Totals(store, options.caller)
    rows = [
        (str(hour), str(scope), tuple(int(number) for number in numbers))
        for hour, scope, *numbers in totals.rows("totals_recounted", **bounds(span))
    ]
    waiting = totals.waiting(span)
    apart = totals.rows("totals_differing", **bounds(span))
    differing = [row for row in apart if int(row[0]) not in waiting]
    unsettled = {int(row[0]) for row in apart} & waiting
    whole = summed(numbers for _, _, numbers in rows)
    findings = [
        Finding(f"{hour} {scope} {counted(*numbers)}", {"hour": hour, "scope": scope, **facts_of(*numbers)})
        for hour, scope, numbers in rows
    ]
    summary = f"{options.caller}, {span.words}, raw decisions say {counted(*whole)}"
    if unsettled:
        summary += f"; {len(unsettled)} minutes are not settled yet"
    if differing:
        summary = f"{len(differing)} cells of a minute and a scope are settled otherwise; {summary}"
    answer = Answer(
        agrees=not differing if rows or apart else None,
        summary=summary,
        findings=[*(_difference(row) for row in differing[:_LISTED]), *findings],
        facts={"differing": len(differing), "minutes_not_settled": len(unsettled), **facts_of(*whole)},
    )
    return answer.tell(options)


def _difference(row: Sequence[Any]) -> Finding:
    minute, scope, *counts = row
    raw_offered, raw_admitted, settled_offered, settled_admitted = (int(number) for number in counts)
    at = moment(int(minute) * MINUTE_US)
    return Finding(
        f"{at} {scope}: raw decisions say {raw_offered} offered and {raw_admitted} admitted, "
        f"settled are {settled_offered} and {settled_admitted}",
        {
            "minute": at,
            "scope": str(scope),
            "raw_offered": raw_offered,
            "raw_admitted": raw_admitted,
            "settled_offered": settled_offered,
            "settled_admitted": settled_admitted,
        },
    )
