"""Which statements the front takes for a way out, beside those of test_front_sql."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from dashboard.store import row_filter
from tallygate.engines.front import fence
from tallygate.engines.front.fence import reaches_outside, refuses_setting, row_filters_reach_outside
from tallygate.engines.front.sql import Word, words_of


@pytest.mark.parametrize(
    "text",
    [
        "SELECT content FROM filesystem('/etc/hostname')",
        "SELECT * FROM eval('SELECT 1')",
        "SELECT * FROM view(SELECT * FROM oss('x'))",
        "CREATE TABLE r (k UInt8) ENGINE=EmbeddedRocksDB(0,'x') PRIMARY KEY k",
        "CREATE TABLE r (k UInt8) ENGINE Kafka",
        "CREATE TABLE r (k UInt8) ENGINE /* = Memory */ = `S3Queue`('x')",
        "CREATE TABLE r (k UInt8) ENGINE = Buffer('default', 'x.csv', 1, 1, 1, 1, 1, 1, 1)",
        "CREATE TABLE r (k UInt8) ENGINE = TomorrowsEngine",
        "CREATE DATABASE d ENGINE = Filesystem('x')",
        "CREATE DICTIONARY d (a UInt64) PRIMARY KEY a SOURCE(CASSANDRA(HOST 'x')) LAYOUT(FLAT())",
        "CREATE DICTIONARY d (a UInt64) PRIMARY KEY a SOURCE ( tomorrow()) LAYOUT(FLAT())",
        "CREATE DICTIONARY d (a UInt64) PRIMARY KEY a SOURCE(NULL()) LAYOUT(SSD_CACHE(PATH 'x'))",
        "CREATE TABLE r (k UInt8) ENGINE = MergeTree ORDER BY k SETTINGS disk = disk(type = 'local', path = 'x')",
        "SELECT * FROM `/etc/hostname`",
        "SELECT * FROM default.`\\x2fetc\\x2fhostname`",
        "SELECT * FROM system.one, '/etc/hostname'",
        "SELECT * FROM (SELECT 1 WHERE 1) AS x JOIN '\\x2fetc/hostname' ON 1",
        "SELECT * FROM $$/etc/hostname$$",
        "DESCRIBE '/etc/hostname'",
        "SELECT aiGenerate('x')",
        "SET allow_experimental_eval_table_function",
        "SELECT 1 SETTINGS max_threads = 1, allow_introspection_functions = 1",
        "SELECT 1 SETTINGS max_threads = 1, `dialect` = 'kusto'",
        "SELECT 1 FORMAT Template SETTINGS format_template_row = '/etc/hostname'",
        "CREATE SETTINGS PROFILE p SETTINGS implicit_table_at_top_level = 'x'",
    ],
)
def test_what_is_not_known_to_stay_inside_is_refused(text: str) -> None:
    """A list of what is closed always misses the next way out."""
    assert reaches_outside(text.encode()) is not None


@pytest.mark.parametrize(
    "text",
    [
        "SELECT format('{}/{}', a, b), merge FROM merge('d', '^t') WHERE url = '/a/b'",
        "SELECT * FROM numbers(10), zeros(1), generateRandom('a UInt8'), view(SELECT '/a')",
        "INSERT INTO t (engine, file) VALUES ('a/b', '\\\\')",
        "CREATE TABLE t (engine LowCardinality(String), n UInt8 COMMENT 'a/b') ENGINE ReplacingMergeTree(n) ORDER BY n",
        "CREATE MATERIALIZED VIEW v ENGINE = Memory AS SELECT engine FROM t",
        "CREATE DATABASE d ENGINE = Atomic",
        "CREATE DICTIONARY d (a UInt64) PRIMARY KEY a SOURCE(NULL()) LAYOUT(FLAT()) LIFETIME(1)",
        "SELECT engine, name FROM system.tables WHERE engine = name ORDER BY name DESC, '/a'",
        "SELECT settings, filter, dialect FROM t WHERE dialect = 'a' ORDER BY filter",
        "SELECT count() FROM t JOIN u ON t.path = '/a' AND u.path IN ('/a', '/b')",
        "SHOW TABLES FROM d LIKE 'a/%'",
        "ALTER TABLE t UPDATE path = '/a' WHERE 1",
        "SELECT 1 SETTINGS use_skip_indexes_if_final = 1, max_threads = 2",
    ],
)
def test_what_stays_inside_is_let_through(text: str) -> None:
    """Names of engines, functions and settings are ordinary columns, and paths are ordinary data."""
    assert reaches_outside(text.encode()) is None


def test_a_bound_identifier_is_a_name_too() -> None:
    """A value of any other type is data, whatever it looks like."""
    text = b"SELECT {s:String} FROM {t : Identifier}"
    assert reaches_outside(text, bound={"t": "/etc/hostname", "s": "a"}) is not None
    assert reaches_outside(text, bound={"t": "events", "s": "/etc/hostname"}) is None


def test_no_value_pushes_out_the_texts_that_pages_ask_again_and_what_is_remembered_is_bounded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """There are as many as there are callers and tables: kept, they would take memory, and the texts' places."""
    read: list[bytes] = []

    def counted(text: bytes) -> Iterator[Word]:
        read.append(text)
        return words_of(text)

    monkeypatch.setattr(fence, "words_of", counted)
    fence._judged.cache_clear()
    page, tables = b"SELECT count() FROM decisions", b"SELECT count() FROM {t:Identifier}"
    for number in range(2_000):
        assert reaches_outside(page) is None
        assert reaches_outside(tables, bound={"t": f"t{number}", "s": "x" * 100_000}) is None
        assert row_filters_reach_outside(row_filter(f"caller-{number}")) is None
    assert (1, 1) == (read.count(page), read.count(tables))
    assert (2, 256) == (fence._judged.cache_info().currsize, fence._filtered.cache_info().currsize)
    assert reaches_outside(tables, bound={"T": "/etc/hostname"}) is not None, "and still each value is looked at"
    for number in range(2_000):
        assert reaches_outside(b"SELECT %d" % number) is None
    assert fence._judged.cache_info().currsize <= 1_024
    long = b"SELECT " + b"1 + " * 10_000 + b"1"
    assert reaches_outside(long) is None
    assert reaches_outside(long) is None
    assert read.count(long) == 2, "a long text is read again rather than kept"


def test_a_function_that_only_the_engine_knows_is_refused() -> None:
    """The next release brings names that nobody has looked at."""
    assert reaches_outside(b"SELECT * FROM tomorrow('x')") is None
    assert reaches_outside(b"SELECT * FROM Tomorrow('x')", table_functions={b"tomorrow"}) is not None


def test_settings_that_open_a_way_out_are_refused() -> None:
    """A setting stands in the URL as well as in the statement."""
    refused = ("allow_experimental_x", "ALLOW_introspection_functions", "dialect", "format_schema", "filter")
    assert all(refuses_setting(name.encode()) for name in refused)
    allowed = ("max_threads", "readonly", "insert_deduplication_token", "format_csv_delimiter", "log_comment")
    assert not any(refuses_setting(name.encode()) for name in allowed)


@pytest.mark.parametrize(
    "value",
    [
        "{}",
        "{'decisions': 'allowed = 1'}",
        row_filter("acme"),
        row_filter("it's (file(\"'/etc/hostname'\")) \\"),
    ],
)
def test_filters_of_rows_are_let_through(value: str) -> None:
    """The pages stand on them: no query of one tenant sees another's rows."""
    assert row_filters_reach_outside(value) is None


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("{'t': 'c IN (SELECT * FROM file(\\'/etc/hostname\\'))'}", "file("),
        ("{'t': 'c IN (SELECT * FROM filesystem(1))', 'u': '1'}", "filesystem("),
        ("{'t': '\\x66ile(1)'}", "additional_table_filters"),
        ("{'t': 'fi''le(1)'}", "additional_table_filters"),
        ("map('t', 'file(1)')", "additional_table_filters"),
        ("{'t': $$file(1)$$}", "additional_table_filters"),
        ("{'t': '1'} or file(1)", "additional_table_filters"),
    ],
)
def test_filters_of_rows_are_read_as_the_statements_they_are(value: str, said: str) -> None:
    """A condition may hold a subquery, and that any table function."""
    found = row_filters_reach_outside(value)
    assert found is not None
    assert said in found
