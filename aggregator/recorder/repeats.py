"""Asks the record what it knows of an epoch, where a block does not simply go on from the one before.

Never writes anything; the judgement itself is in `core/record/repeats.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from aggregator.core.record.batches import PlacedBlock
from aggregator.core.record.blocks import Position, position_of
from aggregator.core.record.repeats import BlockSpan, SeenEnds, block_span_of, judge
from aggregator.sql import load_queries
from aggregator.store import Store

_QUERIES = load_queries("aggregator.sql", "record.sql")
_EPOCH_END = _QUERIES["epoch_end"].sql
_EPOCH_SPANS = _QUERIES["epoch_spans"].sql


@dataclass(frozen=True, slots=True)
class Sorted:
    """Blocks of one flush, divided: what goes into `decisions`, and what into `conflicts`.

    Attributes:
        stored_us: when those were stored first that are read again, unix microseconds.
    """

    new: list[PlacedBlock]
    conflicting: list[PlacedBlock]
    stored_us: dict[Position, int] = field(default_factory=dict)


class Repeats:
    """Finds repetitions and contradictions. Used by one thread."""

    def __init__(self) -> None:
        self._ends = SeenEnds()

    def sort_out(self, store: Store, placed: Sequence[PlacedBlock]) -> Sorted:
        """Divide the blocks of one flush, in the order in which they were read.

        Raises:
            StoreUnavailable: the record did not answer; ask again.
        """
        full = [one for one in placed if one.block.count]
        for copy_id, epoch in sorted(self._ends.unknown(full)):
            found = store.rows(_EPOCH_END, {"copy_id": copy_id, "epoch": epoch})
            self._ends.learn(copy_id, epoch, int(found[0][0]))
        outcome = Sorted([], [])
        for number, one in enumerate(full):
            if self._ends.goes_on(one):
                outcome.new.append(one)
                continue
            judged = judge(one, self._known(store, one, full[:number], outcome.stored_us))
            outcome.new.extend(judged.new)
            outcome.conflicting.extend(judged.conflicting)
            self._ends.learn(one.block.copy_id, one.block.epoch, one.block.first_seq + one.block.count)
        return outcome

    def forget(self) -> None:
        """What was remembered may not be so: a flush was not written, or others have written since."""
        self._ends.forget()

    def _known(
        self, store: Store, one: PlacedBlock, earlier: Sequence[PlacedBlock], stored_us: dict[Position, int]
    ) -> list[BlockSpan]:
        """The spans of its epoch, as recorded and as read before it in the same flush; notes when it was stored."""
        block = one.block
        rows = store.rows(
            _EPOCH_SPANS,
            {
                "copy_id": block.copy_id,
                "epoch": block.epoch,
                "low": block.first_seq,
                "high": block.first_seq + block.count,
            },
        )
        recorded = []
        for first_seq, count, block_hash, partition, offset, log_id, at_us in rows:
            recorded.append(
                BlockSpan(int(first_seq), int(count), bytes(block_hash), int(partition), int(offset), log_id)
            )
            if Position(log_id, int(partition), int(offset)) == position_of(one):
                stored_us[position_of(one)] = int(at_us)
        same = (other for other in earlier if (other.block.copy_id, other.block.epoch) == (block.copy_id, block.epoch))
        return recorded + [block_span_of(other) for other in same]
