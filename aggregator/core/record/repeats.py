"""Which decisions of a block the record holds already, and which contradict it: the first in the log is the record.

An identity (copy_id, epoch, seq) names one decision. A block that comes again says nothing new; another block under the
same numbers is in conflict. Both are judged by positions in the log only, so a replay judges them alike. A topic that
was deleted and made anew is another log: its offsets begin again, and all that was recorded before stands before them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from aggregator.core.record.batches import PlacedBlock


@dataclass(frozen=True, slots=True)
class BlockSpan:
    """The numbers that one block of the log covers, in its copy's epoch."""

    first_seq: int
    count: int
    block_hash: bytes
    log_partition: int
    log_offset: int
    log_id: str = ""

    @property
    def end(self) -> int:
        """The first number after it."""
        return self.first_seq + self.count


def block_span_of(placed: PlacedBlock) -> BlockSpan:
    """What a block covers."""
    block = placed.block
    return BlockSpan(
        block.first_seq, block.count, block.block_hash, placed.log_partition, placed.log_offset, placed.log_id
    )


@dataclass(frozen=True, slots=True)
class Judged:
    """One block, divided: what is new, and what contradicts the record. In neither part: what was said before."""

    new: tuple[PlacedBlock, ...]
    conflicting: tuple[PlacedBlock, ...]


def judge(placed: PlacedBlock, known: Iterable[BlockSpan]) -> Judged:
    """Divide a block by what other blocks of its epoch cover.

    Args:
        placed: the block.
        known: spans of the same copy and epoch; those that stand later in the log are of no account.
    """
    mine = block_span_of(placed)
    before = [
        span for span in known if _precedes(span, mine) and span.first_seq < mine.end and mine.first_seq < span.end
    ]
    if not before:
        return Judged((placed,), ())
    if any(span.block_hash == mine.block_hash for span in before):
        return Judged((), ())
    covered = np.zeros(mine.count, dtype=np.bool_)
    for span in before:
        covered[max(span.first_seq - mine.first_seq, 0) : span.end - mine.first_seq] = True
    return Judged(_runs(placed, ~covered), _runs(placed, covered))


def _precedes(span: BlockSpan, mine: BlockSpan) -> bool:
    """Whether a span counts as earlier. A copy stays in one partition, unless their number was changed.

    What another log of the name said was recorded before this one began; rows without a log's id are from before ids
    were recorded, and are taken for this log's.
    """
    if span.log_partition != mine.log_partition or (span.log_id and mine.log_id and span.log_id != mine.log_id):
        return True
    return span.log_offset < mine.log_offset


def _runs(placed: PlacedBlock, chosen: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> tuple[PlacedBlock, ...]:
    """The runs of chosen decisions, each as a block of its own."""
    edges = np.flatnonzero(np.diff(np.concatenate(([False], chosen, [False])).astype(np.int8)))
    return tuple(slice_of(placed, int(start), int(end)) for start, end in zip(edges[::2], edges[1::2], strict=True))


def slice_of(placed: PlacedBlock, start: int, end: int) -> PlacedBlock:
    """The decisions ``start … end - 1`` of a block, counted from 0, with the numbers they have in it."""
    block = placed.block
    part = replace(
        block,
        first_seq=block.first_seq + start,
        count=end - start,
        basis=block.basis[start:end],
        at_us=block.at_us[start:end],
        code=block.code[start:end],
        cost=block.cost[start:end],
        remaining=block.remaining[start:end],
        retry_after_ms=block.retry_after_ms[start:end],
    )
    return replace(placed, block=part)


class SeenEnds:
    """How far each copy's epoch is recorded, so that a block that only goes on need not be looked up.

    Bounded: forgets everything when it holds too much, and what it does not know is looked up again.
    """

    def __init__(self, *, most: int = 100_000) -> None:
        self._most = most
        self._ends: dict[tuple[str, int], int] = {}

    def unknown(self, placed: Sequence[PlacedBlock]) -> set[tuple[str, int]]:
        """The epochs among these blocks of which nothing is known yet."""
        return {(one.block.copy_id, one.block.epoch) for one in placed} - self._ends.keys()

    def learn(self, copy_id: str, epoch: int, end: int) -> None:
        """The record of an epoch reaches up to (without) `end`; 0 if there is none."""
        if len(self._ends) >= self._most:
            self._ends.clear()
        self._ends[copy_id, epoch] = max(end, self._ends.get((copy_id, epoch), 0))

    def goes_on(self, placed: PlacedBlock) -> bool:
        """Whether the block is known to lie wholly after what was recorded; if so it is recorded from now on."""
        key, block = (placed.block.copy_id, placed.block.epoch), placed.block
        if key not in self._ends or block.first_seq < self._ends[key]:
            return False
        self._ends[key] = block.first_seq + block.count
        return True

    def forget(self) -> None:
        """Know nothing: the next blocks are looked up."""
        self._ends.clear()
