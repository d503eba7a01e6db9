"""What ``tallygate audit verify`` reads of the record, page by page. Judges nothing, and writes nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import pyarrow as pa

from aggregator.audit.gaps import losses_of
from aggregator.core.proof.chain import Anchored, BlockRow
from aggregator.core.proof.excuses import StillKept
from aggregator.core.proof.holes import Numbers
from aggregator.core.proof.rebuilding import Figures, RecordedRows, TermsKey, keys_of
from aggregator.core.record.erased import mark_of
from aggregator.erasure.known import stated
from aggregator.retention.kept import kept
from aggregator.sql import load_queries
from aggregator.store import ColumnStore
from aggregator.words import Span
from stream.contract.block import BlockPlan
from stream.contract.topics import CONTROL

#: An anchor that was stored since may have overtaken its blocks, and decisions may have come before theirs.
ON_THE_WAY_US = 600_000_000
#: Rows of one page.
LIVES, BLOCKS = 500, 5_000
#: Callers whose terms are asked for at a time: they stand in the address of the request.
_CALLERS = 1_000


class ChainLife(NamedTuple):
    """One epoch of one copy, and the numbers that a span touches of it."""

    copy_id: str
    epoch: int
    from_seq: int
    to_seq: int

    @property
    def name(self) -> str:
        """As a finding begins."""
        return f"copy {self.copy_id}, epoch {self.epoch}"


class Reading:
    """Asks one database."""

    def __init__(self, store: ColumnStore) -> None:
        self._store = store
        self._queries = load_queries("aggregator.sql", "audit_verify.sql")
        ((self.now_us,),) = self._rows("present")
        self._lately: Sequence[tuple[Any, ...]] | None = None

    def lives(self, span: Span, copy_id: str) -> Iterator[ChainLife]:
        """Every life that a span touches, of one copy or (empty) of all."""
        after: tuple[str, int] = ("", 0)
        while True:
            bound = {"copy_id": copy_id, "after_copy": after[0], "after_epoch": after[1], "lives": LIVES}
            rows = [ChainLife(*row) for row in self._rows("lives_to_verify", **span.parameters, **bound)]
            yield from rows
            if len(rows) < LIVES:
                return
            after = rows[-1][:2]

    def blocks(self, life: ChainLife) -> Iterator[list[BlockRow]]:
        """The blocks of a life, a page at a time, in order of their numbers; one that stands twice comes twice."""
        after: tuple[object, ...] = (0, 0, -1, "", 0, 0, "")
        names = ("seq", "decisions", "sealed_us", "hash", "partition", "offset", "log")
        while True:
            place = {f"after_{name}": value for name, value in zip(names, after, strict=True)}
            rows = [_block(row) for row in self._rows("blocks_of", **life._asdict(), **place, blocks=BLOCKS)]
            yield rows
            if len(rows) < BLOCKS:
                return
            last = rows[-1]
            key = (last.first_seq, last.decisions, last.sealed_at_us, last.block_hash.hex().upper())
            after = (*key, last.log_partition, last.log_offset, last.log_id)

    def end_of_hash(self, life: ChainLife, block_hash: bytes) -> int | None:
        """Where the block of this hash ends; None if the life has none."""
        whose = {"copy_id": life.copy_id, "epoch": life.epoch}
        rows = self._rows("block_of_hash", **whose, hash=block_hash.hex())
        return int(rows[0][0]) if rows else None

    def anchors(self, life: ChainLife, span: Span) -> list[Anchored]:
        """What the life said of the end of its chain, in order of its numbers."""
        rows = self._rows("anchors_of", copy_id=life.copy_id, epoch=life.epoch, **span.parameters)
        return [Anchored(at_us, next_seq, bytes.fromhex(head), *place) for at_us, next_seq, head, *place in rows]

    def came_lately(self, anchor: Anchored) -> bool:
        """Whether the recorder stored it within the last minutes, whatever time its copy gave it."""
        if self._lately is None:
            since_us = self.now_us - ON_THE_WAY_US
            self._lately = self._rows("control_stored", topic=CONTROL.name, since_us=since_us)
        return any(
            partition == anchor.log_partition and first <= anchor.log_offset < end
            for partition, first, end in self._lately
        )

    def losses(self, life: ChainLife) -> list[Numbers]:
        """The numbers that the copy says it lost."""
        return losses_of(self._store, [life[:2]]).get(life[:2], [])

    def erased(self, copy_id: str, epoch: int, hull: Numbers) -> list[Numbers]:
        """The numbers that were erased on request."""
        bound = {"copy_id": copy_id, "epoch": epoch, "from_seq": hull.first, "to_seq": hull.end}
        return [Numbers(first, end) for first, end in self._rows("erased_of", **bound)]

    def marks(self) -> frozenset[str]:
        """What erasures have put in place of the names that they took out of decisions of others."""
        return frozenset(mark_of(one.erasure.erasure_id) for one in stated(self._store))

    def conflicts(self, block: BlockRow) -> int:
        """How many decisions of a block contradict what the record held before it."""
        whose = {"copy_id": block.copy_id, "epoch": block.epoch, "from_seq": block.first_seq, "to_seq": block.end}
        place = {"log_partition": block.log_partition, "log_offset": block.log_offset}
        return int(self._rows("conflicts_of", **whose, **place)[0][0])

    def left(self) -> StillKept:
        """Since when what is kept."""
        raw = kept(self._store)
        ((blocks_from_us,),) = self._rows("blocks_kept_from")
        return StillKept(raw.admitted_from_us, raw.refused_from_us, max(blocks_from_us, 0), raw.dropped)

    def decisions(self, blocks: Sequence[BlockRow]) -> pa.Table:
        """All rows that have numbers of these blocks, in order of copy, epoch and seq."""
        hulls: dict[tuple[str, int], Numbers] = {}
        for block in blocks:
            key = (block.copy_id, block.epoch)
            hull = hulls.get(key, Numbers(block.first_seq, block.end))
            hulls[key] = Numbers(min(hull.first, block.first_seq), max(hull.end, block.end))
        return self._store.arrow(
            self._queries["decisions_of"].sql,
            {
                "first_us": min(block.first_at_us for block in blocks),
                "last_us": max(block.last_at_us for block in blocks),
                "lives": list(hulls),
                "from_seqs": [hull.first for hull in hulls.values()],
                "to_seqs": [hull.end for hull in hulls.values()],
            },
        )

    def figures(self, rows: RecordedRows) -> Figures:
        """What the terms came to that these rows name."""
        keys = keys_of(rows)
        named = sorted({key[1:] for key in keys})
        found = self._rows("figures_of", keys=named) if named else []
        shared = {
            (limit, version, plan): _plan(plan, *some[0]) for limit, version, plan, some in found if len(some) == 1
        }
        unknown = sorted(key for key in keys if key[1:] not in shared)
        own: dict[TermsKey, list[BlockPlan]] = {}
        for start in range(0, len(unknown), _CALLERS):
            part = unknown[start : start + _CALLERS]
            bound = {"keys": sorted({key[1:] for key in part}), "callers": sorted({key.caller for key in part})}
            for caller, limit, version, plan, *figures in self._rows("figures_of_callers", **bound):
                own.setdefault(TermsKey(caller, limit, version, plan), []).append(_plan(plan, *figures))
        return Figures(shared, own)

    def rows_of_no_block(self, span: Span, copy_id: str) -> Sequence[tuple[str, int, int, int, int]]:
        """Copy, epoch, count, least and largest number of the decisions that no block covers."""
        found = self._rows("rows_of_no_block", **span.parameters, copy_id=copy_id, lives=LIVES)
        return [(copy, epoch, count, first, last) for copy, epoch, count, first, last in found]

    def _rows(self, name: str, **bound: object) -> Sequence[tuple[Any, ...]]:
        return self._store.rows(self._queries[name].sql, bound)


def _block(row: tuple[Any, ...]) -> BlockRow:
    return BlockRow._make((*row[:5], bytes.fromhex(row[5]), bytes.fromhex(row[6]), *row[7:]))


def _plan(name: str, rate_per_s: float, burst: int, per: str) -> BlockPlan:
    return BlockPlan(name, float(rate_per_s), int(burst), per)
