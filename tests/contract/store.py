"""What every `Store` must do. Subclassed once for each implementation and engine.

Uses tables of its own in an empty database.
"""

from __future__ import annotations

from datetime import UTC, datetime

import pyarrow as pa
import pytest

from aggregator.store import Store, StoreRefused, StoreUnavailable

_TABLE = """
CREATE TABLE facts (id UInt64, name LowCardinality(String), at DateTime64(6, 'UTC'), day UInt8)
ENGINE = ReplacingMergeTree PARTITION BY day ORDER BY id
"""


def facts(ids: list[int], *, name: str = "a", day: int = 1) -> pa.Table:
    """Rows for the table."""
    names = pa.DictionaryArray.from_arrays(pa.array([0] * len(ids), pa.int8()), pa.array([name]))
    return pa.table(
        {
            "name": names,
            "id": pa.array(ids, pa.uint64()),
            "at": pa.array([1_767_312_000_123_456] * len(ids), pa.timestamp("us", "UTC")),
            "day": pa.array([day] * len(ids), pa.uint8()),
        }
    )


class StoreContract:
    """The suite. A subclass gives the fixture `store`: a handle on an empty database."""

    @pytest.fixture(autouse=True)
    def _tables(self, store: Store) -> None:
        store.command(_TABLE)

    def test_insert_stores_every_row_under_the_names_of_its_columns(self, store: Store) -> None:
        """The order of columns in a batch is nobody's promise."""
        store.insert("facts", facts([2**64 - 1, 0], name="ä'\\\n"))
        expected_at = datetime(2026, 1, 2, 0, 0, 0, 123456, UTC)
        assert [(0, "ä'\\\n", expected_at, 1), (2**64 - 1, "ä'\\\n", expected_at, 1)] == list(
            store.rows("SELECT id, name, at, day FROM facts ORDER BY id")
        )

    def test_insert_makes_one_part_of_one_batch(self, store: Store) -> None:
        """Only one part is atomic: several could be half there after a crash."""
        store.command("SYSTEM STOP MERGES facts")
        store.insert("facts", facts(list(range(1_000_000))))
        parts = store.rows(
            "SELECT count(), sum(rows) FROM system.parts WHERE active AND table = 'facts' "
            "AND database = currentDatabase()"
        )
        assert [(1, 1_000_000)] == list(parts)

    def test_insert_refuses_more_rows_than_one_part_holds(self, store: Store) -> None:
        """Better an error in the code that batches than a torn batch after a crash."""
        with pytest.raises(ValueError, match="1,000,001 rows; allowed"):
            store.insert("facts", facts(list(range(1_000_001))))
        assert [(0,)] == list(store.rows("SELECT count() FROM facts"))

    def test_insert_of_nothing_does_nothing(self, store: Store) -> None:
        """An empty batch is not a part."""
        store.insert("facts", facts([]))
        assert [(0,)] == list(store.rows("SELECT count() FROM facts"))

    def test_insert_twice_is_read_once(self, store: Store) -> None:
        """At-least-once delivery is enough because of this."""
        for ids in ([1, 2, 3], [1, 2], [2, 3, 4]):
            store.insert("facts", facts(ids))
        assert [(4,)] == list(store.rows("SELECT count() FROM facts FINAL"))

    def test_insert_that_does_not_fit_the_table_is_refused_and_stores_nothing(self, store: Store) -> None:
        """Repeating it will not help, and half of it must not stay."""
        wrong = pa.table({"id": pa.array([1], pa.uint64()), "nonsense": pa.array([1])})
        with pytest.raises(StoreRefused, match="nonsense"):
            store.insert("facts", wrong)
        with pytest.raises(StoreRefused, match="migrate"):
            store.insert("no_such_table", facts([1]))
        assert [(0,)] == list(store.rows("SELECT count() FROM facts"))

    @pytest.mark.parametrize(
        ("table", "error"),
        [
            ("(id UInt64, CONSTRAINT small CHECK id < 5) ENGINE = MergeTree ORDER BY id", StoreRefused),
            ("(id UInt64) ENGINE = MergeTree ORDER BY id SETTINGS parts_to_throw_insert = 1", StoreUnavailable),
        ],
    )
    def test_insert_that_fails_at_its_very_end_is_raised(
        self, store: Store, table: str, error: type[Exception]
    ) -> None:
        """An insert that returns is acknowledged in the log: had it stored nothing, those decisions were lost."""
        store.command(f"CREATE TABLE strict {table}")
        store.insert("strict", pa.table({"id": pa.array([1], pa.uint64())}))
        with pytest.raises(error):
            store.insert("strict", pa.table({"id": pa.array([9], pa.uint64())}))
        assert [(1,)] == list(store.rows("SELECT id FROM strict"))

    def test_rows_bind_values_on_the_server(self, store: Store) -> None:
        """A value is data, whatever it looks like."""
        store.insert("facts", facts([1], name="x' OR '1'='1"))
        found = store.rows(
            "SELECT id FROM facts WHERE name = {name:String} AND id IN {ids:Array(UInt64)}",
            {"name": "x' OR '1'='1", "ids": [1, 2]},
        )
        assert [(1,)] == list(found)
        assert [] == list(store.rows("SELECT id FROM facts WHERE name = {name:String}", {"name": "' OR 1=1 --"}))

    def test_rows_are_right_after_a_query_that_failed_half_way(self, store: Store) -> None:
        """What a failed query left over must never be another one's answer."""
        with pytest.raises(StoreRefused):
            store.rows("SELECT number, throwIf(number > 200000) FROM numbers(300000) SETTINGS max_block_size = 1000")
        assert [(7,)] == list(store.rows("SELECT 7"))

    def test_command_that_is_wrong_is_refused(self, store: Store) -> None:
        """And the handle goes on working."""
        with pytest.raises(StoreRefused):
            store.command("CREATE NONSENSE")
        assert [(1,)] == list(store.rows("SELECT 1"))

    def test_close_twice_is_harmless(self, store: Store) -> None:
        """Shutdown paths meet."""
        store.close()
        store.close()
