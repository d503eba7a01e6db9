"""What the recorder has read and not yet written: decoded messages, and up to where they reach in each partition.

A message that cannot be read becomes a dead letter here, and the rest goes on. Reads no clock and does no I/O.
"""

from __future__ import annotations

from collections.abc import Sequence

from aggregator.core.acceptance import accept_block
from aggregator.core.fact_batches import (
    DeadLetter,
    PlacedControl,
    PlacedFacts,
    conflict_batches,
    control_batches,
    cost_batches,
    dead_letter_batches,
    grant_batches,
    settlement_batches,
    why_control_unrecordable,
    why_facts_unrecordable,
)
from aggregator.core.record_batches import Batch, PlacedBlock, block_batches, decision_batches
from stream.contract.codec import CorruptBlock
from stream.contract.control import decode_control
from stream.contract.facts import decode_facts
from stream.contract.topics import CONTROL, DECISIONS, GRANTS

#: What a message occupies while it is held, as measured and rounded up. A decoded block of 500 decisions takes ten
#: times its bytes, grants and settlements seven to nine times, a block without content 2,300 bytes. Decisions that
#: repeat each other take more than that (35 bytes each), and are bounded by their number.
_ENVELOPE_BYTES = 2_300
_DECODED_FACTOR = 10
#: An unreadable message stays as it is, and becomes a row, a column and a request in turn.
_UNREAD_ENVELOPE_BYTES = 500
_UNREAD_FACTOR = 4


class Pending:
    """Messages of one flush.

    Attributes:
        blocks: decision blocks, in the order in which they were read.
        dead_letters: messages that could not be read.
        next_offsets: (topic, partition) → the offset after the last message taken: what may be committed once all
            of this is stored.
        decisions: how many decisions are held.
        held_bytes: about how much memory everything that is held occupies, rows to be written included.
    """

    def __init__(self) -> None:
        self.blocks: list[PlacedBlock] = []
        self.dead_letters: list[DeadLetter] = []
        self.next_offsets: dict[tuple[str, int], int] = {}
        self.decisions = 0
        self.held_bytes = 0
        self._facts: list[PlacedFacts] = []
        self._controls: list[PlacedControl] = []

    @property
    def empty(self) -> bool:
        """Whether nothing was taken."""
        return not self.next_offsets

    def take(self, topic: str, partition: int, offset: int, *, key: bytes, value: bytes, seen_at_us: int) -> str | None:
        """Take the next message of a partition; returns why it could not be read, or None."""
        reason = self._taken(topic, partition, offset, value)
        if reason is None:
            self.held_bytes += _ENVELOPE_BYTES + _DECODED_FACTOR * len(value)
        else:
            self.dead_letters.append(DeadLetter(topic, partition, offset, seen_at_us, reason, key, value))
            self.held_bytes += _UNREAD_ENVELOPE_BYTES + _UNREAD_FACTOR * (len(key) + len(value))
        self.next_offsets[topic, partition] = offset + 1
        return reason

    def batches(self, new: Sequence[PlacedBlock], conflicting: Sequence[PlacedBlock]) -> list[Batch]:
        """All rows to insert, in an order in which `blocks` never claims a decision that is not stored.

        Args:
            new: what of `blocks` the record does not hold yet.
            conflicting: what of `blocks` contradicts it.
        """
        return [
            *decision_batches(new),
            *conflict_batches(conflicting),
            *grant_batches(self._facts),
            *settlement_batches(self._facts),
            *cost_batches(self._facts),
            *control_batches(self._controls),
            *dead_letter_batches(self.dead_letters),
            *block_batches(self.blocks),
        ]

    def _taken(self, topic: str, partition: int, offset: int, value: bytes) -> str | None:
        try:
            if topic == DECISIONS.name:
                self._take_block(PlacedBlock(accept_block(value), partition, offset))
                return None
            if topic == GRANTS.name:
                return self._take_facts(PlacedFacts(decode_facts(value), partition, offset))
            if topic == CONTROL.name:
                return self._take_control(value, partition, offset)
        except CorruptBlock as fault:
            return str(fault)
        raise ValueError(f"topic is {topic!r}; allowed: {DECISIONS.name}, {GRANTS.name}, {CONTROL.name}")

    def _take_block(self, placed: PlacedBlock) -> None:
        self.blocks.append(placed)
        self.decisions += placed.block.count

    def _take_facts(self, placed: PlacedFacts) -> str | None:
        reason = why_facts_unrecordable(placed.facts)
        if reason is None:
            self._facts.append(placed)
        return reason

    def _take_control(self, value: bytes, partition: int, offset: int) -> str | None:
        event = decode_control(value)
        placed = PlacedControl(event.kind, event.copy_id, event.epoch, event.at_us, value.decode(), partition, offset)
        reason = why_control_unrecordable(placed)
        if reason is None:
            self._controls.append(placed)
        return reason
