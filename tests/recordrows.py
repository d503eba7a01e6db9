"""Rows of the exact record as a test wants them, written through the product's own batches."""

from __future__ import annotations

import json
from collections.abc import Sequence

from aggregator.core.record.batches import Batch, PlacedBlock, decision_batches
from aggregator.core.record.blocks import block_batches
from aggregator.core.record.facts import PlacedControl, control_batches
from aggregator.store import Store
from stream.contract.block import DecisionBlock
from tests.recordblocks import MIDNIGHT_US


def insert(store: Store, *batches: Sequence[Batch]) -> None:
    """Write these batches, as the recorder does."""
    for some in batches:
        for batch in some:
            store.insert(batch.table, batch.rows)


def record_blocks(store: Store, blocks: Sequence[DecisionBlock], *, first_offset: int = 0) -> None:
    """Blocks and their decisions, as they stand in one partition of the log."""
    placed = [PlacedBlock(block, 0, first_offset + place) for place, block in enumerate(blocks)]
    insert(store, decision_batches(placed), block_batches(placed))


def record_control(
    store: Store, kind: str, *, copy_id: str = "gw-1", epoch: int = 7, at_us: int = MIDNIGHT_US, **fields: object
) -> None:
    """One control event, its body as the copy wrote it."""
    body = json.dumps({"kind": kind, "copy_id": copy_id, "epoch": epoch, "at_us": at_us, "version": 1, **fields})
    insert(store, control_batches([PlacedControl(kind, copy_id, epoch, at_us, body, 0, 0)]))


def erased_seqs(store: Store, copy_id: str, epoch: int) -> list[int]:
    """The numbers of a copy's epoch that were erased on request, in order, as the record says it."""
    rows = store.rows(
        "SELECT firsts, counts FROM erased_blocks FINAL WHERE copy_id = {copy_id:String} AND epoch = {epoch:UInt64}",
        {"copy_id": copy_id, "epoch": epoch},
    )
    ranges = [one for firsts, counts in rows for one in zip(firsts, counts, strict=True)]
    return sorted({seq for first, count in ranges for seq in range(int(first), int(first) + int(count))})
