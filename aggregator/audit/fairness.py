"""``tallygate audit fairness``: which refusals were inside the plan and why, and whether the declared bound held.

Reads what the settler wrote (table `fairness`); replays nothing itself. Spans are whole minutes of UTC.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from typing import Any

from aggregator.audit.totals import Totals, Unsettled
from aggregator.core.fairness.causes import Cause
from aggregator.sql import load_queries
from aggregator.store import Store
from aggregator.words import Answer, Finding, add_caller, add_json, add_span, moment, span_of

HELP = "refusals that should not have been, and admissions beyond the declared bound"

_MOST_LINES = 100
_MINUTE_US = 60_000_000
#: The last second that the table's DateTime can hold.
_LATEST_S = 4_294_967_295
_TOTALS = (
    "offered", "admitted", "refused", "wrongful", "causes", "over_admitted", "early_returns", "not_judged", "last_s",
)  # fmt: skip
_BUCKET = (
    "caller", "limit", "judged", "offered", "admitted", "refused", "wrongful", "causes", "over_admitted",
    "excess_tokens", "epsilon_tokens", "busiest_second", "busiest_at_s", "k", "early_returns",
)  # fmt: skip


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """``--caller``, ``--from``, ``--to``, ``--json``."""
    add_caller(parser)
    add_span(parser)
    add_json(parser)


def run(options: argparse.Namespace, store: Store) -> int:
    """Print the answer: 1 if a refusal was wrongful and not displaced, or more was admitted than declared.

    3 if no request was judged.
    """
    queries = load_queries("aggregator.sql", "audit_fairness.sql")
    span = span_of(options)
    parameters: dict[str, Any] = {
        "from_s": span.from_us // _MINUTE_US * 60,
        "to_s": min(_LATEST_S, -(-span.to_us // 1_000_000)),
        "caller": options.caller or "",
    }
    unsettled = Totals(store, options.caller or "").unsettled(span)
    totals = dict(zip(_TOTALS, store.rows(queries["audit_fairness_totals"].sql, parameters)[0], strict=True))
    beyond = int(store.rows(queries["audit_fairness_beyond"].sql, parameters)[0][0])
    shown = {**parameters, "all": options.caller is not None, "most": _MOST_LINES}
    buckets = [dict(zip(_BUCKET, row, strict=True)) for row in store.rows(queries["audit_fairness_callers"].sql, shown)]
    return _answer(totals, beyond, buckets, unsettled).tell(options)


def _answer(
    totals: Mapping[str, Any], beyond: int, buckets: Sequence[Mapping[str, Any]], unsettled: Unsettled
) -> Answer:
    causes = _named(totals["causes"])
    withheld = totals["wrongful"] - causes.get("displaced", 0)
    facts = {**totals, "causes": causes, "beyond_epsilon": beyond, **unsettled.facts}
    findings = [Finding(_line(one), {**one, "causes": _named(one["causes"])}) for one in buckets]
    if withheld or beyond:
        found = []
        if withheld:
            found.append(f"of {totals['refused']:,} refusals {totals['wrongful']:,} were wrongful ({_causes(causes)})")
        if beyond:
            noun = "bucket was" if beyond == 1 else "buckets were"
            found.append(f"{beyond:,} {noun} admitted more than ε beyond the plan")
        return Answer(False, "; ".join(found), findings, facts)
    if not totals["offered"] and not totals["not_judged"]:
        return Answer(None, f"no request of this span is judged{unsettled.words}", findings, facts)
    displaced = f", {totals['wrongful']:,} of them in another's place (displaced)" if totals["wrongful"] else ""
    summary = (
        f"{totals['offered']:,} offered, {totals['admitted']:,} admitted, {totals['refused']:,} refused{displaced}; "
        "no more admitted than declared"
    )
    if totals["not_judged"]:
        summary += f"; {totals['not_judged']:,} refusals by limits that are not judged"
    return Answer(True, summary + unsettled.words, findings, facts)


def _line(one: Mapping[str, Any]) -> str:
    counts = f"{one['offered']:,} offered, {one['admitted']:,} admitted, {one['refused']:,} refused"
    if not one["judged"]:
        return f"{one['caller']} {one['limit']}: {counts}, not judged"
    wrongful = f", {one['wrongful']:,} of them wrongfully ({_causes(_named(one['causes']))})" if one["wrongful"] else ""
    return (
        f"{one['caller']} {one['limit']}: {counts}{wrongful}; {one['over_admitted']:,} over-admitted, "
        f"at worst {one['excess_tokens']:,.6g} tokens beyond the plan, ε {one['epsilon_tokens']:,.6g}; "
        f"busiest second {one['busiest_second']:,} offered, at {moment(one['busiest_at_s'] * 1_000_000)}; "
        f"k {one['k']:,}; {one['early_returns']:,} early returns"
    )


def _named(counts: Sequence[int]) -> dict[str, int]:
    """The causes that there are, with their numbers."""
    return {cause.name.lower(): int(count) for cause, count in zip(Cause, counts, strict=True) if count}


def _causes(causes: Mapping[str, int]) -> str:
    most_first = sorted(causes.items(), key=lambda one: (-one[1], one[0]))
    return ", ".join(f"{count:,} {name.replace('_', ' ')}" for name, count in most_first)
