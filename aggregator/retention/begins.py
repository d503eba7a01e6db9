"""Since when this database holds blocks: what is older is not missing; it was never here, or is kept no longer.

Reads the journal and what was in force when, never a decision.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from aggregator.retention.kept import kept
from aggregator.sql import load_queries
from aggregator.store import Store
from stream.contract.topics import DECISIONS

_QUERIES = load_queries("aggregator.sql", "retention.sql")
#: An epoch is the unix milliseconds of its start, and so many bits behind them that keep processes apart.
_EPOCH_BITS = 20


@dataclass(frozen=True, slots=True)
class Begins:
    """Where the record begins, in unix microseconds.

    Attributes:
        first_us: when the first block on record was sealed; 0 if there is none.
        kept_us: blocks that were sealed before may be gone for their age; 0 if none is.
        cut: logs, each a partition and an id, that were not read from their beginning.
    """

    first_us: int = 0
    kept_us: int = 0
    cut: Collection[tuple[int, str]] = ()

    @property
    def parameters(self) -> Mapping[str, Any]:
        """As the queries bind it that know the block at which a life begins on record."""
        return {"begins_us": self.first_us, "blocks_kept_us": self.kept_us, "cut_logs": list(self.cut)}

    def is_before(self, epoch: int) -> bool:
        """Whether a life of which no block is on record may have had some before: by its own clock, uncorrected."""
        started_us = (epoch >> _EPOCH_BITS) * 1_000
        return started_us < self.first_us and (bool(self.cut) or started_us < self.kept_us)


def begins(store: Store) -> Begins:
    """Where the record of this database begins.

    Raises:
        StoreUnavailable, StoreRefused: it could not be asked.
    """
    cut = store.rows(_QUERIES["cut_logs"].sql, {"topic": DECISIONS.name})
    ((first_us,),) = store.rows(_QUERIES["first_block"].sql)
    return Begins(int(first_us), kept(store).blocks_from_us, tuple((int(part), str(log_id)) for part, log_id in cut))
