"""What copies counted themselves, block by block, against what the record holds: the blocks that do not agree, and how.

A block states how many decisions its copy had made, admitted and refused up to its end, lost ones included. Whole
blocks are compared. Never asks a copy, the log or the clock.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from aggregator.core.proof.holes import Numbers, parts_of
from aggregator.retention.begins import begins
from aggregator.sql import composed, load_queries
from aggregator.store import Store
from aggregator.words import Finding, Span, moment, plural

_FILE = "audit_blocks.sql"


@dataclass(frozen=True, slots=True)
class BlockFault:
    """One block that does not agree, from `from_seq` up to (without) `end_seq`; a block that overlaps others is cut.

    Attributes:
        gap: decisions before it that no block holds.
        stray: rows behind it that no block holds.
        rows, admitted, cost: of its decisions, as the record holds them.
        erased: decisions of it that were erased on request.
        admitted_said, cost_said: as the block says; true of it only if it `is_whole`.
        has_totals: whether the copy's totals are known at both its ends. The deltas are what the copy counted between
            the end of the block before and the end of this one.
    """

    copy_id: str
    epoch: int
    from_seq: int
    end_seq: int
    sealed_at_us: int
    gap: int
    stray: int
    rows: int
    erased: int
    admitted: int
    admitted_said: int
    cost: int
    cost_said: int
    is_whole: bool
    has_totals: bool
    admitted_delta: int
    refused_delta: int
    cost_delta: int

    def lines(self, lost: Sequence[Numbers]) -> list[str]:
        """What does not agree, with both numbers and what is likely; `lost` is what the copy said."""
        said = self.end_seq - self.from_seq
        found = [*self._gap_lines(lost)]
        erased = f" and {self.erased:,} were erased" if self.erased else ""
        if self.rows + self.erased < said:
            why = "rows were removed, or never stored"
            found.append(f"holds {said:,} decisions, on record are {self.rows:,}{erased}: {why}")
        elif self.rows + self.erased > said:
            found.append(f"holds {said:,} decisions, on record are {self.rows:,}{erased}: some stand there twice")
        elif self.is_whole and (self.admitted, self.cost) != (self.admitted_said, self.cost_said):
            found.append(
                f"says {self.admitted_said:,} admitted of {plural(self.cost_said, 'token')}, its rows say "
                f"{self.admitted:,} of {self.cost:,}: rows were altered"
            )
        if self.stray:
            found.append(f"is followed by {plural(self.stray, 'row')} of no block: the next block was removed")
        if self.has_totals and not self.gap and self.is_whole and self._totals_differ:
            found.append(
                f"its copy counted {self.admitted_delta + self.refused_delta:,} decisions, {self.admitted_delta:,} "
                f"admitted, of {plural(self.cost_delta, 'token')}; the block says {said:,}, {self.admitted_said:,}, "
                f"{self.cost_said:,}"
            )
        return found

    @property
    def _totals_differ(self) -> bool:
        said = self.end_seq - self.from_seq
        counted = (self.admitted_delta, self.refused_delta, self.cost_delta)
        return counted != (self.admitted_said, said - self.admitted_said, self.cost_said)

    def _gap_lines(self, lost: Sequence[Numbers]) -> list[str]:
        if not self.gap:
            return []
        hole = Numbers(self.from_seq - self.gap, self.from_seq)
        declared = sum(part.count for part in parts_of(hole, lost)[0])
        why = {0: "no loss record", self.gap: "its copy said that it lost them"}.get(
            declared, f"its copy said that it lost {declared:,} of them"
        )
        counted = ""
        if self.has_totals:
            admitted, cost = self.admitted_delta - self.admitted_said, self.cost_delta - self.cost_said
            counted = f", {admitted:,} of them admitted, of {plural(cost, 'token')} by its copy's totals"
        return [f"before it {plural(self.gap, 'decision')} missing ({hole.words}){counted}: {why}"]


@dataclass(frozen=True, slots=True)
class BlockCounts:
    """The decisions of a span's blocks, counted in three ways; `faults` are at most 1,000 of `faulty`.

    Attributes:
        blocks, lives: compared.
        rows, said: decisions by rows (or erased on request), and by blocks.
        counted_blocks: blocks whose copies' totals are known at both ends; of these alone are the following.
        counted_rows, totals: decisions by rows, and by the copies' totals.
        admitted_rows, admitted_totals, cost_rows, cost_totals: admitted ones and their tokens, likewise.
        missing: decisions that no block holds.
        stray: rows that no block holds.
        erased: decisions that were erased on request; blocks with any count in no sum of admitted ones and tokens.
    """

    blocks: int
    lives: int
    rows: int
    said: int
    counted_blocks: int
    counted_rows: int
    totals: int
    admitted_rows: int
    admitted_totals: int
    cost_rows: int
    cost_totals: int
    missing: int
    stray: int
    erased: int
    faulty: int
    faults: Sequence[BlockFault]


def count_blocks(store: Store, span: Span, caller: str | None) -> BlockCounts:
    """Compare the blocks that were sealed in a span, all at once; those that hold a decision of `caller`, or all.

    Raises:
        StoreUnavailable, StoreRefused: the database could not be asked.
    """
    queries = load_queries("aggregator.sql", _FILE)
    bound: dict[str, Any] = {**span.parameters, **begins(store).parameters, "caller": caller or ""}
    decided = store.rows(queries["decided_between"].sql, bound)[0]
    bound["decided_from_us"], bound["decided_to_us"] = decided
    row = store.rows(composed(_FILE, "blocks_compared"), bound)[0]
    return BlockCounts(*(*row[:-1], [BlockFault(*fault) for fault in row[-1]]))


def block_findings(counts: BlockCounts, losses: dict[tuple[str, int], list[Numbers]]) -> list[Finding]:
    """One finding for each thing that is wrong with a block; `losses` are the copies' own loss records, by life."""
    return [
        Finding(
            f"block {block.from_seq} to {block.end_seq - 1} of copy {block.copy_id}, epoch {block.epoch}, sealed at "
            f"{moment(block.sealed_at_us)}: {line}",
            {"kind": "block", "what": line, **{name: getattr(block, name) for name in BlockFault.__slots__}},
        )
        for block in counts.faults
        for line in block.lines(losses.get((block.copy_id, block.epoch), []))
    ]
