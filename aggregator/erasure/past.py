"""What of a caller's raw rows is its past: what happened before its erasure, or was recorded before, whatever its time.

A copy whose clock is ahead, or whoever forges a block, gives rows a time to come. They are on record all the same, and
are known by where they stand in the log. Reads only.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from aggregator.sql import load_queries
from aggregator.store import Store
from stream.contract.topics import DECISIONS, GRANTS

_QUERIES = load_queries("aggregator.sql", "erasure.sql")
#: An erasure reaches no further beyond the moment at which it is begun: what is decided after that is recorded.
SKEW_US = 10_000_000
#: The topic that brought each raw table's rows.
_TOPICS = {
    "decisions": DECISIONS.name,
    "conflicts": DECISIONS.name,
    "grants": GRANTS.name,
    "settlements": GRANTS.name,
}


def erased_before(now_us: int, latest_us: int) -> int:
    """Up to when an erasure begun now reaches (without): the owner's clock may be a little ahead, and no more.

    Args:
        now_us: now, unix microseconds.
        latest_us: the time of the last that is on record of the caller.
    """
    return min(max(now_us, latest_us + 1), now_us + SKEW_US)


@dataclass(frozen=True, slots=True)
class Past:
    """The past of an erasure.

    Attributes:
        before_us: everything that happened before is.
        until: topic → partition → offset: everything that stands before it in the log was recorded before.
    """

    before_us: int
    until: Mapping[str, Mapping[int, int]]

    def rows(self, table: str, time: str) -> str:
        """The condition that a row of a raw table is the past, with nothing to bind; `time` says when it happened."""
        before = f"{time} < {self._before}"
        until = self.until.get(_TOPICS[table], {})
        if not until:
            return before
        recorded = f"log_offset < transform(log_partition, {list(until)}, {list(until.values())}, 0)"
        return f"({before} OR {recorded})"

    def began(self, time: str) -> str:
        """The condition that the time of a total began before, or is yet to come; `time` says when it begins."""
        began = f"toDateTime({time}, 'UTC')"
        return f"({began} < {self._before} OR {began} > now('UTC') + toIntervalDay(1))"

    def ended(self, time: str, seconds: int) -> str:
        """The condition that it was over by then, so many seconds after it had begun."""
        return f"toDateTime({time}, 'UTC') + toIntervalSecond({seconds}) <= {self._before}"

    @property
    def _before(self) -> str:
        return f"fromUnixTimestamp64Micro({self.before_us}, 'UTC')"

    def has_decisions_of(self, log_partition: int, log_offset: int) -> bool:
        """Whether the block at a place of the log was recorded before."""
        return log_offset < self.until.get(DECISIONS.name, {}).get(log_partition, 0)


def past(store: Store, before_us: int) -> Past:
    """The past of an erasure that reaches up to a time; the same whenever it is asked for afterwards.

    Raises:
        StoreUnavailable, StoreRefused: the journal could not be read.
    """
    until: dict[str, dict[int, int]] = {}
    for topic, partition, offset in store.rows(_QUERIES["recorded_before"].sql, {"before_us": before_us}):
        until.setdefault(str(topic), {})[int(partition)] = int(offset)
    return Past(before_us, until)
