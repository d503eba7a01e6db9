"""``tallygate audit reconcile``: three counts of the same decisions that are kept independently must agree.

The rows of the record; the running totals that copies state in their blocks; the totals that were stated of grants.
Less than was counted is loss, more is duplication; each block and grant that does not agree is named. What is compared
is whole: blocks by the time of their seal, grants by that of their issue. Says the same of the same record, however
often it is asked, for as long as the raw decisions are kept.
"""

from __future__ import annotations

import argparse
from dataclasses import asdict

from aggregator.audit.counts.copies_count import BlockCounts, block_findings, count_blocks
from aggregator.audit.counts.grants import MOST_DECISIONS, as_far_as_kept
from aggregator.audit.counts.grants_count import GrantCounts, count_grants, grant_findings, lives_that_stopped
from aggregator.audit.gaps import holes_of, losses_of
from aggregator.retention.begins import begins
from aggregator.store import Store
from aggregator.words import Answer, Finding, Span, add_caller, add_json, add_span, plural, span_of

HELP = "count the decisions in three ways that must agree, and name each grant and block that does not"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Take a caller, a span, and the form of the answer."""
    add_caller(parser)
    add_span(parser)
    add_json(parser)


def run(options: argparse.Namespace, store: Store) -> int:
    """Say whether the counts agree; see `compare`."""
    return compare(store, span_of(options), options.caller).tell(options)


def compare(store: Store, span: Span, caller: str | None = None, *, most: int = MOST_DECISIONS) -> Answer:
    """The three counts, and what does not agree.

    Args:
        store: where the record is.
        span: blocks that were sealed, and grants that were issued in it, as far back as raw decisions are kept.
        caller: only grants of its buckets, and blocks that hold a decision of it, whole; all if None.
        most: grants are compared in parts of so many decisions.

    Raises:
        StoreUnavailable, StoreRefused: the database could not be asked.
    """
    span, gone = as_far_as_kept(store, span)
    blocks = count_blocks(store, span, caller)
    grants = count_grants(store, span, caller, most=most)
    lives = sorted({(block.copy_id, block.epoch) for block in blocks.faults} | {grant.life for grant in grants.faults})
    losses = losses_of(store, lives)
    lossy = {*losses, *holes_of(store, Span(), lives, begins(store))}
    stopped = lives_that_stopped(store, lives)
    faulty = blocks.faulty + grants.faulty
    whose = f"caller {caller}" if caller else "all callers"
    told = plural(blocks.faulty, "block") + " and " + plural(grants.faulty, "grant") + " differ, " if faulty else ""
    return Answer(
        not faulty if faulty or blocks.blocks or grants.grants else None,
        f"{told}{plural(blocks.blocks, 'block')} and {plural(grants.grants, 'grant')} of {whose}, {span.words}",
        [
            *(Finding(line, {"kind": "gone", "line": line}) for line in gone),
            *_counted(blocks, grants, caller),
            *block_findings(blocks, losses),
            *grant_findings(grants.faults, lossy, stopped, kind="grant"),
            *grant_findings(grants.open, lossy, stopped, kind="unsettled"),
        ],
        {
            "caller": caller,
            "span": span.words,
            "blocks": {name: count for name, count in asdict(blocks).items() if name != "faults"},
            "grants": {name: count for name, count in asdict(grants).items() if name not in ("faults", "open")},
        },
    )


def _counted(blocks: BlockCounts, grants: GrantCounts, caller: str | None) -> list[Finding]:
    """The counts themselves, one line each, and what they are of."""
    which = f"whole blocks that hold a decision of {caller}" if caller else "whole blocks"
    lines = [
        f"{plural(blocks.blocks, 'block')} of {plural(blocks.lives, 'life of a copy', 'lives of copies')} ({which}): "
        f"{blocks.rows:,} decisions by rows, {blocks.said:,} by blocks"
    ]
    if blocks.counted_blocks:
        lines.append(
            f"{plural(blocks.counted_blocks, 'block')} with their copies' totals: {blocks.counted_rows:,} decisions by "
            f"rows, {blocks.totals:,} by copies; admitted {blocks.admitted_rows:,} and {blocks.admitted_totals:,}; "
            f"tokens {blocks.cost_rows:,} and {blocks.cost_totals:,}"
        )
    lines.append(
        f"{plural(grants.settled, 'settled grant')}: {grants.named + grants.adjusted:,} tokens by decisions and what "
        f"was adjusted ({grants.adjusted:+,}), {grants.stated:,} by final totals"
    )
    if grants.grants > grants.settled:
        lines.append(
            f"{plural(grants.grants - grants.settled, 'grant')} without a final total: {grants.named_unsettled:,} "
            f"tokens by decisions; {grants.unsettled:,} of them were given back by their owners, or have long expired"
        )
    if blocks.erased or grants.erased:
        lines.append(
            f"{plural(blocks.erased, 'decision')} of them were erased on request, and {plural(grants.erased, 'grant')} "
            f"of their copies lack {plural(grants.erased_tokens, 'token')} that they may have taken"
        )
    return [Finding(line, {"kind": "counted", "line": line}) for line in lines]
