"""The embedded ClickHouse as a process: users, clients that go away, kills, and what is left on disk."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import urlencode, urlsplit

import clickhouse_connect
import pyarrow as pa
import pytest
from clickhouse_connect.driver.client import Client
from clickhouse_connect.driver.exceptions import DatabaseError, Error

from tallygate.engines.clickhouse import ClickHouse, start_clickhouse
from tallygate.engines.front.users import User
from tallygate.engines.front.yielding import merging_threads
from tests.processes import kill, wait_until

_ENDLESS = "SELECT sum(sipHash64(number)) FROM numbers(1000000000000)"


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClickHouse]:
    """A server with a writing and a read-only user."""
    users = [User.with_password("ops", "pässword"), User.with_password("page", "p", readonly=True)]
    server = start_clickhouse(tmp_path_factory.mktemp("guarded"), users=users)
    yield server
    server.stop()


def _client(server: ClickHouse, name: str, password: str) -> Client:
    return clickhouse_connect.get_client(host="127.0.0.1", port=server.port, username=name, password=password)


def _rows(count: int) -> bytes:
    table = pa.table({"n": pa.array(range(count), pa.uint64())})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def test_wrong_password_is_refused(guarded: ClickHouse) -> None:
    """Without users in the file `default` is open; with them it must not be."""
    for name, password in (("ops", "wrong"), ("default", ""), ("nobody", "pässword")):
        with pytest.raises(DatabaseError) as refused:
            _client(guarded, name, password)
        assert refused.value.code == 516


def test_readonly_user_reads_and_cannot_write_or_lift_its_limits(guarded: ClickHouse) -> None:
    """The pages ask with this user: a fault in one of them must not be able to change the record."""
    ops, page = _client(guarded, "ops", "pässword"), _client(guarded, "page", "p")
    ops.command("CREATE TABLE IF NOT EXISTS t (n UInt64) ENGINE = MergeTree ORDER BY n")
    ops.insert("t", [[1]], column_names=["n"])
    assert page.query("SELECT n FROM t WHERE n = {n:UInt64}", parameters={"n": 1}).result_rows == [(1,)]
    for statement in (
        "INSERT INTO t VALUES (2)",
        "DROP TABLE t",
        "TRUNCATE TABLE t",
        "CREATE TABLE x (a Int8) ENGINE = Memory",
    ):
        with pytest.raises(DatabaseError) as refused:
            page.command(statement)
        assert refused.value.code == 164
    with pytest.raises(DatabaseError) as refused:
        page.raw_insert("t", ["n"], b"3\n", fmt="TSV")
    assert refused.value.code == 164
    with pytest.raises(DatabaseError) as lifted:
        page.query("SELECT n FROM t SETTINGS readonly = 0")
    assert lifted.value.code == 164
    assert ops.query("SELECT count() FROM t").result_rows == [(1,)]
    for client in (ops, page):
        client.close()


def test_query_ends_when_its_client_goes(database_dsn: str) -> None:
    """A page that was closed must not keep a core busy for minutes."""
    address = urlsplit(database_dsn)
    watcher = clickhouse_connect.get_client(dsn=database_dsn)

    def running() -> int:
        counted = "SELECT count() FROM system.processes WHERE startsWith(query, {q:String})"
        return int(watcher.query(counted, parameters={"q": _ENDLESS}).result_rows[0][0])

    with socket.create_connection((address.hostname or "", address.port or 0)) as connection:
        target = f"/?{urlencode({'query': _ENDLESS})}"
        connection.sendall(f"GET {target} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        wait_until(lambda: running() == 1, 10, what="the query")
    wait_until(lambda: running() == 0, 10, what="the end of the query")
    watcher.close()


def test_acknowledged_inserts_survive_a_kill_and_torn_ones_leave_nothing(tmp_path: Path) -> None:
    """The recorder commits its offsets once an insert is acknowledged, and repeats the others."""
    server = start_clickhouse(tmp_path / "data")
    body = _rows(50_000)
    client = clickhouse_connect.get_client(dsn=server.dsn_for("default"))
    client.command("CREATE DATABASE m ENGINE = Atomic")
    client.command("CREATE TABLE m.t (n UInt64) ENGINE = MergeTree ORDER BY n")

    def write() -> int:
        writer, acknowledged = clickhouse_connect.get_client(dsn=server.dsn_for("m")), 0
        try:
            while True:
                writer.raw_insert("t", ["n"], body, fmt="ArrowStream")
                acknowledged += 1
        except Error:  # the server was killed under it
            return acknowledged
        finally:
            writer.close()

    with ThreadPoolExecutor(2) as pool:
        writing = [pool.submit(write) for _ in range(2)]
        wait_until(lambda: client.command("SELECT count() FROM m.t") != 0, 10)
        time.sleep(0.5)
        kill(server.pid)
        acknowledged = sum(future.result() for future in writing)
    client.close()
    server.stop()
    left = tmp_path / "data" / "tmp" / "left-over"
    left.write_bytes(b"x")
    server = start_clickhouse(tmp_path / "data", server.port)
    again = clickhouse_connect.get_client(dsn=server.dsn_for("m"))
    rows = int(again.query("SELECT count() FROM t").result_rows[0][0])
    again.close()
    server.stop()
    assert acknowledged > 0
    assert rows % 50_000 == 0
    assert acknowledged <= rows // 50_000 <= acknowledged + 2
    assert not left.exists()


def test_stop_lets_a_running_insert_finish(tmp_path: Path) -> None:
    """An orderly end is no reason for a client to see an error."""
    server = start_clickhouse(tmp_path / "data")
    client = clickhouse_connect.get_client(dsn=server.dsn_for("default"))
    client.command("CREATE DATABASE m ENGINE = Atomic")
    client.command("CREATE TABLE m.t (n UInt64) ENGINE = MergeTree ORDER BY n")
    slow = "INSERT INTO m.t SELECT number + sleepEachRow(0.1) FROM numbers(15) SETTINGS max_block_size = 1"
    watcher = clickhouse_connect.get_client(dsn=server.dsn_for("default"))
    with ThreadPoolExecutor(1) as pool:
        inserting = pool.submit(client.command, slow)
        counted = "SELECT count() FROM system.processes WHERE startsWith(query, 'INSERT INTO m.t')"
        wait_until(lambda: watcher.query(counted).result_rows == [(1,)], 10, what="the insert")
        watcher.close()
        server.stop()
        inserting.result()
    client.close()
    assert server.child.exit_code() == 0


def test_merges_give_way_to_whoever_waits_for_an_answer(guarded: ClickHouse) -> None:
    """On a small machine a merge would else take half of what inserts and pages need, and it can wait."""
    ops = _client(guarded, "ops", "pässword")
    ops.command("CREATE TABLE merged (n UInt64) ENGINE = MergeTree ORDER BY n")
    for number in range(3):
        ops.insert("merged", [[number]], column_names=["n"])
    ops.command("OPTIMIZE TABLE merged FINAL")
    tasks = Path(f"/proc/{guarded.pid}/task")
    assert merging_threads(tasks), "no thread has the name by which those that merge are known"

    def is_nice() -> bool:
        return all(os.getpriority(os.PRIO_PROCESS, thread) == 10 for thread in merging_threads(tasks))

    wait_until(is_nice, 10, what="merges that give way")
    assert os.getpriority(os.PRIO_PROCESS, guarded.pid) == os.getpriority(os.PRIO_PROCESS, 0), "only they"
