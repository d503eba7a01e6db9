"""What the fairness pass reads of the database, in the shapes that `aggregator.core.fairness_…` work on.

Every question is a named query of ``fairness.sql``. Decides nothing, and writes nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from aggregator.core.fairness.buckets import Held, Key, TermsBook
from aggregator.core.fairness.causes import Blind, Holding
from aggregator.core.fairness.layout import CARRIED_LEVELS, CARRIED_MARKS, MINUTE_US, Carried
from aggregator.core.fairness.rows import numbers
from aggregator.settler.naming import in_groups
from aggregator.settler.passes.reading import Part
from aggregator.sql import load_queries
from aggregator.store import ColumnStore
from enforcer.core.resolution import LIMIT_RATE

#: No grant that is still held was issued longer ago: ten times what one lasts by default.
_GRANT_LASTS_US = 60_000_000


class FairnessReader:
    """Asks one store."""

    def __init__(self, store: ColumnStore) -> None:
        self._store = store
        self._queries = load_queries("aggregator.sql", "fairness.sql")

    def terms(self, part: Part, versions: Collection[int]) -> TermsBook:
        """What the limits were held to."""
        book = TermsBook()
        parameters = {**part.parameters, "versions": sorted(versions)}
        for caller, limit, version, plan, rate, burst, per in self._rows("fairness_terms", parameters):
            book.add(caller, limit, version, plan, Held(float(rate), int(burst), per))
        return book

    def carried(self, part: Part, keys: Sequence[Key]) -> tuple[Carried, set[Key]]:
        """The state of each bucket at the beginning of the part, and of which any was found."""
        state = Carried.unseen(len(keys))
        place_of = {key: place for place, key in enumerate(keys)}
        stored = self._store.arrow(self._queries["fairness_carried"].sql, part.parameters).combine_chunks()
        owners = list(zip(stored["caller"].to_pylist(), stored["limit"].to_pylist(), strict=True))
        whose = np.array([place_of.get(key, -1) for key in owners], np.int64)
        known = whose >= 0
        if known.any():
            state.levels[whose[known]] = _lists(stored["levels"], np.float64, CARRIED_LEVELS)[known]
            state.marks[whose[known]] = _lists(stored["marks"], np.int64, CARRIED_MARKS)[known]
        return state, {key for key, is_known in zip(owners, known.tolist(), strict=True) if is_known}

    def own_limits(self, part: Part, keys: Collection[Key]) -> set[Key]:
        """Which of these further limits have been replayed as their callers' own before the part."""
        found: set[Key] = set()
        for callers in in_groups({caller for caller, _ in keys}):
            found.update(
                (caller, limit)
                for caller, limit in self._rows("fairness_own_limits", {**part.parameters, "callers": callers})
            )
        return found & set(keys)

    def stored(self, part: Part) -> pa.Table:
        """What is stored already."""
        found = self._store.arrow(self._queries["fairness_stored"].sql, part.parameters)
        if part.callers is None or part.named:
            return found
        return found.filter(pa.array([part.concerns(caller) for caller in found["caller"].to_pylist()], pa.bool_()))

    def newest(self) -> int:
        """The last minute that anything is stored of; 0 if nothing is."""
        return int(self._rows("fairness_newest", {})[0][0])

    def later(self, part: Part) -> dict[str, int]:
        """The first minute after the part that is stored of each caller."""
        return {
            caller: int(minute)
            for caller, minute in self._rows("fairness_later", part.parameters)
            if part.concerns(caller)
        }

    def blind(self, part: Part) -> Blind:
        """When copies' clocks were guessed."""
        found = self._rows("fairness_blind", part.parameters)
        return Blind(
            [row[0] for row in found],
            np.array([row[1] for row in found], np.int64),
            np.array([row[2] for row in found], np.int64),
        )

    def holdings(self, part: Part, keys: Collection[Key]) -> Mapping[Key, list[Holding]]:
        """The grants of these buckets that were held at any time of the part."""
        held: dict[Key, list[Holding]] = {}
        since_us = part.low * MINUTE_US - _GRANT_LASTS_US
        further = any(limit != LIMIT_RATE for _, limit in keys)
        for callers in in_groups({caller for caller, _ in keys}):
            self._hold(held, {**part.parameters, "callers": callers, "since_us": since_us}, further=further)
        return {key: held[key] for key in keys if key in held}

    def _hold(self, held: dict[Key, list[Holding]], parameters: dict[str, Any], *, further: bool) -> None:
        closed = {row[:3]: row[3] for row in self._rows("fairness_closed", parameters)}
        spent: dict[tuple[str, str, int], tuple[list[int], list[int]]] = {}
        costs_of = [*self._rows("fairness_spent", parameters)]
        if further:
            costs_of += self._rows("fairness_spent_charges", parameters)
        for *grant, at_us, tokens in costs_of:
            times, costs = spent.setdefault((grant[0], grant[1], grant[2]), ([], []))
            times.append(at_us)
            costs.append(tokens)
        for caller, limit, grant_id, copy, issued_us, expires_us, size in self._rows("fairness_grants", parameters):
            times, costs = spent.get((caller, limit, grant_id), ([], []))
            until_us = min(expires_us, closed.get((caller, limit, grant_id), expires_us))
            held.setdefault((caller, limit), []).append(
                Holding(copy, issued_us, max(issued_us, until_us), size, times, costs)
            )

    def _rows(self, name: str, parameters: Mapping[str, Any]) -> Sequence[tuple[Any, ...]]:
        return self._store.rows(self._queries[name].sql, parameters)


def _lists(column: pa.ChunkedArray, kind: Any, length: int) -> Any:
    """A column of lists of one length, as a matrix."""
    return numbers(pa.chunked_array([chunk.flatten() for chunk in column.chunks]), kind).reshape(-1, length)
