"""The shadow database of a replay: made anew each time, and never one that anybody uses.

Attaches raw partitions of the database in use without copying a byte, and never writes into it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from aggregator.config import ClickHouseDsn
from aggregator.migrate import migrate
from aggregator.replay.claim import CLAIMS, make_claims
from aggregator.replay.register import KNOWN, RAW, Shape, shape_of
from aggregator.sql import load_queries
from aggregator.store import Store

_QUERIES = load_queries("aggregator.sql", "replay.sql")
#: Only in databases that a replay has made.
_MARK = "replay_shadow"


class NoShadow(Exception):
    """The database cannot be a shadow; nothing was changed."""


def find_shadow(store: Store, dsn: ClickHouseDsn, name: str) -> None:
    """Make the database if it is not there, and its table of claims; nothing of an earlier replay is touched.

    Args:
        store: the server, on the database in use.
        dsn: the database in use.
        name: the shadow's, of the form of a database's name.

    Raises:
        NoShadow: it is the one in use, or one that no replay has made.
    """
    if name == dsn.database:
        raise NoShadow(f"--into {name}: this is the database in use; allowed: another name")
    if int(store.rows(_QUERIES["databases"].sql, {"database": name})[0][0]):
        if _MARK not in tables(store, name):
            raise NoShadow(
                f"--into {name}: this database is no replay's; allowed: a new name, or one of a replay before"
            )
    else:
        store.command(f"CREATE DATABASE IF NOT EXISTS {name} ENGINE = Atomic")
        # First of all: a shadow that is left half made is one for the next replay.
        store.command(
            f"CREATE TABLE IF NOT EXISTS {name}.{_MARK} (at DateTime DEFAULT now()) ENGINE = MergeTree ORDER BY at"
        )
    make_claims(store, name)


def empty_shadow(store: Store, dsn: ClickHouseDsn, name: str) -> None:
    """Give the shadow that is claimed all tables, empty; what an earlier replay left there is dropped."""
    for table in sorted(tables(store, name) - {_MARK, CLAIMS}):
        quoted = table.replace("\\", "\\\\").replace("`", "\\`")
        store.command(f"DROP TABLE IF EXISTS {name}.`{quoted}` SYNC")
    migrate(replace(dsn, database=name))


def tables(store: Store, database: str) -> set[str]:
    """The names of a database's tables."""
    return {str(name) for (name,) in store.rows(_QUERIES["tables"].sql, {"database": database})}


def shape(store: Store, database: str, table: str, *, time: str = "", only: Sequence[str] = ()) -> Shape:
    """What names a row of a table, and what it says."""
    found = store.rows(_QUERIES["columns"].sql, {"database": database, "table": table})
    return shape_of(table, [(str(name), bool(in_key)) for name, in_key in found], time=time, only=only)


def attach(store: Store, shadow: str, *, raw: bool) -> list[str]:
    """Attach what a replay begins with: what was erased, and if asked for the raw record. Returns what it was.

    The parts are shared with the database in use, by links: nothing is copied, and neither can change the other's.
    """
    names = [*KNOWN, *(RAW if raw else ())]
    present = tables(store, shadow)
    for name in names:
        if name in present:
            # Both names are ours.
            store.command(f"ALTER TABLE {shadow}.{name} ATTACH PARTITION ALL FROM {name}")
    return [name for name in names if name in present]
