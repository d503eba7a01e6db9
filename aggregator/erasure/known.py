"""What was erased, as the database knows it: for the recorder, and for whoever asks.

Reads only.
"""

from __future__ import annotations

from dataclasses import dataclass

from aggregator.core.record.erased import Erased, Erasure
from aggregator.sql import load_queries
from aggregator.store import Store

_QUERIES = load_queries("aggregator.sql", "erasure.sql")


@dataclass(frozen=True, slots=True)
class Stated:
    """One erasure with all that is written down of it.

    Attributes:
        state: begun, listed or done.
        removed: table → rows that it had of the caller.
        stated_us: when it reached its state, unix microseconds.
    """

    erasure: Erasure
    state: str
    requested_by: str
    reason: str
    begun_us: int
    removed: dict[str, int]
    stated_us: int = 0

    @property
    def name(self) -> str:
        """As people read its id."""
        return f"{self.erasure.erasure_id:016x}"


def stated(store: Store) -> list[Stated]:
    """All erasures, finished or not.

    Raises:
        StoreUnavailable, StoreRefused: the database could not be asked.
    """
    found = []
    for number, state, before_us, salt, who, by, reason, begun_us, tables, removed, stated_us in store.rows(
        _QUERIES["erasures"].sql
    ):
        erasure = Erasure(int(number), int(before_us), bytes.fromhex(salt), bytes.fromhex(who))
        counts = dict(zip(tables, (int(rows) for rows in removed), strict=True))
        found.append(Stated(erasure, str(state), str(by), str(reason), int(begun_us), counts, int(stated_us)))
    return found


def erased(store: Store) -> Erased:
    """What must not be recorded again; an erasure counts from the moment at which it was begun."""
    return Erased(one.erasure for one in stated(store))
