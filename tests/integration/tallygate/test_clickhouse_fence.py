"""Every way out that the installed engine has, tried through the front."""

from __future__ import annotations

import http.client
import uuid
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlencode, urlsplit

import clickhouse_connect
import pytest
from clickhouse_connect.driver.client import Client

from tallygate.engines.front.fence import INSIDE_ENGINES, INSIDE_FUNCTIONS, INSIDE_SOURCES, TABLE_FUNCTIONS

_REFUSED = "344"
#: Those that do not parse with a string.
_ARGUMENTS = {"viewexplain": "'EXPLAIN', '', (SELECT 1)", "viewifpermitted": "SELECT 1 ELSE null('x UInt8')"}
#: The engine has no table of them.
_SOURCES = (
    *("file", "mysql", "clickhouse", "mongodb", "redis", "cassandra", "executable", "executablepool", "http", "odbc"),
    *("jdbc", "postgresql", "yamlregexptree", "ytsaurus", "sqlite", "null"),
)
#: Words that end a list of tables, and some that do not.
_WORDS = """where prewhere on using group order having limit offset qualify window settings format union except
    intersect select sample like ilike in final values set comment"""


@pytest.fixture
def client(database_dsn: str) -> Iterator[Client]:
    """A client of a new database."""
    connected = clickhouse_connect.get_client(dsn=database_dsn)
    yield connected
    connected.close()


def _post(dsn: str, statement: str, **parameters: str) -> tuple[str | None, str]:
    """The engine's code of an error, and the answer."""
    address = urlsplit(dsn)
    connection = http.client.HTTPConnection(address.hostname or "", address.port, timeout=30)
    try:
        url = "/?" + urlencode({"database": address.path[1:], **parameters})
        connection.request("POST", url, statement.encode())
        answer = connection.getresponse()
        return answer.headers["X-ClickHouse-Exception-Code"], answer.read().decode()
    finally:
        connection.close()


def _names(client: Client, table: str) -> set[str]:
    return {row[0].lower() for row in client.query(f"SELECT name FROM system.{table}").result_rows}


def test_every_table_function_is_allowed_or_refused(client: Client, database_dsn: str) -> None:
    """A new release of the engine may bring a new way out, which somebody must look at."""
    names = _names(client, "table_functions")
    allowed = {name.decode() for name in INSIDE_FUNCTIONS}
    assert names - allowed == names & {name.decode() for name in TABLE_FUNCTIONS}
    for name in sorted(names - allowed):
        code, text = _post(database_dsn, f"SELECT * FROM {name}({_ARGUMENTS.get(name, repr('x'))})", readonly="2")
        assert (code, f"{name}( is disabled" in text) == (_REFUSED, True), text


@pytest.mark.parametrize(
    ("table", "kind"), [("table_engines", "TABLE e (a UInt8)"), ("database_engines", "DATABASE e")]
)
def test_every_engine_is_allowed_or_refused(client: Client, database_dsn: str, table: str, kind: str) -> None:
    """A table of an engine that reaches out reads a file whenever it is asked."""
    names = _names(client, table)
    refused = names - {name.decode() for name in INSIDE_ENGINES}
    assert {"postgresql", "s3"} <= refused
    for name in sorted(refused):
        for sign in ("= ", ""):
            code, text = _post(database_dsn, f"CREATE {kind} ENGINE {sign}{name}('x')")
            assert (code, f"ENGINE {name} is disabled" in text) == (_REFUSED, True), text


def test_every_dictionary_source_is_allowed_or_refused(database_dsn: str) -> None:
    """A dictionary loads by itself, long after its statement."""
    for name in _SOURCES:
        create = f"CREATE DICTIONARY d (a UInt64) PRIMARY KEY a SOURCE({name}()) LAYOUT(FLAT()) LIFETIME(1)"
        code, text = _post(database_dsn, create)
        assert (code == _REFUSED) == (name.encode() not in INSIDE_SOURCES), text


def test_a_file_is_no_table_of_the_default_database(clickhouse_dsn: str, tmp_path: Path) -> None:
    """The engine lays the file system under its database ``default``, for people at a terminal."""
    secret = tmp_path / "secret.csv"
    secret.write_text("secret\n")
    escaped = str(secret).replace("/", "\\x2f")
    for statement in (
        f"SELECT * FROM `{secret}`",
        f"SELECT * FROM '{secret}'",
        f"SELECT * FROM default.`{escaped}`",
        f"SELECT * FROM system.one AS a, '{escaped}' AS b",
        "SELECT * FROM {t:Identifier}",
    ):
        code, text = _post(clickhouse_dsn, statement, param_t=str(secret))
        assert (code, "secret\n" in text) == (_REFUSED, False), text


@pytest.mark.parametrize("word", _WORDS.split())
def test_no_alias_hides_a_file(clickhouse_dsn: str, tmp_path: Path, word: str) -> None:
    """Where a list of tables ends is told by words, which may be names too."""
    secret = tmp_path / "secret.csv"
    secret.write_text("secret\n")
    for alias in (word, f"AS {word}", f'"{word}"', f"x, (SELECT 1) {word}", f"x, (SELECT 1) AS {word}"):
        code, text = _post(clickhouse_dsn, f"SELECT * FROM (SELECT 2) {alias}, '{secret}' AS y")
        assert (code is None, "secret\n" in text) == (False, False), text


def test_a_file_beside_the_front_is_no_table(clickhouse_dsn: str) -> None:
    """A name without a path is one of the folder in which the process runs."""
    beside = Path.cwd() / f"beside-{uuid.uuid4().hex}.csv"
    beside.write_text("secret\n")
    try:
        assert _post(clickhouse_dsn, f"SELECT * FROM `{beside.name}`")[0] == "60"
    finally:
        beside.unlink()


def test_settings_open_nothing(database_dsn: str) -> None:
    """`eval` runs a text that no fence has read."""
    evil = "SELECT * FROM eval(concat('SELECT * FROM fi', 'le(''/etc/hostname'', ''LineAsString'')'))"
    assert _post(database_dsn, evil, allow_experimental_eval_table_function="1")[0] == _REFUSED
    assert _post(database_dsn, "SELECT 1", allow_experimental_eval_table_function="1")[0] == _REFUSED
    assert _post(database_dsn, "SELECT 1 SETTINGS allow_introspection_functions = 1")[0] == _REFUSED
    assert _post(database_dsn, "SELECT 1", dialect="kusto")[0] == _REFUSED
    assert _post(database_dsn, "SELECT 1 SETTINGS max_threads = 1") == (None, "1\n")
