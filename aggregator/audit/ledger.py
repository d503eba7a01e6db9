"""``tallygate audit ledger``: of every hour, what was lent, and what became of it. docs/ledger.md defines the terms."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import asdict

from aggregator.audit.counts.grants import LedgerHour, as_far_as_kept, kept_hours, ledger_hours
from aggregator.store import Store
from aggregator.words import Answer, Finding, Span, add_caller, add_json, add_span, moment, plural, span_of

HELP = "of every hour, say what was lent and what became of it: spent, returned, credited, outstanding"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Take a caller, a span, and the form of the answer."""
    add_caller(parser)
    add_span(parser)
    parser.add_argument("--kept", action="store_true", help="what the settler last summed, instead of counting again")
    add_json(parser)


def run(options: argparse.Namespace, store: Store) -> int:
    """Print the ledger."""
    span, gone = span_of(options), list[str]()
    if not options.kept:
        span, gone = as_far_as_kept(store, span)
    hours = (kept_hours if options.kept else ledger_hours)(store, span, options.caller)
    return answer(hours, span, options.caller, gone).tell(options)


def answer(hours: list[LedgerHour], span: Span, caller: str | None, gone: Sequence[str] = ()) -> Answer:
    """Agrees if every token that was lent is accounted for; cannot say where nothing was lent.

    `gone` is what is said of times that are not kept.
    """
    granted, grants = sum(hour.granted for hour in hours), sum(hour.grants for hour in hours)
    whose = f"caller {caller}" if caller else "all callers"
    summary = f"{plural(granted, 'token')} in {plural(grants, 'grant')} of {whose}, {span.words}"
    return Answer(
        all(hour.agrees for hour in hours) if hours else None,
        summary,
        [
            *(Finding(line, {"kind": "gone", "line": line}) for line in gone),
            *(Finding(_line(hour), {"kind": "hour", **asdict(hour)}) for hour in hours),
        ],
        {"caller": caller, "span": span.words, "granted": granted, "grants": grants},
    )


def _line(hour: LedgerHour) -> str:
    line = (
        f"{moment(hour.hour_s * 1_000_000)}: granted {hour.granted:,} = spent {hour.spent:,} + returned "
        f"{hour.returned:,} + credited {hour.credited:,} + outstanding {hour.outstanding:,}"
    )
    line += f" + missing {hour.missing:,}" if hour.missing else ""
    line += f" - surplus {hour.surplus:,}" if hour.surplus else ""
    aside = [
        f"adjusted after the fact {hour.adjusted:+,}" if hour.adjusted else "",
        f"given back and spent all the same {hour.given_back_and_spent:,}" if hour.given_back_and_spent else "",
        f"spent of {plural(hour.not_on_record, 'grant')} not on record {hour.spent_not_on_record:,}"
        if hour.not_on_record
        else "",
    ]
    return "; ".join([line, *filter(None, aside)])
