"""``tallygate audit verify``: proves the record by the hash chain of each copy's blocks, and says where it fails.

A block's bytes follow from what it says, so the rows of `decisions` must give the hash that the next block carries.
Reads page by page, and names at most so many places; all are counted. Never corrects anything.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from contextlib import ExitStack

from aggregator.audit.proof.found import ProofFindings
from aggregator.audit.proof.log import BlocksOnTheLog, LogNotRead
from aggregator.audit.proof.reading import ON_THE_WAY_US, ChainLife, Reading
from aggregator.audit.proof.rows import RowCheck
from aggregator.config import AggregatorConfig
from aggregator.core.proof.chain import Anchored, BlockRow, Break, ChainWalk, begins_epoch
from aggregator.core.proof.holes import Numbers, parts_of
from aggregator.store import ColumnStore
from aggregator.words import Answer, Span, add_json, add_span, moment, plural, span_of
from stream.contract.block import DecisionBlock

HELP = "prove the record by the hash chain of the copies' blocks, and say where it was altered, cut or added to"
_NOT_ASKED = 3


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Take a span, a copy, and whether to look at the log."""
    add_span(parser)
    add_json(parser)
    parser.add_argument("--copy", default="", metavar="ID", help="only this copy's blocks (all copies')")
    parser.add_argument(
        "--log",
        action="store_true",
        help="where rows do not give their block's hash, name row and field by what Kafka (TALLYGATE_KAFKA) still has",
    )


def run(options: argparse.Namespace, store: ColumnStore) -> int:
    """Verify, print the answer, and return the exit code."""
    span = span_of(options)
    with ExitStack() as stack:
        log: Callable[[BlockRow], DecisionBlock | None] | None = None
        if options.log:
            log = stack.enter_context(BlocksOnTheLog(AggregatorConfig.from_env().kafka)).find
        try:
            return verify(store, span, copy_id=options.copy, log=log).tell(options)
        except LogNotRead as fault:
            sys.stderr.write(f"tallygate audit: {fault}\n")
            return _NOT_ASKED


def verify(
    store: ColumnStore,
    span: Span,
    *,
    copy_id: str = "",
    log: Callable[[BlockRow], DecisionBlock | None] | None = None,
) -> Answer:
    """Prove what a span touches.

    Args:
        store: the record.
        span: blocks that were sealed in it, and what their chains say of them.
        copy_id: of which copy; empty for all.
        log: gives a block as the log still has it; None: the log is not looked at.

    Raises:
        StoreUnavailable, StoreRefused: the record could not be asked.
        LogNotRead: the log was to be looked at, and does not answer.
    """
    reading, found = Reading(store), ProofFindings()
    rows = RowCheck(reading, found, log)
    for life in reading.lives(span, copy_id):
        found.lives += 1
        _Chain(life, reading, found).check(span, rows)
    rows.flush()
    _find_added(reading, span, copy_id, found)
    return found.answer(span)


def _find_added(reading: Reading, span: Span, copy_id: str, found: ProofFindings) -> None:
    """Name decisions that no block covers; not the youngest, for the recorder writes a block after its decisions."""
    until_us = min(span.to_us, reading.now_us - ON_THE_WAY_US)
    if until_us <= span.from_us:
        return
    for copy, epoch, count, first, last in reading.rows_of_no_block(Span(span.from_us, until_us), copy_id):
        found.added += count
        line = f"{plural(count, 'decision')} that no block covers, between {first} and {last}: added to the record"
        found.name((copy, epoch), line, "added", fault=True, decisions=count, first_seq=first, last_seq=last)


class _Chain:
    """Checks the chain of one life."""

    def __init__(self, life: ChainLife, reading: Reading, found: ProofFindings) -> None:
        self._life = life
        self._reading = reading
        self._found = found
        self._losses: list[Numbers] | None = None
        self._walk = ChainWalk()

    def check(self, span: Span, rows: RowCheck) -> None:
        """Walk the blocks that the span touches, hand each to `rows`, and hold the end against the anchors."""
        unmet = {anchor.head: anchor for anchor in self._reading.anchors(self._life, span)}

        def take(item: BlockRow | Break) -> None:
            if isinstance(item, Break):
                self._judge_break(item)
                return
            if self._walk.blocks == 1:
                self._judge_begin(item)
            unmet.pop(item.block_hash, None)
            rows.add(item)

        for page in self._reading.blocks(self._life):
            for item in self._walk.take(page):
                take(item)
        for item in self._walk.end():
            take(item)
        self._found.blocks += self._walk.blocks
        self._judge_anchors(list(unmet.values()))

    def _judge_begin(self, first: BlockRow) -> None:
        end = 0 if begins_epoch(first) else self._reading.end_of_hash(self._life, first.prev_hash)
        if end is not None and first.first_seq <= end:
            return
        if end is None and not self._found.left(self._reading).has_blocks_before(first):
            line = f"what stood before {first.words} is kept no longer"
            self._found.name(self._life[:2], line, "expired", first_seq=first.first_seq)
            return
        # Without the block before it nobody knows how far back the missing ones go; one at least is missing.
        hole = Numbers(max(first.first_seq - 1, 0) if end is None else end, first.first_seq)
        self._judge_hole(hole, f"before {first.words}", hash_fits=end is not None)

    def _judge_break(self, broken: Break) -> None:
        after = broken.after
        where = f"between {after.words} and {broken.before.words}" if after else f"before {broken.before.words}"
        hole = broken.missing or Numbers(broken.before.first_seq, broken.before.first_seq)
        self._judge_hole(hole, where, hash_fits=broken.hash_fits)

    def _judge_hole(self, hole: Numbers, where: str, *, hash_fits: bool) -> None:
        declared, silent = parts_of(hole, self._lost()) if hole.count else ([], [])
        for part in silent:
            self._found.missing += part.count
            line = f"{plural(part.count, 'decision')} missing: {part.words}, {where}"
            self._name(line, "missing_block", first_seq=part.first, last_seq=part.end - 1)
        for part in declared:
            self._found.lost += part.count
            line = f"{plural(part.count, 'decision')} lost by its own record: {part.words}, {where}"
            self._found.name(self._life[:2], line, "lost", first_seq=part.first, last_seq=part.end - 1)
        if not silent and not declared and not hash_fits:
            line = f"the chain is broken {where}: a block without decisions is missing, or a hash was altered"
            self._name(line, "broken", first_seq=hole.first)

    def _judge_anchors(self, unmet: list[Anchored]) -> None:
        """Each anchor names a block that must be there; of those that miss theirs, the last says all."""
        end = self._walk.last.end if self._walk.last is not None else 0
        due = [one for one in unmet if not self._reading.came_lately(one)]
        if len(due) < len(unmet):
            line = f"{plural(len(unmet) - len(due), 'anchor')} of the last minutes may have come before their blocks"
            self._found.name(self._life[:2], line, "pending")
        due = [one for one in due if not self._is_lost(one)]
        if not due:
            return
        newest = due[-1]
        told = f"anchored at {moment(newest.at_us)}"
        if newest.next_seq > end:
            self._found.missing += newest.next_seq - end
            cut = Numbers(end, newest.next_seq)
            line = f"the tail was cut off: {cut.words} missing, of a block that was {told}"
        else:
            line = (
                f"the block that ends before {newest.next_seq} and was {told} is missing, or the chain was written anew"
            )
        self._name(line, "cut", next_seq=newest.next_seq, head=newest.head.hex(), anchors=len(due))

    def _is_lost(self, anchor: Anchored) -> bool:
        """Whether the copy has said that the last decision of the anchored block never came to the log."""
        return any(one.first < anchor.next_seq <= one.end for one in self._lost())

    def _lost(self) -> list[Numbers]:
        if self._losses is None:
            self._losses = self._reading.losses(self._life)
        return self._losses

    def _name(self, line: str, kind: str, **facts: object) -> None:
        self._found.name(self._life[:2], line, kind, fault=True, **facts)
