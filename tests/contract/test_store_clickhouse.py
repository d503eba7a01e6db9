"""`ClickHouseStore` under the contract of `Store`, on whichever ClickHouse the tests have; and its own promises."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from urllib.parse import urlsplit

import pytest

from aggregator.config import parse_dsn
from aggregator.migrate import MigrationError, migrate
from aggregator.sql import migrations, read_migration
from aggregator.store import StoreRefused, StoreUnavailable
from aggregator.store_clickhouse import ClickHouseStore
from tallygate.engines.ports import claim_port
from tests.contract.store import StoreContract, facts


@pytest.fixture
def store(database_dsn: str) -> Iterator[ClickHouseStore]:
    """A handle on an empty database."""
    handle = ClickHouseStore.connect(database_dsn)
    yield handle
    handle.close()


class TestClickHouseStore(StoreContract):
    """The whole suite."""


def test_connect_names_the_address_where_nobody_answers() -> None:
    """The first question of whoever starts it is: where did it look?"""
    port = claim_port(0, purpose="a test", setting="none", host="127.0.0.1")
    with pytest.raises(StoreUnavailable, match=rf"http://127.0.0.1:{port}/x does not answer.*refused"):
        ClickHouseStore.connect(f"http://me:hunter2@127.0.0.1:{port}/x", connect_timeout_s=1)


def test_connect_names_an_unknown_database_and_how_to_make_it(clickhouse_dsn: str) -> None:
    """The commonest mistake of a first start."""
    dsn = urlsplit(clickhouse_dsn)._replace(path="/no_such_database").geturl()
    with pytest.raises(StoreRefused, match=r"no_such_database.*migrate"):
        ClickHouseStore.connect(dsn)


def test_connect_with_a_wrong_password_says_so_without_showing_it(clickhouse_dsn: str) -> None:
    """A password in a log is a leak."""
    server = urlsplit(clickhouse_dsn)
    wrong = server._replace(netloc=f"somebody:hunter2@{server.hostname}:{server.port}").geturl()
    with pytest.raises(StoreRefused, match="user and password") as caught:
        ClickHouseStore.connect(wrong)
    assert "hunter2" not in str(caught.value)


def test_insert_with_a_token_that_was_seen_is_dropped(store: ClickHouseStore) -> None:
    """The cheap first fence against an insert that was sent twice."""
    store.command(
        "CREATE TABLE facts (id UInt64, name String, at DateTime64(6, 'UTC'), day UInt8) ENGINE = MergeTree "
        "ORDER BY id SETTINGS non_replicated_deduplication_window = 100"
    )
    for token in ("a", "a", "b"):
        store.insert("facts", facts([1, 2]), token=token)
    assert [(4,)] == list(store.rows("SELECT count() FROM facts"))


def test_migrate_creates_database_and_tables_and_can_be_repeated(clickhouse_dsn: str, store: ClickHouseStore) -> None:
    """Every process runs it at its start, and many start at once."""
    name = str(store.rows("SELECT currentDatabase()")[0][0]) + "_new"
    dsn = urlsplit(clickhouse_dsn)._replace(path=f"/{name}").geturl()
    try:
        assert list(migrations()) == migrate(dsn)
        assert [] == migrate(dsn)
        tables = store.rows("SELECT name FROM system.tables WHERE database = {name:String}", {"name": name})
        assert {"decisions", "blocks", "conflicts", "grants", "settlements", "control", "dead_letters", "live"} <= {
            row[0] for row in tables
        }
    finally:
        store.command(f"DROP DATABASE IF EXISTS {name} SYNC")


def test_migrate_refuses_an_edited_migration(store: ClickHouseStore) -> None:
    """A table that is not what its text says cannot be disputed in writing."""
    first = read_migration("0001_a.sql", "CREATE TABLE IF NOT EXISTS a (x UInt8) ENGINE = MergeTree ORDER BY x;")
    assert [first] == migrate(store, steps=[first])
    edited = read_migration("0001_a.sql", "CREATE TABLE IF NOT EXISTS a (x UInt16) ENGINE = MergeTree ORDER BY x;")
    with pytest.raises(MigrationError, match="edited"):
        migrate(store, steps=[edited])


def test_arrow_gives_all_rows_as_columns_with_names_as_dictionaries(store: ClickHouseStore) -> None:
    """Millions of rows: names once each, numbers as they are; values are bound as everywhere."""
    sql = (
        "SELECT toLowCardinality(concat('c', toString(number % 3))) AS name, number FROM numbers({count:UInt64}) "
        "ORDER BY number SETTINGS max_block_size = 1000"
    )
    found = store.arrow(sql, {"count": 5_000}).unify_dictionaries().combine_chunks()
    assert ["c0", "c1", "c2", "c0"] == found["name"].to_pylist()[:4]
    assert len(found["name"].chunk(0).dictionary) <= 4
    assert list(range(5_000)) == found["number"].to_pylist()
    assert 0 == store.arrow(sql, {"count": 0}).num_rows


def test_arrow_that_fails_half_way_is_refused_whole(store: ClickHouseStore) -> None:
    """Half an answer would be half a truth about a minute."""
    with pytest.raises(StoreRefused):
        store.arrow("SELECT number, throwIf(number > 200000) FROM numbers(300000) SETTINGS max_block_size = 1000")
    assert [(7,)] == list(store.rows("SELECT 7"))


def test_an_alter_that_nobody_waits_for_is_read_at_once_and_rewritten_later(
    store: ClickHouseStore, database_dsn: str
) -> None:
    """An upgrade of a month of decisions must not hold up the start of what reads and writes them."""
    store.command("CREATE TABLE named (name LowCardinality(String)) ENGINE = MergeTree ORDER BY ()")
    store.command("INSERT INTO named VALUES ('pro')")
    store.command("SYSTEM STOP MERGES named")

    with closing(ClickHouseStore.open(parse_dsn(database_dsn), wait_for_rewrites=False, answer_timeout_s=10)) as other:
        other.command("ALTER TABLE named MODIFY COLUMN name String")

    assert [("pro", "String")] == list(store.rows("SELECT name, toTypeName(name) FROM named"))
    assert [(0,)] == list(store.rows("SELECT is_done FROM system.mutations WHERE table = 'named'"))


def test_statements_of_a_handle_that_gives_way_do_so_and_no_others(clickhouse_dsn: str) -> None:
    """The settler shares the database with the live path, which must not wait for it."""
    asked = "SELECT value FROM system.settings WHERE name = 'os_threads_nice_value_query'"
    for nice in (0, 7):
        with closing(ClickHouseStore.open(parse_dsn(clickhouse_dsn), nice=nice)) as store:
            assert store.rows(asked) == [(str(nice),)]
