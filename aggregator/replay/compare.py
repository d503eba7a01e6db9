"""Compares rebuilt tables with those in use, row by row, and says what differs. Reads only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from aggregator.replay.register import DERIVED, LIVE, RAW, Derived
from aggregator.replay.shadow import shape, tables
from aggregator.store import Store

#: Rows that are named of each table; one more is asked for, to know whether there are more.
MOST = 20
_STEPS = {"day": 86_400, "hour": 3_600}


@dataclass(frozen=True, slots=True)
class Compared:
    """What two versions of a table differ in.

    Attributes:
        table: its name.
        rows: rows that differ: identity, what the one in use says, what the rebuilt one says; None where it has none.
        more: whether there are more of them.
    """

    table: str
    rows: Sequence[tuple[tuple[Any, ...], Any, Any]]
    more: bool

    @property
    def lines(self) -> list[str]:
        """As text: how many, then one row a line."""
        count = f"more than {MOST}" if self.more else f"{len(self.rows)}"
        head = f"{self.table}: {count} rows differ" if self.rows else f"{self.table}: the same"
        return [
            head,
            *(f"  {_words(key)}: {_said(ours)} in use, {_said(theirs)} rebuilt" for key, ours, theirs in self.rows),
        ]


def compare(
    store: Store,
    in_use: str,
    shadow: str,
    low_s: int,
    high_s: int,
    *,
    erased_s: int = 0,
    raw_low_s: int | None = None,
    live: bool = False,
) -> list[Compared]:
    """Compare every derived table over a span of whole minutes (unix seconds), and every raw one if that was rebuilt.

    Of days and hours those are compared that lie in the span whole; tables without a time are compared as they are.

    Args:
        store: the server, on the database in use.
        in_use: the database in use.
        shadow: the one that was rebuilt.
        low_s: where the span begins.
        high_s: where it ends.
        erased_s: when a caller was last erased.
        raw_low_s: where the span of raw tables begins; None leaves them out.
        live: whether the live totals were rebuilt too.
    """
    present = tables(store, in_use)
    whole = [Derived(table, when) for table, when in RAW.items() if raw_low_s is not None and table != "recorded"]
    whole += [LIVE] if live else []
    found = []
    for one in (*whole, *DERIVED):
        if one.table not in present:
            continue
        form = shape(store, in_use, one.table, time=one.time, only=one.only)
        step = _STEPS.get(one.time, 60)
        from_s = raw_low_s if one in whole and raw_low_s is not None else one.begins_s(low_s, erased_s)
        span = {"low": -(-from_s // step) * step, "high": max(high_s // step * step, 0), "most": MOST + 1}
        # Cheap where nothing differs, as nearly always.
        if store.rows(form.fingerprint(in_use), span) == store.rows(form.fingerprint(shadow), span):
            found.append(Compared(one.table, [], more=False))
            continue
        rows = store.rows(form.differences(in_use, shadow), span)
        named = [(row[:-2], _one(row[-2]), _one(row[-1])) for row in rows]
        found.append(Compared(one.table, named[:MOST], len(named) > MOST))
    return found


def _one(said: Sequence[Any]) -> Any:
    return said[0] if said else None


def _said(values: Any) -> str:
    return "nothing" if values is None else _words(values.values() if isinstance(values, dict) else values)


def _words(values: Any) -> str:
    return " ".join(str(value) for value in values)
