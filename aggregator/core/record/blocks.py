"""One row of `blocks` for each block of the log: what it covers, when, under which hash, and what its copy had counted.

The times in it are the ones that count; `shift_us` gives the copy's own back. Reads no clock and talks to no database.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from aggregator.core.record.batches import STORED_AT, Batch, PlacedBlock, cut, months, times
from stream.contract.block import DecisionBlock

_HASH_BYTES = 16
_REASON_BITS = 15


class Position(NamedTuple):
    """Where a block stands, among all logs that ever had the topic's name."""

    log_id: str
    log_partition: int
    log_offset: int


def position_of(placed: PlacedBlock) -> Position:
    """Where this one stands."""
    return Position(placed.log_id, placed.log_partition, placed.log_offset)


def block_batches(placed: Sequence[PlacedBlock], stored_us: Mapping[Position, int] | None = None) -> list[Batch]:
    """One row of `blocks` for each block, empty ones too, one batch a month.

    Args:
        placed: the blocks.
        stored_us: when those were stored that the record holds already, unix microseconds: read again after a crash,
            they keep their time. All others get theirs from whoever stores them.
    """
    if not placed:
        return []
    known = stored_us or {}
    rows = pa.table(
        {
            **_place_columns(placed),
            **_said_columns([one.block for one in placed]),
            **_counted_columns([one.block for one in placed]),
            STORED_AT: pa.array([known.get(position_of(one)) for one in placed], pa.timestamp("us", "UTC")),
        }
    )
    sealed_at_us = np.array([one.block.sealed_at_us for one in placed], dtype=np.int64)
    return [Batch("blocks", part) for part in cut(rows, months(sealed_at_us))]


def _place_columns(placed: Sequence[PlacedBlock]) -> dict[str, Any]:
    return {
        "log_id": pa.array([one.log_id for one in placed], pa.string()),
        "log_partition": pa.array([one.log_partition for one in placed], pa.uint16()),
        "log_offset": pa.array([one.log_offset for one in placed], pa.uint64()),
        "shift_us": pa.array([one.shift_us for one in placed], pa.int64()),
    }


def _said_columns(blocks: Sequence[DecisionBlock]) -> dict[str, Any]:
    """What stands in the blocks' headers."""
    return {
        "copy_id": pa.array([block.copy_id for block in blocks], pa.string()),
        "epoch": pa.array([block.epoch for block in blocks], pa.uint64()),
        "first_seq": pa.array([block.first_seq for block in blocks], pa.uint64()),
        "decisions": pa.array([block.count for block in blocks], pa.uint32()),
        "sealed_at": times(np.array([block.sealed_at_us for block in blocks], dtype=np.int64)),
        "prev_hash": pa.array([block.prev_hash for block in blocks], pa.binary(_HASH_BYTES)),
        "block_hash": pa.array([block.block_hash for block in blocks], pa.binary(_HASH_BYTES)),
        "layout_version": pa.array([block.version for block in blocks], pa.uint16()),
        "clock_offset_ns": pa.array([block.clock_offset_ns for block in blocks], pa.int64()),
        "owner_offset_us": pa.array([block.owner_offset_us for block in blocks], pa.int64()),
        "admitted_total": _totals([block.admitted_total for block in blocks]),
        "refused_total": _totals([block.refused_total for block in blocks]),
        "cost_total": _totals([block.cost_total for block in blocks]),
    }


def _counted_columns(blocks: Sequence[DecisionBlock]) -> dict[str, Any]:
    """What the decisions of each block come to."""
    full = [block for block in blocks if block.count]
    first = iter([int(block.at_us.min()) for block in full])
    last = iter([int(block.at_us.max()) for block in full])
    admitted = [(block.code & _REASON_BITS) == 0 for block in full]
    refused = iter([block.count - int(np.count_nonzero(one)) for block, one in zip(full, admitted, strict=True)])
    cost = iter([int(block.cost[one].sum(dtype=np.uint64)) for block, one in zip(full, admitted, strict=True)])
    return {
        "first_at": times(np.array([next(first) if b.count else b.sealed_at_us for b in blocks], dtype=np.int64)),
        "last_at": times(np.array([next(last) if b.count else b.sealed_at_us for b in blocks], dtype=np.int64)),
        "refused": pa.array([next(refused) if block.count else 0 for block in blocks], pa.uint32()),
        "cost_admitted": pa.array([next(cost) if block.count else 0 for block in blocks], pa.uint64()),
    }


def _totals(values: Sequence[int | None]) -> pa.Array:
    """Running totals; 0 where the layout had none."""
    return pa.array([value or 0 for value in values], pa.uint64())
