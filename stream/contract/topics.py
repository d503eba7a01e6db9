"""The topics of the log: names, keys and how long they keep; nothing here talks to a broker."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Topic:
    """One topic. All topics of a deployment share one partition count."""

    name: str
    retention_ms: int
    compacted: bool = False


_DAY_MS = 86_400_000

#: Blocks of decisions, keyed by copy, so that a copy's blocks are in order and a gap shows inside one partition.
DECISIONS = Topic("tallygate.decisions", 7 * _DAY_MS)
#: Grants and settlements in blocks, partitioned by a hash of the caller.
GRANTS = Topic("tallygate.grants", 7 * _DAY_MS)
#: Copy start and stop, changes of degraded state, losses; keyed by copy.
CONTROL = Topic("tallygate.control", 30 * _DAY_MS)
#: Messages that could not be read, as they were, with the reason in the headers.
DEAD_LETTERS = Topic("tallygate.dead-letters", 30 * _DAY_MS)

TOPICS: tuple[Topic, ...] = (DECISIONS, GRANTS, CONTROL, DEAD_LETTERS)
