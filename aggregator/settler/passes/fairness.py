"""Fairness, as the settler keeps it: the exact bucket replayed over the decisions of each minute that is settled.

A bucket goes on from the row of its minute before. Where a late block changes a minute, the minutes after it are
replayed for the callers concerned until a row says what it said before. Idempotent: what is written is a total under
(caller, limit, minute) with the settler's version, and only where it differs from what stands there.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil

import numpy as np
import pyarrow as pa

from aggregator.core.fairness.buckets import Buckets, Key, TermsBook, buckets_of
from aggregator.core.fairness.causes import counted, first_causes, with_clocks, with_grants
from aggregator.core.fairness.layout import Carried, Counts, Int64s, Replayed
from aggregator.core.fairness.replay import BEST, Replayer, last_rows
from aggregator.core.fairness.rows import Rows
from aggregator.core.fairness.table import changed_rows, fairness_rows
from aggregator.settler.naming import in_groups
from aggregator.settler.passes.due import Due
from aggregator.settler.passes.fairness_reading import FairnessReader
from aggregator.settler.passes.reading import DecisionsReader, Part
from aggregator.settler.passes.totals import insert
from aggregator.store import ColumnStore
from enforcer.core.resolution import LIMIT_RATE

#: How far a bucket is looked back for, at most, when it is replayed for the first time, in minutes.
_LOOK_BACK = 60


class Fairness:
    """The `Taker` that is followed: of what the exact bucket says of each minute.

    Args:
        replayer: which replay; the best there is by default.
    """

    def __init__(self, replayer: Replayer = BEST) -> None:
        self._replayer = replayer
        # pyarrow looks for pandas with its first array of numpy's, which takes seconds: now, and not within a round.
        pa.array(np.zeros(1))

    def begin(self, store: ColumnStore, due: Due) -> FairnessTaking:
        """See `Taker.begin`."""
        return FairnessTaking(store, due, self._replayer)


class FairnessTaking:
    """A `Following` of `Fairness`: a part is replayed and written as it is taken."""

    def __init__(self, store: ColumnStore, due: Due, replayer: Replayer) -> None:
        self._store = store
        self._due = due
        self._replayer = replayer
        self._reader = FairnessReader(store)
        self._moved: set[Key] = set()

    def take(self, part: Part, rows: Rows) -> None:
        """See `Taking.take`."""
        book = self._reader.terms(part, np.unique(rows.policy_version).tolist())
        buckets, carried = self._entered(part, rows, book)
        replayed = self._replayer.replay(buckets.decided, carried)
        causes = _causes(self._reader, part, rows, buckets, replayed)
        changed, moved = changed_rows(fairness_rows(buckets, replayed, causes), self._reader.stored(part))
        # All are of one day, as what is due is, or of the stretch of an hour: of one month.
        insert(self._store, "fairness", changed, self._due)
        self._moved |= moved

    def moved(self, part: Part) -> dict[int, frozenset[str]]:
        """See `Following.moved`."""
        callers = frozenset(caller for caller, _ in self._moved)
        self._moved = set()
        if not callers or self._reader.newest() < part.high:
            return {}
        minutes: dict[int, set[str]] = {}
        for caller, minute in self._reader.later(Part(part.low, part.high, callers=callers)).items():
            minutes.setdefault(minute, set()).add(caller)
        return {minute: frozenset(names) for minute, names in minutes.items()}

    def end(self) -> None:
        """See `Taking.end`."""

    def _entered(self, part: Part, rows: Rows, book: TermsBook) -> tuple[Buckets, Carried]:
        """The buckets, and the state that each begins with."""
        buckets = buckets_of(rows, book)
        others = {(one.caller, one.limit) for one in buckets.unjudged if one.limit != LIMIT_RATE}
        others.update(key for key in buckets.keys if key[1] != LIMIT_RATE)
        known = self._reader.own_limits(part, others) if others else set()
        if known:
            buckets = buckets_of(rows, book, known)
        carried, found = self._reader.carried(part, buckets.keys)
        new = {key for key in buckets.keys if key[1] != LIMIT_RATE and key not in known and key not in found}
        if new:
            self._look_back(part, buckets, carried, book=book, new=new)
        return buckets, carried

    def _look_back(self, part: Part, buckets: Buckets, carried: Carried, *, book: TermsBook, new: set[Key]) -> None:
        """The terms of a further limit come to be known with its first refusal: what it held until then is replayed.

        From full, as long ago as the bucket takes to fill, or an hour: longer ago only a slower one remembers.
        """
        place_of = {key: place for place, key in enumerate(buckets.keys)}
        minutes = min(_LOOK_BACK, max(ceil(buckets.fills_in_s(place_of[key]) / 60) for key in new))
        reader = DecisionsReader(self._store, self._due.erased)
        # A group of callers at a time: what is read at once does not grow with how many are new.
        for callers in in_groups({caller for caller, _ in new}):
            span = Part(part.low - minutes, part.low, callers=frozenset(callers))
            self._replay_before(reader.decisions(span, charged=True), carried, place_of, book=book, new=new)

    def _replay_before(
        self, rows: Rows, carried: Carried, place_of: Mapping[Key, int], *, book: TermsBook, new: set[Key]
    ) -> None:
        """Let new buckets begin with what these decisions, of before, leave of them."""
        if not len(rows):
            return
        earlier = buckets_of(rows, book, new)
        replayed = self._replayer.replay(earlier.decided, Carried.unseen(len(earlier.keys)))
        ends = last_rows(replayed)
        state = replayed.carried(ends)
        for place, group in enumerate(replayed.counts[ends, Counts.GROUP].tolist()):
            key = earlier.keys[group]
            if key in new:
                carried.levels[place_of[key]], carried.marks[place_of[key]] = state.levels[place], state.marks[place]


def _causes(reader: FairnessReader, part: Part, rows: Rows, buckets: Buckets, replayed: Replayed) -> Int64s:
    found = first_causes(buckets, replayed)
    if len(found.open_rows):
        found = with_clocks(found, rows, buckets, reader.blind(part))
    if len(found.open_rows):
        keys = {buckets.keys[group] for group in replayed.counts[found.open_rows, Counts.GROUP].tolist()}
        found = with_grants(found, rows, buckets, replayed, reader.holdings(part, keys))
    return counted(found, replayed)
