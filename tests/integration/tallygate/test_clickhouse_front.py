"""The embedded ClickHouse, asked as its clients ask a real server."""

from __future__ import annotations

import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from urllib.parse import urlencode, urlsplit

import clickhouse_connect
import pyarrow as pa
import pytest
from clickhouse_connect.driver.client import Client
from clickhouse_connect.driver.exceptions import DatabaseError, Error

from tests.unit.tallygate.test_front_sql import AROUND

INJECTION = "a'; DROP TABLE events; -- \\ \t \n ` \" é"


@pytest.fixture
def client(database_dsn: str) -> Iterator[Client]:
    """A client of a new database with one table."""
    connected = clickhouse_connect.get_client(dsn=database_dsn)
    connected.command("CREATE TABLE events (n UInt64, s LowCardinality(String)) ENGINE = MergeTree ORDER BY n")
    yield connected
    connected.close()


def _table(rows: int) -> pa.Table:
    return pa.table({"n": pa.array(range(rows), pa.uint64()), "s": pa.array([f"k{n % 100}" for n in range(rows)])})


def _arrow_stream(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def _get(
    dsn: str, parameters: dict[str, str], *, headers: dict[str, str] | None = None, body: bytes | None = None
) -> bytes:
    address = urlsplit(dsn)
    url = f"http://{address.hostname}:{address.port}/?{urlencode({'database': address.path[1:], **parameters})}"
    with urllib.request.urlopen(urllib.request.Request(url, body, headers or {}), timeout=30) as response:
        return bytes(response.read())


def test_bound_parameters_are_data(client: Client) -> None:
    """A caller's name goes into every page's query; it must never be read as SQL."""
    row = client.query(
        "SELECT {s:String}, {a:Array(String)}, {n:Array(UInt64)}, {t:DateTime64(3, 'UTC')}, {i:Identifier} FROM events",
        parameters={
            "s": INJECTION,
            "a": [INJECTION, ""],
            "n": [1, 2**64 - 1],
            "t": datetime(2030, 1, 2, 3, 4, 5, 678_000, UTC),
            "i": "n",
        },
    )
    assert row.result_rows == []
    client.insert("events", [[7, "x"]], column_names=["n", "s"])
    again = client.query(
        "SELECT {s:String}, {a:Array(String)}, {n:Array(UInt64)}, {i:Identifier} FROM events",
        parameters={"s": INJECTION, "a": [INJECTION, ""], "n": [1, 2**64 - 1], "i": "n"},
    )
    assert again.result_rows == [(INJECTION, [INJECTION, ""], [1, 2**64 - 1], 7)]


def test_long_parameters_go_as_a_form(database_dsn: str) -> None:
    """A list of a thousand callers does not fit into a URL."""
    client = clickhouse_connect.get_client(dsn=database_dsn, form_encode_query_params=True)
    names = [f"caller-{n}-{'x' * 50}" for n in range(2_000)]
    assert client.query("SELECT length({a:Array(String)})", parameters={"a": names}).result_rows == [(2_000,)]
    client.close()


@pytest.mark.parametrize(
    ("statement", "code"),
    [
        ("SELEC 1", 62),
        ("SELECT nothing", 47),
        ("SELECT * FROM nowhere", 60),
        ("SELECT throwIf(number = 150000) FROM numbers(200000)", 395),
        ("SELECT 1 SETTINGS no_such_setting = 1", 115),
    ],
)
def test_errors_carry_the_engines_code_and_leave_nothing_behind(client: Client, statement: str, code: int) -> None:
    """The engine puts a failed query's output before the next result of the same handle: another customer's rows."""
    for _ in range(3):
        with pytest.raises(DatabaseError) as failed:
            client.query(statement)
        assert failed.value.code == code
        assert f"Code: {code}." in str(failed.value)
        assert client.query("SELECT 'clean'").result_rows == [("clean",)]


def test_unknown_database_is_refused(clickhouse_dsn: str) -> None:
    """A misspelt DSN must not fall back to another database."""
    with pytest.raises(DatabaseError) as failed:
        clickhouse_connect.get_client(dsn=clickhouse_dsn.replace("/default", "/no_such_database")).query("SELECT 1")
    assert failed.value.code == 81


@pytest.mark.parametrize(
    "statement", ["SELECT 1; SELECT 2", "SELECT 1; DROP TABLE events", "DROP TABLE events; nonsense("]
)
def test_several_statements_are_refused_and_none_runs(client: Client, statement: str) -> None:
    """The engine itself would run them one after the other."""
    with pytest.raises(DatabaseError) as failed:
        client.command(statement)
    assert failed.value.code == 62
    assert client.query("SHOW TABLES").result_rows == [("events",)]


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT * FROM file('/etc/hostname', 'LineAsString')",
        "SELECT 1 INTO OUTFILE '/tmp/tallygate-outfile'",
        "INSERT INTO events FROM INFILE '/etc/hostname' FORMAT TSV",
        "SELECT * FROM url('http://127.0.0.1:1/', 'LineAsString')",
        *(text.decode() for text in AROUND),
    ],
)
def test_statements_cannot_reach_files_and_other_hosts(client: Client, statement: str) -> None:
    """The engine runs as the user who started it, and could read whatever that user can."""
    with pytest.raises(DatabaseError) as failed:
        client.command(statement)
    assert failed.value.code == 344


def test_a_million_rows_become_one_part(client: Client) -> None:
    """One part is what makes an insert all or nothing."""
    summary = client.raw_insert("events", ["n", "s"], _arrow_stream(_table(1_000_000)), fmt="ArrowStream")
    assert summary.written_rows == 1_000_000
    assert client.query("SELECT count(), sum(n), uniqExact(s) FROM events").result_rows == [
        (10**6, 499_999_500_000, 100)
    ]
    parts = client.query("SELECT rows FROM system.parts WHERE database = currentDatabase() AND active").result_rows
    assert parts == [(1_000_000,)]


@pytest.mark.parametrize("compression", ["lz4", "zstd", "gzip"])
def test_compressed_inserts_and_results(database_dsn: str, client: Client, compression: str) -> None:
    """Clients compress by themselves, and each has its favourite."""
    packed = clickhouse_connect.get_client(dsn=database_dsn, compress=compression)
    packed.insert("events", [[n, f"s{n % 7}"] for n in range(10_000)], column_names=["n", "s"])
    rows = packed.query("SELECT n, s FROM events ORDER BY n").result_rows
    assert rows[9_999] == (9_999, "s3")
    with packed.query_row_block_stream("SELECT number FROM numbers(2000000)") as blocks:
        assert sum(len(block) for block in blocks) == 2_000_000
    packed.close()


def test_raw_formats_both_ways(client: Client) -> None:
    """The recorder sends Arrow, people send JSON and CSV."""
    client.raw_insert("events", ["n", "s"], b'{"n": 1, "s": "a"}\n{"n": 2, "s": "b"}\n', fmt="JSONEachRow")
    client.raw_insert("events", ["n", "s"], b"3,c\n", fmt="CSV")
    client.insert_arrow("events", _table(2))
    assert (
        client.raw_query("SELECT n, s FROM events WHERE n > 0 AND s < 'k' ORDER BY n", fmt="CSV")
        == b'1,"a"\n2,"b"\n3,"c"\n'
    )
    assert client.query_arrow("SELECT count() AS c FROM events").to_pylist() == [{"c": 5}]
    client.command("INSERT INTO events VALUES (9, 'x;y')")
    assert client.query("SELECT s FROM events WHERE n = 9").result_rows == [("x;y",)]


def test_a_broken_insert_writes_nothing(client: Client) -> None:
    """What is refused must not be half there."""
    whole = _arrow_stream(_table(10_000))
    for body in (whole[:-2_000], b"garbage" * 100, b""):
        with pytest.raises(Error):
            client.raw_insert("events", ["n", "s"], body, fmt="ArrowStream")
    assert client.query("SELECT count() FROM events").result_rows == [(0,)]


def test_settings_hold_for_one_statement_only(client: Client) -> None:
    """A limit left behind on a handle would strike the next request."""
    with pytest.raises(DatabaseError) as failed:
        client.query("SELECT sum(sipHash64(number)) FROM numbers(20000000000)", settings={"max_execution_time": 1})
    assert failed.value.code == 159
    with pytest.raises(DatabaseError) as limited:
        client.query("SELECT number FROM numbers(100)", settings={"max_result_rows": 10})
    assert limited.value.code == 396
    assert len(client.query("SELECT number FROM numbers(100)").result_rows) == 100


def test_an_error_after_the_first_rows_is_raised_by_the_client(client: Client) -> None:
    """A stream that simply ended would look like a complete answer."""
    statement = "SELECT number, throwIf(number = 30000000) FROM numbers(40000000)"
    with pytest.raises(Error, match="throwIf"), client.query_row_block_stream(statement) as blocks:
        for _ in blocks:
            pass


def test_get_never_writes(database_dsn: str, client: Client) -> None:
    """Links are followed by machines."""
    for statement in (
        "INSERT INTO events VALUES (1, 'a')",
        "DROP TABLE events",
        "CREATE TABLE x (a Int8) ENGINE = Memory",
    ):
        with pytest.raises(urllib.error.HTTPError) as refused:
            _get(database_dsn, {"query": statement})
        assert refused.value.headers["X-ClickHouse-Exception-Code"] == "164"
        assert b"use POST" in refused.value.read()
    assert _get(database_dsn, {"query": "SELECT count() FROM events FORMAT CSV"}) == b"0\n"


def test_plain_http_as_curl_and_grafana_send_it(database_dsn: str, client: Client) -> None:
    """The interface is more than one client library."""
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    assert _get(database_dsn, {}, body=b"SELECT 1", headers=form) == b"1\n"
    assert b'"rows": 1' in _get(database_dsn, {"query": "SELECT 1 AS a", "default_format": "JSON"})
    assert _get(database_dsn, {"query": "INSERT INTO events FORMAT TSV"}, body=b"5\tfive\n") == b""
    assert _get(database_dsn, {"query": "SELECT s FROM events"}) == b"five\n"


def test_requests_from_web_pages_are_refused(database_dsn: str) -> None:
    """Any page in a browser on this machine could otherwise drop our tables."""
    with pytest.raises(urllib.error.HTTPError) as refused:
        _get(database_dsn, {}, body=b"SELECT 1", headers={"Origin": "http://evil.example"})
    assert refused.value.code == 403
    refused.value.close()


def test_reads_go_on_beside_inserts(client: Client, database_dsn: str) -> None:
    """A page must not wait until the recorder is done."""
    body = _arrow_stream(_table(1_000_000))
    stop = threading.Event()

    def write() -> int:
        writer = clickhouse_connect.get_client(dsn=database_dsn)
        written = 0
        while not stop.is_set():
            writer.raw_insert("events", ["n", "s"], body, fmt="ArrowStream")
            written += 1
        writer.close()
        return written

    with ThreadPoolExecutor(2) as pool:
        writing = [pool.submit(write) for _ in range(2)]
        try:
            counts = [client.query("SELECT count() FROM events").result_rows[0][0] for _ in range(30)]
        finally:
            stop.set()
        total = sum(future.result() for future in writing)
    assert counts == sorted(counts)
    assert all(count % 1_000_000 == 0 for count in counts)
    assert client.query("SELECT count() FROM events").result_rows == [(total * 1_000_000,)]


def test_many_clients_at_once_get_their_own_answers(database_dsn: str) -> None:
    """Answers of concurrent requests must never be mixed up, also when some of them fail."""

    def ask(number: int) -> list[int]:
        own = clickhouse_connect.get_client(dsn=database_dsn)
        answers = []
        for step in range(20):
            if (number + step) % 4 == 0:
                with pytest.raises(DatabaseError):
                    own.query(f"SELECT throwIf(number = 90000, 'no'), {number} FROM numbers(100000)")
            answers.append(own.query("SELECT {n:UInt32}", parameters={"n": number}).result_rows[0][0])
        own.close()
        return answers

    with ThreadPoolExecutor(12) as pool:
        assert list(pool.map(ask, range(12))) == [[number] * 20 for number in range(12)]


async def test_async_client(database_dsn: str) -> None:
    """The dashboard asks asynchronously."""
    client = await clickhouse_connect.get_async_client(dsn=database_dsn)
    await client.command("CREATE TABLE a (n UInt64) ENGINE = MergeTree ORDER BY n")
    await client.insert("a", [[n] for n in range(1_000)], column_names=["n"])
    result = await client.query("SELECT sum(n) FROM a WHERE n < {m:UInt64}", parameters={"m": 10})
    assert result.result_rows == [(45,)]
    with pytest.raises(DatabaseError):
        await client.query("SELECT nothing")
    assert await client.ping()
    await client.close()
