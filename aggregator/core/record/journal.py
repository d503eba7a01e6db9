"""The journal of flushes, table `recorded`: how far each log is stored, and which minutes that changed.

A row is written after everything that it claims is stored, so it may lag and never lies. What is read again is
journalled again, in whatever pieces it is read: every row is true by itself. Reads no clock and does no I/O.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from aggregator.core.record.batches import STORED_AT, Batch, PlacedBlock
from stream.contract.topics import DECISIONS

_MINUTE_US = 60_000_000


@dataclass(frozen=True, slots=True)
class Stretch:
    """What a flush holds of one partition: all of its messages from `first_offset` up to (without) `next_offset`."""

    log_id: str
    topic: str
    log_partition: int
    first_offset: int
    next_offset: int


def journal_batch(stretches: Sequence[Stretch], new: Sequence[PlacedBlock]) -> list[Batch]:
    """One row of `recorded` for each stretch, all in one batch: together they are one INSERT, the last of a flush.

    Args:
        stretches: what the flush holds.
        new: the blocks of which `decisions` was given rows.
    """
    if not stretches:
        return []
    by_partition: dict[int, list[PlacedBlock]] = {}
    for placed in new:
        by_partition.setdefault(placed.log_partition, []).append(placed)
    shown = [by_partition.get(one.log_partition, []) if one.topic == DECISIONS.name else [] for one in stretches]
    rows = {
        "log_id": pa.array([one.log_id for one in stretches], pa.string()),
        "topic": pa.array([one.topic for one in stretches], pa.string()),
        "log_partition": pa.array([one.log_partition for one in stretches], pa.uint16()),
        "first_offset": pa.array([one.first_offset for one in stretches], pa.uint64()),
        "next_offset": pa.array([one.next_offset for one in stretches], pa.uint64()),
        "decisions": pa.array([sum(placed.block.count for placed in blocks) for blocks in shown], pa.uint64()),
        "minutes": pa.array([minutes_of(blocks) for blocks in shown], pa.list_(pa.uint32())),
        STORED_AT: pa.nulls(len(stretches), pa.timestamp("us", "UTC")),
    }
    return [Batch("recorded", pa.table(rows))]


def minutes_of(blocks: Sequence[PlacedBlock]) -> list[int]:
    """The unix minutes (unix seconds / 60) of all decisions of these blocks, each once, ascending."""
    found: set[int] = set()
    for placed in blocks:
        at_us = placed.block.at_us
        first, last = int(at_us.min()) // _MINUTE_US, int(at_us.max()) // _MINUTE_US
        # Nearly every block lies within one minute, or in two that follow each other.
        found.update((first, last) if last - first < 2 else np.unique(at_us // _MINUTE_US).tolist())
    return sorted(found)


def begin_at(committed: int, stored_until: int) -> int:
    """The offset at which a partition is read on; 0 is its beginning, whatever number that has.

    Args:
        committed: what the group says is recorded, negative if it says nothing.
        stored_until: what the journal says of the log as it is now, 0 if it has nothing of it.

    An acknowledgement always follows the journal. One that is ahead of it is of another log that had the name, or of
    another database: then nothing of it is believed.
    """
    return committed if 0 <= committed <= stored_until else 0


def stored_ends(rows: Sequence[tuple[str, int, str, int]], log_ids: Mapping[str, str]) -> dict[tuple[str, int], int]:
    """(topic, partition) → how far the log of today is stored.

    Args:
        rows: topic, partition, log id, highest next_offset. The empty id is that of a record that was begun before
            there was a journal: it is taken for the log of today until the journal has named one.
        log_ids: topic → the id of the log of today.
    """
    named = {(topic, partition) for topic, partition, log_id, _ in rows if log_id}
    return {
        (topic, partition): next_offset
        for topic, partition, log_id, next_offset in rows
        if log_id == (log_ids.get(topic) if (topic, partition) in named else "")
    }
