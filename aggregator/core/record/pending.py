"""What the recorder has read and not yet written: decoded messages, and up to where they reach in each partition.

A message that cannot be read becomes a dead letter here, and the rest goes on. Reads no clock and does no I/O.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import UnsetType

from aggregator.core.record.acceptance import accept_block, shift_of
from aggregator.core.record.batches import Batch, Gathered, PlacedBlock
from aggregator.core.record.blocks import Position, block_batches
from aggregator.core.record.erased import Erased, callers_in
from aggregator.core.record.facts import (
    PlacedControl,
    PlacedFacts,
    conflict_batches,
    control_batches,
    cost_batches,
    facts_in_time,
    grant_batches,
    settlement_batches,
    why_control_unrecordable,
    why_facts_unrecordable,
)
from aggregator.core.record.journal import Stretch, journal_batch
from aggregator.core.record.letters import DeadLetter, dead_letter_batches
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

    Args:
        log_ids: topic → the id of the log that is read under its name.

    Attributes:
        blocks: decision blocks, in the order in which they were read.
        dead_letters: messages that could not be read.
        first_offsets: (topic, partition) → the offset of the first message taken.
        next_offsets: (topic, partition) → the offset after the last message taken: what may be committed once all
            of this is stored.
        decisions: how many decisions are held.
        held_bytes: about how much memory everything that is held occupies, rows to be written included.
    """

    def __init__(self, log_ids: Mapping[str, str] | None = None) -> None:
        self.log_ids = dict(log_ids or {})
        #: Set by whoever has stored it: the topic that was found to be another log by then, else empty.
        self.replaced = ""
        self.first_offsets: dict[tuple[str, int], int] = {}
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

    def take(
        self,
        topic: str,
        partition: int,
        offset: int,
        *,
        key: bytes,
        value: bytes,
        seen_at_us: int,
        appended_us: int | None = None,
    ) -> str | None:
        """Take the next message of a partition; returns why it could not be read, or None.

        `seen_at_us` is now, `appended_us` when the broker appended it by its own clock (None if it does not say), both
        unix microseconds.
        """
        reason = self._taken(topic, partition, offset, value, appended_us)
        if reason is None:
            self.held_bytes += _ENVELOPE_BYTES + _DECODED_FACTOR * len(value)
        else:
            self.dead_letters.append(
                DeadLetter(topic, partition, offset, seen_at_us, reason, key, value, self._log_id(topic))
            )
            self.held_bytes += _UNREAD_ENVELOPE_BYTES + _UNREAD_FACTOR * (len(key) + len(value))
        self.first_offsets.setdefault((topic, partition), offset)
        self.next_offsets[topic, partition] = offset + 1
        return reason

    @property
    def stretches(self) -> list[Stretch]:
        """What it holds of each partition."""
        return [
            Stretch(self._log_id(topic), topic, partition, self.first_offsets[topic, partition], next_offset)
            for (topic, partition), next_offset in self.next_offsets.items()
        ]

    def batches(
        self,
        new: Gathered,
        conflicting: Sequence[PlacedBlock],
        stored_us: Mapping[Position, int] | None = None,
    ) -> list[Batch]:
        """All rows to insert, but for `terms`, in an order in which none claims what is not stored.

        `blocks` comes after the decisions, the journal after everything.

        Args:
            new: what of `blocks` the record does not hold yet.
            conflicting: what of `blocks` contradicts it.
            stored_us: when those of `blocks` were stored that are read again.
        """
        return [
            *new.decision_batches(),
            *conflict_batches(conflicting),
            *grant_batches(self._facts),
            *settlement_batches(self._facts),
            *cost_batches(self._facts),
            *control_batches(self._controls),
            *dead_letter_batches(self.dead_letters),
            *block_batches(self.blocks, stored_us),
            *journal_batch(self.stretches, new.placed),
        ]

    @property
    def callers(self) -> set[str]:
        """Whose decisions, grants, settlements, costs and events it holds, and whose buckets paid."""
        names = {name for one in self.blocks for name in one.block.bases.callers}
        names.update(other.subject for one in self.blocks for other in one.block.bases.also)
        return names | self.callers_beside

    @property
    def callers_beside(self) -> set[str]:
        """The same without decisions."""
        names = {name for one in self._controls for name in callers_in(one.body)}
        for placed in self._facts:
            facts = placed.facts
            names.update(it.caller for kind in (facts.grants, facts.settlements, facts.costs) for it in kind)
        return names

    def leave_out(self, erased: Erased) -> None:
        """Forget the grants, settlements, costs and control events of callers that were erased."""
        self._facts = erased.sift_facts(self._facts)
        self._controls = erased.sift_controls(self._controls)

    def _log_id(self, topic: str) -> str:
        return self.log_ids.get(topic, "")

    def _taken(self, topic: str, partition: int, offset: int, value: bytes, appended_us: int | None) -> str | None:
        try:
            if topic == DECISIONS.name:
                accepted = accept_block(value, appended_us=appended_us)
                placed = PlacedBlock(accepted.block, partition, offset, self._log_id(topic), accepted.shift_us)
                self._take_block(placed)
                return None
            if topic == GRANTS.name:
                facts = facts_in_time(decode_facts(value), appended_us)
                return self._take_facts(PlacedFacts(facts, partition, offset, appended_us))
            if topic == CONTROL.name:
                return self._take_control(value, partition, offset, appended_us)
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

    def _take_control(self, value: bytes, partition: int, offset: int, appended_us: int | None) -> str | None:
        event = decode_control(value)
        # By the rule of blocks: what a copy says of its chain stands beside its blocks, however wrong its clock is.
        offset_us = None if isinstance(event.owner_offset_us, UnsetType) else event.owner_offset_us
        at_us = event.at_us + shift_of(event.at_us, offset_us, appended_us)
        placed = PlacedControl(
            event.kind, event.copy_id, event.epoch, at_us, value.decode(), partition, offset, appended_us
        )
        reason = why_control_unrecordable(placed)
        if reason is None:
            self._controls.append(placed)
        return reason
