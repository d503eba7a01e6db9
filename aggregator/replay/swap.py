"""Takes the history over and exchanges tables, so that readers see a table as it was or as it was rebuilt, never half.

Never drops anything: what was in use before stands in the shadow afterwards.
"""

from __future__ import annotations

from collections.abc import Sequence

from aggregator.replay.register import DERIVED, PROGRESS, ROLLED, Derived
from aggregator.replay.shadow import shape, tables
from aggregator.store import Store


def take_older(store: Store, in_use: str, shadow: str, before_s: int, *, erased_s: int = 0) -> None:
    """Copy what raw no longer holds, all versions: rows from before a time (unix seconds) cannot be rebuilt.

    Totals of all callers neither, before a caller was last erased (`erased_s`).
    """
    for one in _present(store, in_use):
        store.command(
            f"INSERT INTO {shadow}.{one.table} SELECT * FROM {in_use}.{one.table} "  # noqa: S608  (names of ours, and a number)
            f"WHERE {one.time} < toDateTime({one.begins_s(before_s, erased_s)}, 'UTC')"
        )


def take_history(store: Store, in_use: str, shadow: str, from_s: int, to_s: int) -> None:
    """Copy the earlier versions of what was rebuilt, so that totals as of a time are what they were.

    The rebuilt rows have higher versions, and count. A row in use that nothing in the record stands behind is followed
    by one that says zero, if it is of a time that the replay was to settle: [from_s, to_s), unix seconds.
    """
    for one in _present(store, in_use):
        form = shape(store, in_use, one.table)
        if not form.versioned or "version" not in _key(store, in_use, one.table):
            continue
        names = ", ".join(form.identity)
        since = f"{one.time} >= toDateTime({from_s}, 'UTC')"
        store.command(
            f"INSERT INTO {shadow}.{one.table} ({names}, version, stored_at) "  # noqa: S608  (names of ours, and a number)
            f"SELECT {names}, (SELECT max(version) FROM {shadow}.{PROGRESS}), now64(6) FROM {in_use}.{one.table} "
            f"WHERE {since} AND {one.time} < toDateTime({to_s}, 'UTC') "
            f"AND ({names}) NOT IN (SELECT {names} FROM {shadow}.{one.table}) GROUP BY {names}"
        )
        store.command(f"INSERT INTO {shadow}.{one.table} SELECT * FROM {in_use}.{one.table} WHERE {since}")  # noqa: S608  (see above)


def swap(store: Store, in_use: str, shadow: str, also: Sequence[str] = ()) -> list[str]:
    """Exchange every rebuilt table, one after the other; returns their names. A repetition exchanges them back.

    What was rolled up of the totals in use is of neither: it is emptied, and pages read minutes until the settler has
    rolled the exchanged ones up. What a settler that was not stopped is about to say of it goes with it, too.
    """
    present = tables(store, in_use) & tables(store, shadow)
    names = [*also, *(one.table for one in DERIVED), PROGRESS]
    # No page may show what is rolled up beside minutes that say otherwise.
    _empty_rolled(store, (in_use,))
    for name in names:
        if name in present:
            store.command(f"EXCHANGE TABLES {in_use}.{name} AND {shadow}.{name}")
    _empty_rolled(store, (in_use, shadow))
    # Emptied alone, they would take the mark of a settler that has rolled up before and writes it now. Last what says
    # which: a settler that has seen it anew sees all of it anew.
    for name in reversed(ROLLED):
        if name in present:
            store.command(f"EXCHANGE TABLES {in_use}.{name} AND {shadow}.{name}")
    _empty_rolled(store, (shadow,))
    return [name for name in names if name in present]


def _empty_rolled(store: Store, databases: Sequence[str]) -> None:
    """Empty what is rolled up. First what says so: a page that reads in between reads minutes."""
    for database in databases:
        for name in (one for one in ROLLED if one in tables(store, database)):
            store.command(f"TRUNCATE TABLE {database}.{name}")


def _present(store: Store, database: str) -> list[Derived]:
    found = tables(store, database)
    return [one for one in DERIVED if one.table in found]


def _key(store: Store, database: str, table: str) -> set[str]:
    rows = store.rows(
        "SELECT name FROM system.columns WHERE database = {database:String} AND table = {table:String} "
        "AND is_in_sorting_key",
        {"database": database, "table": table},
    )
    return {str(name) for (name,) in rows}
