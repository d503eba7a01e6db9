"""The topics of the log: names, keys and how long they keep; nothing here talks to a broker."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Topic:
    """One topic. All topics of a deployment share one partition count."""

    name: str
    retention_ms: int
    compacted: bool = False
    #: After so long the broker begins another segment; None leaves it to the broker. Only whole segments are removed.
    segment_ms: int | None = None


_DAY_MS = 86_400_000
_MINUTE_MS = 60_000

#: Blocks of decisions, keyed by copy, so that a copy's blocks are in order and a gap shows inside one partition.
DECISIONS = Topic("tallygate.decisions", 7 * _DAY_MS)
#: Grants and settlements in blocks, partitioned by a hash of the caller.
GRANTS = Topic("tallygate.grants", 7 * _DAY_MS)
#: Copy start and stop, changes of degraded state, losses; keyed by copy.
CONTROL = Topic("tallygate.control", 30 * _DAY_MS)
#: Totals by caller for the second stage of the live figures, partitioned by a hash of the caller. Whoever takes a
#: partition over reads its state from the `live` table, so that what is older than some minutes serves nobody.
USAGE = Topic("tallygate.usage", 30 * _MINUTE_MS, segment_ms=10 * _MINUTE_MS)
#: Messages that could not be read, as they were, with the reason in the headers.
DEAD_LETTERS = Topic("tallygate.dead-letters", 30 * _DAY_MS)

TOPICS: tuple[Topic, ...] = (DECISIONS, GRANTS, CONTROL, USAGE, DEAD_LETTERS)
