"""What a replay rebuilds: the one register of raw and derived tables, and how two versions of a table are compared.

Talks to no database. A table that follows from the record belongs into `DERIVED`, or nobody can find out whether it is
right.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

#: What the recorder writes from the log, and by which time its rows are compared. The journal comes first where they
#: are attached: what it claims was stored before it.
RAW: dict[str, str] = {
    "recorded": "",
    "decisions": "at",
    "blocks": "sealed_at",
    "conflicts": "at",
    "grants": "issued_at",
    "settlements": "at",
    "cost_changes": "at",
    "control": "at",
    "terms": "",
    "dead_letters": "",
}
#: What else a replay must know: what was erased stays erased.
KNOWN = ("erasures", "erased_blocks")
#: Columns that say where and when a row was written, not what it says.
BOOKKEEPING = frozenset({"version", "stored_at", "seen_at", "log_id"})


@dataclass(frozen=True, slots=True)
class Derived:
    """A table that follows from the raw record.

    Attributes:
        table: its name.
        time: the column whose span is rebuilt.
        only: which of its columns are compared; all that it has if empty.
        of_all: whether it holds totals of all callers, in which those of an erased one stay: what lies before an
            erasure cannot be counted again.
    """

    table: str
    time: str
    only: tuple[str, ...] = ()
    of_all: bool = False

    def begins_s(self, low_s: int, erased_s: int) -> int:
        """Since when (unix seconds) it can be rebuilt, if others can since `low_s`, and the last erasure was then."""
        return max(low_s, erased_s) if self.of_all else low_s


#: In the order in which they are exchanged.
DERIVED = (
    Derived("settled_minutes", "minute"),
    Derived("settled_fleet", "minute", of_all=True),
    Derived("settled_days", "day"),
    Derived("grant_minutes", "minute"),
    Derived("ledger_hours", "hour"),
    Derived("missing_minutes", "minute"),
    Derived("fairness", "minute", ("judged", "offered", "admitted", "refused", "wrongful", "over_admitted", "k")),
)
#: Follows from the log alone, whose positions its rows are: rebuilt where the whole log is recorded again. Which copies
#: and positions it knows is of no time, and goes with it uncompared.
LIVE = Derived("live", "minute", ("offered", "admitted", "degraded", "early_returns", "cost_offered", "cost_admitted"))
#: Goes with the derived tables: what is settled.
PROGRESS = "settled_progress"
#: What is rolled up of the settled minutes, first what says which; emptied when these are exchanged, so that it is made
#: anew. A row of a caller that only the former totals had would else be found again once its quarter is rolled up.
ROLLED = ("rolled_quarters", "quarter_days", "quarters")


@dataclass(frozen=True, slots=True)
class Shape:
    """What of a table's columns names a row, and what it says."""

    table: str
    identity: tuple[str, ...]
    values: tuple[str, ...]
    time: str = ""
    versioned: bool = False

    def current(self, database: str) -> str:
        """A SELECT of the rows that count: identity, and the values as one tuple."""
        names = ", ".join(self.identity)
        said = f"tuple({', '.join(self.values)})"
        newest = f"argMax({said}, (version, stored_at))" if self.versioned else f"any({said})"
        # Names are the engine's own of our tables; what is bound is bound.
        rows = f"{database}.{self.table}{'' if self.versioned else ' FINAL'}{self._span}"
        return f"SELECT {names}, {newest} AS said FROM {rows} GROUP BY {names}"  # noqa: S608  (see above)

    def fingerprint(self, database: str) -> str:
        """A SELECT of two numbers that are the same where all rows that count are the same."""
        names = ", ".join(self.identity)
        return f"SELECT count(), sum(cityHash64({names}, said)) FROM ({self.current(database)})"  # noqa: S608  (see `current`)

    def differences(self, ours: str, theirs: str) -> str:
        """A SELECT of the rows in which two databases differ: identity, what the first says, what the second says.

        A side that has no such row is an empty array.
        """
        names = ", ".join(self.identity)
        sides = (
            f"SELECT *, 1 AS side FROM ({self.current(ours)}) "  # noqa: S608  (see `current`)
            f"UNION ALL SELECT *, 2 AS side FROM ({self.current(theirs)})"
        )
        said = "groupArrayIf(said, side = 1) AS ours, groupArrayIf(said, side = 2) AS theirs"
        return (
            f"SELECT {names}, {said} FROM ({sides}) GROUP BY {names} "  # noqa: S608  (see `current`)
            f"HAVING ours != theirs ORDER BY {names} LIMIT {{most:UInt32}}"
        )

    @property
    def _span(self) -> str:
        if not self.time:
            return ""
        low, high = "toDateTime({low:UInt32}, 'UTC')", "toDateTime({high:UInt32}, 'UTC')"
        return f" WHERE {self.time} >= {low} AND {self.time} < {high}"


def shape_of(table: str, columns: Sequence[tuple[str, bool]], *, time: str = "", only: Sequence[str] = ()) -> Shape:
    """The shape of a table.

    Args:
        table: its name.
        columns: every column, and whether it stands in the sort key.
        time: see `Derived`.
        only: see `Derived`.
    """
    names = {name for name, _ in columns}
    identity = tuple(name for name, in_key in columns if in_key and name not in BOOKKEEPING)
    values = tuple(
        name for name, in_key in columns if not in_key and name not in BOOKKEEPING and (not only or name in only)
    )
    return Shape(table, identity, values or identity[:1], time, versioned={"version", "stored_at"} <= names)
