"""The rows of blocks, checked many blocks at a time: they must give each block's hash. Judges; never corrects."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from typing import Final

import numpy as np

from aggregator.audit.proof.found import ProofFindings
from aggregator.audit.proof.reading import Reading
from aggregator.core.proof.chain import BlockRow
from aggregator.core.proof.differences import differences
from aggregator.core.proof.excuses import excuse
from aggregator.core.proof.holes import Numbers
from aggregator.core.proof.rebuilding import Checked, RecordedRows, check_block, rows_of
from aggregator.core.record.erased import MARK
from aggregator.words import plural
from stream.contract.block import DecisionBlock
from stream.contract.codec import VERSION

#: Blocks that are read together: so many decisions, of so many lives, within so long.
MOST_DECISIONS: Final = 400_000
_MOST_LIVES = 200
_MOST_US = 6 * 3_600_000_000
#: Differences of one block that are named.
_MOST_DIFFERENCES = 5


class RowCheck:
    """Collects blocks, reads their rows, and names what is wrong with them.

    Args:
        reading: of the record.
        found: where it is counted and named.
        log: gives a block as the log still has it, or None; None instead of it: the log is not looked at.
    """

    def __init__(
        self, reading: Reading, found: ProofFindings, log: Callable[[BlockRow], DecisionBlock | None] | None
    ) -> None:
        self._reading = reading
        self._found = found
        self._log = log
        self._blocks: list[BlockRow] = []
        self._lives: set[tuple[str, int]] = set()
        self._decisions = 0
        self._span = Numbers(0, 0)

    def add(self, block: BlockRow) -> None:
        """Take a block; its rows are read with those of others."""
        if block.layout_version != VERSION:
            self._found.chained_only += block.decisions
            return
        span = Numbers(block.first_at_us, block.last_at_us)
        if self._blocks:
            span = Numbers(min(span.first, self._span.first), max(span.end, self._span.end))
            if self._decisions + block.decisions > MOST_DECISIONS or span.count > _MOST_US:
                self.flush()
                span = Numbers(block.first_at_us, block.last_at_us)
        self._blocks.append(block)
        self._span = span
        self._decisions += block.decisions
        self._lives.add((block.copy_id, block.epoch))
        if len(self._lives) >= _MOST_LIVES:
            self.flush()

    def flush(self) -> None:
        """Read and check what was collected."""
        blocks, self._blocks = self._blocks, []
        self._lives, self._decisions = set(), 0
        if not blocks:
            return
        rows = rows_of(self._reading.decisions(blocks))
        figures = self._reading.figures(rows)
        for block in blocks:
            self._judge(block, rows, check_block(block, rows, figures))

    def _judge(self, block: BlockRow, rows: RecordedRows, checked: Checked) -> None:
        if checked.agrees:
            self._found.proved += block.decisions
            return
        if checked.repeated:
            self._found.added += checked.repeated
            line = f"{plural(checked.repeated, 'decision')} too many among the rows of {block.words}"
            self._name(block, line, "added", decisions=checked.repeated)
        if checked.missing:
            self._judge_missing(block, rows, checked.missing)
        if not checked.missing and not checked.repeated and self._is_marked(checked):
            self._found.unnamed += block.decisions
            line = f"a name erased on request from the further charges of {block.words}: it cannot be proved"
            self._found.name((block.copy_id, block.epoch), line, "unnamed", decisions=block.decisions)
        elif not checked.missing and not checked.repeated:
            self._found.altered += 1
            why = f" ({checked.misread})" if checked.misread else self._why_in_conflict(block)
            line = f"altered: the rows of {block.words} do not give its hash{why}{self._what_differs(block, checked)}"
            self._name(block, line, "altered", first_seq=block.first_seq, last_seq=block.end - 1)

    def _is_marked(self, checked: Checked) -> bool:
        """Whether an erasure that is on record took a name out of the charges of a block."""
        subjects = {one.subject for one in checked.block.bases.also} if checked.block is not None else set()
        return any(one.startswith(MARK) for one in subjects) and not subjects.isdisjoint(self._reading.marks())

    def _judge_missing(self, block: BlockRow, rows: RecordedRows, missing: list[Numbers]) -> None:
        code = rows.numbers["code"][rows.between(block)]
        hull = Numbers(missing[0].first, missing[-1].end)
        excused = excuse(
            block,
            missing,
            refused_left=int(np.count_nonzero(code & 15)),
            erased=self._reading.erased(block.copy_id, block.epoch, hull),
            left=self._found.left(self._reading),
        )
        self._found.erased += excused.erased
        self._found.expired += excused.expired
        if excused.erased:
            line = (
                f"{plural(excused.erased, 'decision')} of {block.words} erased on request: the others cannot be proved"
            )
            self._found.name((block.copy_id, block.epoch), line, "erased", decisions=excused.erased)
        for part in excused.silent:
            self._found.rows_missing += part.count
            line = f"{plural(part.count, 'decision')} without a row: {part.words}, of {block.words}"
            line += self._whose(block, part)
            self._name(block, line, "missing_rows", first_seq=part.first, last_seq=part.end - 1)

    def _why_in_conflict(self, block: BlockRow) -> str:
        number = self._reading.conflicts(block)
        others = f" ({plural(number, 'decision')} of it contradict what an earlier block had said: table conflicts)"
        return others if number else ""

    def _what_differs(self, block: BlockRow, checked: Checked) -> str:
        if self._log is None or checked.block is None:
            return ""
        was = self._log(block)
        if was is None:
            return "; the log no longer holds the block"
        named = list(islice(differences(was, checked.block), _MOST_DIFFERENCES + 1))
        more = "; …" if len(named) > _MOST_DIFFERENCES else ""
        return "".join(f"; {one}" for one in named[:_MOST_DIFFERENCES]) + more

    def _whose(self, block: BlockRow, part: Numbers) -> str:
        """Whose decisions they were, where the log still says so."""
        was = self._log(block) if self._log is not None else None
        if was is None:
            return ""
        basis = was.basis[part.first - block.first_seq : part.end - block.first_seq]
        callers = sorted({was.bases.callers[at] for at in was.bases.caller[basis].tolist()})
        more = ", …" if len(callers) > _MOST_DIFFERENCES else ""
        return f", of {', '.join(callers[:_MOST_DIFFERENCES])}{more}"

    def _name(self, block: BlockRow, line: str, kind: str, **facts: object) -> None:
        where = {"log_partition": block.log_partition, "log_offset": block.log_offset}
        self._found.name((block.copy_id, block.epoch), line, kind, fault=True, **where, **facts)
