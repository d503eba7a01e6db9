"""Brings the tables' TTLs to what the settings say, where they differ.

Deletes nothing itself: the engine does, in the background, by the TTLs. Never shortens what is kept of the raw record
while a settler has yet to make totals of what would go. Safe to run by several processes at once and as often as one
likes; where nothing differs it only reads.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from aggregator.retention.tiers import RAW, TIERS, Keep, ttl_of
from aggregator.retention.unsettled import PutOff, unsettled
from aggregator.sql import load_queries
from aggregator.store import Store

_QUERIES = load_queries("aggregator.sql", "retention.sql")
_TTL = re.compile(r" TTL (?P<ttl>.*?)(?= SETTINGS |\Z)")
_DAYS = re.compile(r"toIntervalDay\((\d+)\)")
_RECALCULATE_ONLY = "materialize_ttl_recalculate_only = 1"
_TIME = pa.timestamp("us", "UTC")


@dataclass(frozen=True, slots=True)
class TableTtl:
    """A table's TTL as it is (empty for none) and as it is to be."""

    table: str
    is_now: str
    to_be: str
    has_setting: bool

    @property
    def differs(self) -> bool:
        """Whether it is to be changed."""
        return self.is_now != self.to_be

    @property
    def takes_raw(self) -> bool:
        """Whether rows of the raw record go by it that were kept before."""
        now, then = ([int(days) for days in _DAYS.findall(ttl)] for ttl in (self.is_now, self.to_be))
        return self.table in RAW and (
            len(now) != len(then) or any(day > other for day, other in zip(now, then, strict=True))
        )


@dataclass(frozen=True, slots=True)
class Applied:
    """What `apply` did: the tables that it changed, those that it left for now, and why."""

    changed: list[TableTtl]
    left: list[TableTtl] = field(default_factory=list)
    put_off: PutOff | None = None


def ttls(store: Store, keep: Keep) -> list[TableTtl]:
    """Of every table in the register that the database has."""
    found = []
    for name, engine_full in store.rows(_QUERIES["tables"].sql):
        if name == "decisions" or name in TIERS:
            match = _TTL.search(engine_full)
            has_setting = _RECALCULATE_ONLY in engine_full
            found.append(TableTtl(str(name), match["ttl"] if match else "", ttl_of(name, keep), has_setting))
    return found


def apply(store: Store, keep: Keep, *, recounted_days: int, unsettled_too: bool = False) -> Applied:
    """Change what differs. What would take raw rows that are to be settled first is left as it is.

    Args:
        store: the database.
        keep: what is to be in force.
        recounted_days: see `AggregatorConfig.recounted_days`.
        unsettled_too: do not wait for any settler.

    Raises:
        StoreUnavailable: the database did not answer; a repetition goes on from there.
    """
    differing = [one for one in ttls(store, keep) if one.differs]
    taking = [one for one in differing if one.takes_raw]
    put_off = unsettled(store, recounted_days) if taking and not unsettled_too else None
    changed = [one for one in differing if put_off is None or one not in taking]
    if put_off is None:
        # First, so that nobody takes for whole what has begun to go.
        _remember(store, keep)
    for one in changed:
        if not one.has_setting:
            # A changed TTL then costs the time column of each part, not all of its columns.
            store.command(f"ALTER TABLE {one.table} MODIFY SETTING {_RECALCULATE_ONLY}")
        store.command(f"ALTER TABLE {one.table} MODIFY TTL {one.to_be}")
    return Applied(changed, taking if put_off is not None else [], put_off)


def _remember(store: Store, keep: Keep) -> None:
    """Write down what is in force from now on, if it is not what was."""
    history = store.rows(_QUERIES["retention_history"].sql)
    now_us = int(store.rows(_QUERIES["now"].sql)[0][0])
    row = (keep.admitted_days, keep.refused_days, keep.minutes_days, keep.days_years)
    if history and tuple(history[-1][1:]) == row:
        return
    names = ("admitted_days", "refused_days", "minutes_days", "days_years")
    days = {name: pa.array([value], pa.uint32()) for name, value in zip(names, row, strict=True)}
    store.insert("retention", pa.table({"applied_at": pa.array([now_us], _TIME), **days}))


def shown(found: Sequence[TableTtl]) -> str:
    """As text: one table a line."""
    width = max((len(one.table) for one in found), default=0)
    lines = []
    for one in found:
        now = f"   (now: {one.is_now or 'none'})" if one.differs else ""
        lines.append(f"{one.table.ljust(width)}  {one.to_be}{now}\n")
    return "".join(lines)
