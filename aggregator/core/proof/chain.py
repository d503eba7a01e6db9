"""The chain of one epoch's blocks, walked: each carries the hash of the one before it, so what is missing shows.

Looks at what blocks say, never at their decisions. Pure: reads no clock and talks to no database.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from aggregator.core.proof.holes import Numbers
from stream.contract.layout import NO_HASH


class BlockRow(NamedTuple):
    """One row of `blocks`: what the header of a block said, at the times that count, and where it stands in the log."""

    copy_id: str
    epoch: int
    first_seq: int
    decisions: int
    sealed_at_us: int
    prev_hash: bytes
    block_hash: bytes
    first_at_us: int
    last_at_us: int
    shift_us: int
    clock_offset_ns: int
    owner_offset_us: int | None
    layout_version: int
    admitted_total: int
    refused_total: int
    cost_total: int
    refused: int
    cost_admitted: int
    log_id: str
    log_partition: int
    log_offset: int

    @property
    def end(self) -> int:
        """One past its last decision."""
        return self.first_seq + self.decisions

    @property
    def words(self) -> str:
        """As a finding names it."""
        what = Numbers(self.first_seq, self.end).words if self.decisions else f"none, before {self.first_seq}"
        return f"the block of decisions {what} (partition {self.log_partition}, offset {self.log_offset})"


class Anchored(NamedTuple):
    """What an anchor says: the block of this hash was sealed, and ends before `next_seq`; it was told at `at_us`.

    Its message stands at this place of the log of control events.
    """

    at_us: int
    next_seq: int
    head: bytes
    log_partition: int
    log_offset: int


@dataclass(frozen=True, slots=True)
class Break:
    """Two blocks that do not follow each other; `after` is None where nothing stands before `before`.

    `missing` are the numbers between them; none of them may be missing, and the hash wrong all the same.
    """

    after: BlockRow | None
    before: BlockRow
    missing: Numbers | None
    hash_fits: bool


class ChainWalk:
    """Walks the blocks of one epoch in order of their numbers, whatever the order among those of one number.

    Attributes:
        last: the block that was reached.
        blocks: how many were, each once.
    """

    def __init__(self) -> None:
        self.last: BlockRow | None = None
        self.blocks = 0
        self._waiting: dict[bytes, list[BlockRow]] = {}
        self._first_seq = -1
        self._known: set[bytes] = set()

    def take(self, rows: Iterable[BlockRow]) -> Iterator[BlockRow | Break]:
        """Walk on; rows come by `first_seq`, rising. Gives each block once, and each break before its later block."""
        for row in rows:
            if row.first_seq != self._first_seq:
                yield from self._give_up_waiting()
                self._first_seq = row.first_seq
                self._known = {self.last.block_hash} if self.last is not None else set()
            if row.block_hash in self._known:
                # The same block again: producers repeat themselves.
                continue
            self._known.add(row.block_hash)
            if self.last is not None and row.prev_hash == self.last.block_hash:
                yield from self._go_to(row)
            else:
                self._waiting.setdefault(row.prev_hash, []).append(row)

    def end(self) -> Iterator[BlockRow | Break]:
        """There are no more."""
        yield from self._give_up_waiting()

    def _go_to(self, row: BlockRow) -> Iterator[BlockRow | Break]:
        following: BlockRow | None = row
        while following is not None:
            broken = _break(self.last, following)
            if broken is not None:
                yield broken
            self.last = following
            self.blocks += 1
            yield following
            others = self._waiting.get(following.block_hash)
            following = others.pop(0) if others else None
            if others is not None and not others:
                del self._waiting[self.last.block_hash]

    def _give_up_waiting(self) -> Iterator[BlockRow | Break]:
        while self._waiting:
            # Of those that wait, begin with one that follows none of the others.
            hashes = {row.block_hash for rows in self._waiting.values() for row in rows}
            start = next((prev for prev in self._waiting if prev not in hashes), next(iter(self._waiting)))
            row = self._waiting[start].pop(0)
            if not self._waiting[start]:
                del self._waiting[start]
            yield from self._go_to(row)


def _break(after: BlockRow | None, before: BlockRow) -> Break | None:
    if after is None:
        # Whether anything stood before it only the whole epoch can say.
        return None
    hash_fits = before.prev_hash == after.block_hash
    missing = Numbers(after.end, before.first_seq) if before.first_seq > after.end else None
    if hash_fits and before.first_seq == after.end:
        return None
    return Break(after, before, missing, hash_fits)


def begins_epoch(row: BlockRow) -> bool:
    """Whether a block says that it is the first of its epoch."""
    return row.prev_hash == NO_HASH
