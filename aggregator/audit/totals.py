"""What the actions about totals share: spans of whole minutes, what is read of settled totals, and how it is told.

Prints, and reads the database; changes nothing, and reads no clock.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from aggregator.core.settled.revisions import (
    ON_TIME_US,
    Block,
    Counts,
    Flush,
    Revision,
    Version,
    explained,
    first_reports,
    placed,
    revisions,
)
from aggregator.core.settled.settling import MINUTE_US
from aggregator.sql import load_queries
from aggregator.store import Store
from aggregator.words import CANNOT_SAY, LATEST_US, Finding, Span, moment, span_of, text_of
from stream.contract.topics import DECISIONS

_LATEST_S = 2**32 - 60
_WRONG_CALL = 2
_US_PER_S = 1_000_000


def minutes_of(options: argparse.Namespace) -> Span:
    """The span that was asked for, which must begin and end with a minute; else the command ends with 2."""
    span = span_of(options)
    for name, at_us in (("--from", span.from_us), ("--to", span.to_us)):
        if at_us % MINUTE_US:
            sys.stderr.write(f"tallygate audit: {name} {moment(at_us)} is within a minute; allowed: whole minutes\n")
            raise SystemExit(_WRONG_CALL)
    return span


def bounds(span: Span) -> dict[str, int]:
    """As queries bind it: ``from_s`` and ``to_s``, within what a time of the settled tables can hold."""
    return {"from_s": min(span.from_us // _US_PER_S, _LATEST_S), "to_s": min(span.to_us // _US_PER_S, _LATEST_S)}


@dataclass(frozen=True, slots=True)
class Unsettled:
    """Minutes of a span, with decisions of whomever, whose settled totals are not the last word.

    Attributes:
        waiting: those that are not settled yet.
        too_late: those that got decisions when raw ones were gone already, so that these were not counted.
    """

    waiting: int = 0
    too_late: int = 0

    @property
    def words(self) -> str:
        """As it stands at the end of a summary; empty if there are none."""
        said = f"; {self.waiting} minutes of all callers are not settled yet" if self.waiting else ""
        late = f"; decisions came too late to be counted in {self.too_late} minutes of all callers"
        return said + (late if self.too_late else "")

    @property
    def facts(self) -> dict[str, int]:
        """The same for programs."""
        return {"minutes_not_settled": self.waiting, "minutes_too_late": self.too_late}


class Totals:
    """The named queries of `audit_totals.sql` about one caller."""

    def __init__(self, store: Store, caller: str) -> None:
        self._store = store
        self._caller = caller
        self._queries = load_queries("aggregator.sql", "audit_totals.sql")

    def rows(self, query: str, **parameters: Any) -> Sequence[tuple[Any, ...]]:
        """Run one of them."""
        return self._store.rows(self._queries[query].sql, {"caller": self._caller, **parameters})

    def waiting(self, span: Span) -> set[int]:
        """The unix minutes of a span that hold decisions, of whomever, which are not settled yet."""
        rows = self.rows("totals_waiting", **bounds(span), topic=DECISIONS.name)
        return {int(minute) for (minutes,) in rows for minute in minutes}

    def unsettled(self, span: Span, *, at_us: int = LATEST_US) -> Unsettled:
        """What the settled totals of a span lack, or may lack; of what came too late, what was known at a time."""
        ((too_late,),) = self.rows("totals_too_late", **bounds(span), at_us=at_us)
        return Unsettled(len(self.waiting(span)), int(too_late))

    @property
    def known(self) -> bool:
        """Whether anything was ever recorded of the caller, as far as that is kept."""
        return bool(self.rows("totals_known")[0][0])

    def revisions(self, span: Span) -> list[Revision]:
        """The revisions of the minutes of a span, each with the blocks behind it as far as they are known."""
        rows = self.rows("totals_versions", **bounds(span), on_time_s=ON_TIME_US // _US_PER_S)
        versions = [
            Version(int(minute), str(scope), int(version), int(stored_us), (int(off), int(adm), int(cost)))
            for minute, scope, version, stored_us, off, adm, cost in rows
        ]
        found = revisions(versions)
        if not found:
            return []
        minutes = sorted({one.minute for one in found})
        return explained(found, self._blocks(minutes), first_reports(versions))

    def _blocks(self, minutes: list[int]) -> list[Block]:
        around = {"from_s": minutes[0] * 60, "to_s": (minutes[-1] + 1) * 60}
        blocks = [
            Block(int(minute), str(copy_id), int(epoch), int(partition), int(offset), int(number))
            for minute, copy_id, epoch, partition, offset, number in self.rows(
                "totals_blocks", minutes=minutes, **around
            )
        ]
        flushes = [
            Flush(int(partition), int(first), int(after), int(stored_us), frozenset(int(minute) for minute in dirtied))
            for partition, first, after, stored_us, dirtied in self.rows(
                "totals_flushes", minutes=minutes, topic=DECISIONS.name
            )
        ]
        return placed(blocks, flushes)


def counted(offered: int, admitted: int, cost_offered: int, cost_admitted: int) -> str:
    """Totals in words."""
    return (
        f"{offered} offered, {admitted} admitted, {offered - admitted} refused; "
        f"{cost_admitted} of {cost_offered} tokens charged"
    )


def facts_of(offered: int, admitted: int, cost_offered: int, cost_admitted: int) -> dict[str, int]:
    """The same for programs."""
    return {
        "offered": offered, "admitted": admitted, "refused": offered - admitted,
        "cost_offered": cost_offered, "cost_admitted": cost_admitted,
    }  # fmt: skip


def revision_finding(one: Revision) -> Finding:
    """One revision: of when, by how much, when it was made, and why."""
    offered, admitted, cost = one.change
    late = sum(block.decisions for block in one.blocks)
    where = ", ".join(_place(block) for block in one.blocks)
    cause = f"{late} decisions of late blocks: {where}" if one.blocks else "the blocks behind it are no longer known"
    kind = "first reported" if one.first else "revised"
    start = moment(one.minute * MINUTE_US)
    return Finding(
        f"{start} {_signed(offered)} offered, {_signed(admitted)} admitted, {_signed(cost)} tokens; "
        f"{kind} {moment(one.stored_us)}; {cause}",
        {
            "of": start,
            "at": moment(one.stored_us),
            "first": one.first,
            "offered": offered,
            "admitted": admitted,
            "cost_admitted": cost,
            "blocks": [
                {
                    "copy_id": block.copy_id,
                    "epoch": block.epoch,
                    "topic": DECISIONS.name,
                    "partition": block.log_partition,
                    "offset": block.log_offset,
                    "decisions": block.decisions,
                    "stored_at": moment(block.stored_us or 0),
                }
                for block in one.blocks
            ],
        },
    )


def summed(rows: Iterable[Sequence[int]]) -> tuple[int, int, int, int]:
    """The sum of (offered, admitted, cost_offered, cost_admitted)."""
    total = [0, 0, 0, 0]
    for row in rows:
        total = [have + int(more) for have, more in zip(total, row, strict=True)]
    return total[0], total[1], total[2], total[3]


def tell(
    options: argparse.Namespace,
    summary: str,
    findings: Sequence[Finding],
    facts: Mapping[str, object],
    *,
    said: bool = True,
) -> int:
    """Print an answer that is no verdict, as ``--json`` asks; returns 0, or 3 where there was nothing to be `said`."""
    if options.json:
        whole = {**facts, "summary": summary, "findings": [one.facts for one in findings]}
        sys.stdout.write(json.dumps(whole, sort_keys=True, ensure_ascii=False, separators=(",", ":")) + "\n")
    else:
        sys.stdout.write(text_of((summary, *(one.line for one in findings))))
    return 0 if said else CANNOT_SAY


def change_of(found: Iterable[Revision]) -> Counts:
    """By how much all of these together changed what had been reported."""
    changes = [one.change for one in found]
    return (sum(one[0] for one in changes), sum(one[1] for one in changes), sum(one[2] for one in changes))


def _place(block: Block) -> str:
    stored = f", stored {moment(block.stored_us)}" if block.stored_us is not None else ""
    place = f"{DECISIONS.name}[{block.log_partition}]@{block.log_offset}"
    return f"{block.copy_id} (epoch {block.epoch}) {place}{stored}"


def _signed(number: int) -> str:
    return f"{number:+d}"
