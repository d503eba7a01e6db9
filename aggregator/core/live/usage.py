"""The usage of one minute of one partition: counts by (caller, scope).

Nothing here knows of the log, of versions, or of the database.
"""

from __future__ import annotations

import numpy as np

from aggregator.core.live.tables import FIRST_ROWS, Bools, Rows, TotalsTable, grown
from stream.contract.block import Int64s


class UsageTable(TotalsTable):
    """Counts by (caller, scope), whose each row is, and what its caller was told last when it was refused.

    What was told is a pair of times, unix microseconds: when it was said, and before when not to come back; two zeros
    if nothing was.
    """

    __slots__ = ("_owners", "_told")

    def __init__(self) -> None:
        super().__init__()
        self._owners = np.zeros(FIRST_ROWS, np.int64)
        self._told = np.zeros((FIRST_ROWS, 2), np.int64)

    @property
    def owners(self) -> Int64s:
        """The caller's id, of each row."""
        return self._owners[: self.index.count]

    @property
    def held(self) -> tuple[Int64s, Int64s, Bools]:
        """The counts of each row, what was told, and whether it changed: the arrays themselves."""
        return self._counts, self._told, self._dirty

    def rows_of(self, ids: Int64s, owners: Int64s) -> Rows:
        """The rows of these distinct cells of these callers, new ones appended."""
        rows = self._rows(ids)
        self._owners[rows] = owners
        return rows

    def restore(self, ids: Int64s, owners: Int64s, counts: Int64s, told: Int64s) -> None:
        """Set totals as they were stored; the rows are not marked as changed."""
        rows = self._rows(ids)
        self._owners[rows], self._counts[rows], self._told[rows] = owners, counts, told

    def take_rows(self) -> tuple[Int64s, Int64s, Int64s, Int64s]:
        """Row numbers, ids, totals and what was told, of the rows changed since the last call, as copies."""
        rows = np.flatnonzero(self._dirty[: self.index.count])
        self._dirty[rows] = False
        return rows, self.index.ids[rows], self._counts[rows], self._told[rows]

    def _rows(self, ids: Int64s) -> Rows:
        rows = super()._rows(ids)
        self._owners = grown(self._owners, self._dirty.size)
        self._told = grown(self._told, self._dirty.size)
        return rows
