"""Brings a database to the schema of this release: numbered migrations, each applied once and never edited after.

Never drops what is not made anew from what stays, and never goes back. Safe to run by several processes at the same
time: every statement may be repeated.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence

from aggregator.config import AggregatorConfig, ClickHouseDsn, parse_dsn
from aggregator.sql import Migration, migrations
from aggregator.store import Store, StoreRefused, StoreUnavailable
from aggregator.store_clickhouse import ClickHouseStore
from enforcer.errors import ConfigError

_LEDGER = """
CREATE TABLE IF NOT EXISTS migrations (
    number UInt32,
    name String,
    checksum String,
    applied_at DateTime64(6, 'UTC') DEFAULT now64(6)
) ENGINE = ReplacingMergeTree ORDER BY (number, checksum)
"""
_APPLIED = "SELECT number, name, checksum FROM migrations FINAL ORDER BY number"


class MigrationError(Exception):
    """The database and this release disagree about what was applied; nothing was changed."""


def migrate(target: str | ClickHouseDsn | Store, *, steps: Sequence[Migration] | None = None) -> list[Migration]:
    """Apply what is missing, in order, and return it; a given address also has its database created.

    Raises:
        MigrationError: an applied migration's text was edited, or the database is newer than this release.
        StoreUnavailable: the database did not answer; what was applied stays, and a repetition goes on from there.
        StoreRefused: a statement or the address was refused.
        ConfigError: the address is malformed.
    """
    known = migrations() if steps is None else steps
    if not isinstance(target, str | ClickHouseDsn):
        return _apply(target, known)
    dsn = parse_dsn(target) if isinstance(target, str) else target
    create_database(dsn)
    # A change of a column's type rewrites it in all parts: on a large record that takes longer than anybody waits.
    store = ClickHouseStore.open(dsn, wait_for_rewrites=False)
    try:
        return _apply(store, known)
    finally:
        store.close()


def create_database(dsn: ClickHouseDsn) -> None:
    """Create the database that an address names, if it is not there."""
    server = ClickHouseStore.open(dsn, database="default")
    try:
        # `parse_dsn` let through letters, digits and underscores only.
        server.command(f"CREATE DATABASE IF NOT EXISTS {dsn.database} ENGINE = Atomic")
    finally:
        server.close()


def pending(applied: Sequence[tuple[int, str, str]], known: Sequence[Migration]) -> list[Migration]:
    """What is still to be applied, given (number, name, checksum) of what was.

    Raises:
        MigrationError: an applied one is unknown or was edited.
    """
    by_number = {step.number: step for step in known}
    for number, name, checksum in applied:
        step = by_number.get(number)
        if step is None:
            raise MigrationError(
                f"the database has migration {number:04d}_{name}, which this release does not know: "
                "run the release that applied it, or a later one"
            )
        if step.checksum != checksum:
            raise MigrationError(
                f"migration {number:04d}_{step.name} was edited after it was applied (checksum {step.checksum[:12]}…, "
                f"applied {checksum[:12]}…): restore its text and write a new migration"
            )
    done = {number for number, _, _ in applied}
    return [step for step in known if step.number not in done]


def _apply(store: Store, known: Sequence[Migration]) -> list[Migration]:
    store.command(_LEDGER)
    missing = pending(
        [(int(number), str(name), str(checksum)) for number, name, checksum in store.rows(_APPLIED)], known
    )
    for step in missing:
        for statement in step.statements:
            store.command(statement)
        # Number, name and checksum come from our own files: digits, [a-z0-9_] and hexadecimal.
        store.command(
            f"INSERT INTO migrations (number, name, checksum) VALUES ({step.number}, '{step.name}', '{step.checksum}')"  # noqa: S608  (see above)
        )
    return missing


def main(environ: Mapping[str, str] | None = None) -> int:
    """Migrate the database that the environment names; 0 if it is up to date afterwards."""
    try:
        dsn = AggregatorConfig.from_env(environ).clickhouse
        done = migrate(dsn)
    except (ConfigError, MigrationError, StoreRefused, StoreUnavailable) as fault:
        sys.stderr.write(f"migrate: {fault}\n")
        return 1
    names = ", ".join(f"{step.number:04d}_{step.name}" for step in done) or "nothing to do"
    sys.stdout.write(f"{dsn.address}: {names}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
