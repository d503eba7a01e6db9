"""What of the raw record no settler has made totals of: dropped before, it would be in no bill, for good.

Reads the journal and where the settlers stand, never a decision; says nothing of minutes that a settler has let go.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from aggregator.sql import load_queries
from aggregator.store import Store, values_of
from stream.contract.topics import DECISIONS

_QUERIES = load_queries("aggregator.sql", "retention.sql")
_MINUTE_US, _DAY_US = 60_000_000, 86_400_000_000


@dataclass(frozen=True, slots=True)
class PutOff:
    """Why a retention of raw decisions is not in force yet.

    Attributes:
        oldest_us: the beginning of the oldest minute that is to be settled, unix microseconds (of its day, where no
            settler has ever run).
        before_us: what is older would go, or be counted no more, if it were in force.
        ever_settled: whether any settler has run.
    """

    oldest_us: int
    before_us: int
    ever_settled: bool

    def __str__(self) -> str:
        who = "" if self.ever_settled else " (no settler has run yet)"
        return (
            f"raw decisions from {_words(self.oldest_us)} on are not settled{who}, and those before "
            f"{_words(self.before_us)} would never be: the retention of the raw record waits for the settler"
        )


def unsettled(store: Store, recounted_days: int) -> PutOff | None:
    """What keeps the retention of raw decisions from coming into force now; None if nothing.

    Args:
        store: the database.
        recounted_days: once it is in force, older minutes are not settled any more.

    Raises:
        StoreUnavailable, StoreRefused: it could not be asked.
    """
    ((now_us,),) = store.rows(_QUERIES["now"].sql)
    before_us = int(now_us) - recounted_days * _DAY_US
    stand = store.rows(_QUERIES["settlers_stand"].sql)
    oldest_us = _oldest_us(store, *stand[0]) if stand else int(store.rows(_QUERIES["oldest_decisions"].sql)[0][0])
    return PutOff(oldest_us, before_us, bool(stand)) if 0 < oldest_us < before_us else None


def _oldest_us(store: Store, positions: Sequence[Any], dirty: int) -> int:
    """The oldest minute that is known to the settlers as dirty, or that the journal names beyond where they stand.

    Asked log by log, and so only of what is new since they last looked: the journal is kept for good. 0: there is none.
    """
    known = [values_of(one) for one in positions]
    found = [int(dirty)]
    for log_id, partition, next_offset in known:
        place = {"topic": DECISIONS.name, "log_id": log_id, "partition": partition, "position": next_offset}
        found.append(int(store.rows(_QUERIES["oldest_beyond"].sql, place)[0][0]))
    others = {"topic": DECISIONS.name, "known": [(partition, log_id) for log_id, partition, _ in known]}
    found.append(int(store.rows(_QUERIES["oldest_of_others"].sql, others)[0][0]))
    return min((minute for minute in found if minute), default=0) * _MINUTE_US


def _words(unix_us: int) -> str:
    return f"{datetime.fromtimestamp(unix_us / 1e6, UTC):%Y-%m-%dT%H:%MZ}"
