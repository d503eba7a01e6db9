"""Which migrations are still to be applied, and when the database is refused."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pytest

from aggregator.migrate import MigrationError, migrate, pending
from aggregator.sql import read_migration
from aggregator.store import StoreUnavailable

FIRST = read_migration("0001_a.sql", "CREATE TABLE IF NOT EXISTS a (x UInt8) ENGINE = Memory;\nSELECT 1;")
SECOND = read_migration("0002_b.sql", "SELECT 2;")


class _Tables:
    """A store that keeps statements, and can fail at one."""

    def __init__(self, applied: Sequence[tuple[int, str, str]] = (), *, fails_at: str = "") -> None:
        self.statements: list[str] = []
        self._applied = applied
        self._fails_at = fails_at

    def insert(self, table: str, batch: pa.Table) -> None:
        raise NotImplementedError

    def rows(self, sql: str, parameters: Mapping[str, Any] | None = None) -> Sequence[tuple[Any, ...]]:
        return self._applied

    def arrow(self, sql: str, parameters: Mapping[str, Any] | None = None) -> pa.Table:
        raise NotImplementedError

    def command(self, sql: str, parameters: Mapping[str, Any] | None = None) -> None:
        if sql == self._fails_at:
            raise StoreUnavailable("gone")
        self.statements.append(sql)

    def close(self) -> None:
        pass


def _row(step: object) -> tuple[int, str, str]:
    assert isinstance(step, type(FIRST))
    return step.number, step.name, step.checksum


def test_pending_is_what_was_not_applied() -> None:
    """Applied ones are never run again."""
    assert [FIRST, SECOND] == pending([], [FIRST, SECOND])
    assert [SECOND] == pending([_row(FIRST)], [FIRST, SECOND])
    assert [] == pending([_row(FIRST), _row(SECOND)], [FIRST, SECOND])


def test_pending_refuses_an_edited_migration() -> None:
    """The database would not be what the text says."""
    edited = read_migration("0001_a.sql", FIRST.text + "\n-- and a word more")
    with pytest.raises(MigrationError, match="0001_a was edited after it was applied"):
        pending([_row(FIRST)], [edited, SECOND])


def test_pending_refuses_an_edited_migration_that_another_release_applied_beside_the_right_one() -> None:
    """Two releases that start at once can each write their row; the wrong one must still be seen."""
    with pytest.raises(MigrationError, match="edited"):
        pending([_row(FIRST), (1, "a", "f" * 64)], [FIRST])


def test_pending_refuses_a_database_of_a_later_release() -> None:
    """An old release must not write into tables that it does not know."""
    with pytest.raises(MigrationError, match="0002_b, which this release does not know"):
        pending([_row(FIRST), _row(SECOND)], [FIRST])


def test_migrate_notes_a_migration_only_after_all_its_statements() -> None:
    """Cut off half way, it is run again."""
    tables = _Tables(fails_at="SELECT 1")
    with pytest.raises(StoreUnavailable):
        migrate(tables, steps=[FIRST])
    assert not any("INSERT INTO migrations" in statement for statement in tables.statements)

    tables = _Tables()
    assert [FIRST, SECOND] == migrate(tables, steps=[FIRST, SECOND])
    assert FIRST.statements == tables.statements[1:3]
    assert "INSERT INTO migrations" in tables.statements[3]
    assert FIRST.checksum in tables.statements[3]
