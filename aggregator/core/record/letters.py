"""Messages that could not be read, as rows of `dead_letters`. Reads no clock and talks to no database."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from aggregator.core.record.batches import Batch, cut
from aggregator.core.record.facts import rows_of

_TIME = pa.timestamp("us", "UTC")
_DEAD_LETTERS = pa.schema(
    {
        "topic": pa.string(),
        "log_partition": pa.uint16(),
        "log_offset": pa.uint64(),
        "seen_at": _TIME,
        "reason": pa.string(),
        "key": pa.binary(),
        "payload": pa.binary(),
        "log_id": pa.string(),
    }
)


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A message that could not be read, as it was."""

    topic: str
    log_partition: int
    log_offset: int
    seen_at_us: int
    reason: str
    key: bytes
    payload: bytes
    log_id: str = ""


def dead_letter_batches(letters: Iterable[DeadLetter]) -> list[Batch]:
    """One row of `dead_letters` for each unreadable message, in batches that can be inserted."""
    rows = [
        (one.topic, one.log_partition, one.log_offset, one.seen_at_us, one.reason, one.key, one.payload, one.log_id)
        for one in letters
    ]
    if not rows:
        return []
    whole = np.zeros(len(rows), np.int64)
    return [Batch("dead_letters", part) for part in cut(rows_of(_DEAD_LETTERS, rows), whole)]
