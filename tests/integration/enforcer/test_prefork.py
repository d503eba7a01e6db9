"""Real servers with several workers on a real owner: what clients saw is recorded, and every worker ends whole.

Each test sends one caller more than its plan allows, to whichever worker takes the connection.
"""

from __future__ import annotations

import os
import signal
import socket
import time
from pathlib import Path

import pytest
import redis

from enforcer.owners.keys import bucket_key
from tallygate.engines.valkey import Valkey
from tests.processes import wait_until
from tests.servers.file_sink import SETTING, Record
from tests.servers.running import Server, running

BURST = 40
RATE_PER_S = 0.5
POLICY = f"""\
version: 1
plans: {{small: {{rate_per_s: {RATE_PER_S}, burst: {BURST}}}, large: {{rate_per_s: 1000, burst: 2000}}}}
default_plan: large
callers: {{acme: small}}
timeouts: {{ask_ms: 2000}}
"""
GUNICORN = ("gunicorn", "--bind", "127.0.0.1:0", "--workers", "2", "--no-control-socket")
APP = "tests.servers.wsgi_app:application"

pytestmark = pytest.mark.services


def _settings(owner: Valkey, folder: Path, **more: str) -> dict[str, str]:
    (folder / "policy.yaml").write_text(POLICY)
    return {
        "TALLYGATE_POLICY": str(folder / "policy.yaml"),
        "TALLYGATE_OWNER_URL": owner.url,
        SETTING: str(folder / "record"),
        **more,
    }


def _send(server: Server, requests: int, *, workers: int = 2) -> None:
    """So many requests of one caller, and of another as many as it takes until all workers have answered."""
    for _ in range(requests):
        server.get("acme")
    wait_until(lambda: server.get("other")[0] == 200 and len(server.workers) >= workers, 20, what="every worker")


def _check(server: Server, record: Record, owner: Valkey, *, admitted: int | None = None) -> None:
    """What clients saw is what is recorded; together the workers admit what one bucket does, and the owner agrees."""
    record.assert_adds_up()
    seen = {(caller, status == 200): count for (caller, status), count in server.seen.items()}
    assert seen == record.decisions
    # Requests that wait may be given a quarter of the burst ahead of the refill; a bucket for each copy would give 80.
    most = 1.25 * BURST + RATE_PER_S * (time.monotonic() - server.began_s)
    assert (admitted or BURST) <= record.decisions["acme", True] <= most
    with redis.Redis(port=owner.port) as client:
        members = {name.decode() for name in client.hkeys(bucket_key("acme", "rate"))} - {"bucket"}
    assert members <= set(record.served), "the owner knows a copy that decided nothing"


@pytest.mark.parametrize(
    ("words", "gives"),
    [
        (("--worker-class", "sync"), "callable"),
        (("--worker-class", "sync", "--preload"), "limiter"),
        (("--worker-class", "gthread", "--threads", "4", "--preload"), "limiter"),
    ],
    ids=["sync", "sync-preload-built-before-the-fork", "gthread-preload-built-before-the-fork"],
)
def test_gunicorns_workers_are_copies_of_their_own(
    words: tuple[str, ...], gives: str, fresh_valkey: Valkey, tmp_path: Path
) -> None:
    """Workers that shared an epoch would spend the same tokens, and number their decisions alike."""
    settings = _settings(fresh_valkey, tmp_path, TALLYGATE_TEST_GIVES=gives)
    with running(*GUNICORN, *words, APP, log=tmp_path / "log", settings=settings) as server:
        _send(server, BURST + 20)
        took_s = server.stop()
    record = Record(tmp_path / "record", left_open=server.process.pid if gives == "limiter" else 0)
    assert 2 == len(record.served)
    _check(server, record, fresh_valkey)
    assert took_s < 10, server.log.read_text()


def test_workers_that_are_replaced_settle_and_their_successors_are_new_copies(
    fresh_valkey: Valkey, tmp_path: Path
) -> None:
    """`--max-requests` and a reload end workers in full traffic: nothing is lost, and no plan begins anew."""
    settings = _settings(fresh_valkey, tmp_path)
    with running(
        *GUNICORN, "--preload", "--max-requests", "25", APP, log=tmp_path / "log", settings=settings
    ) as server:
        _send(server, 60)
        before = server.worker_pids
        os.kill(server.process.pid, signal.SIGHUP)
        wait_until(lambda: len(server.worker_pids - before) >= 2 and not server.worker_pids & before, 30, what="HUP")
        server.workers.clear()
        _send(server, 20)
        server.stop()
    record = Record(tmp_path / "record")
    assert len(record.served) >= 5, "two workers, at least one that was replaced, and two after the reload"
    _check(server, record, fresh_valkey)


def test_uvicorns_workers_are_copies_of_their_own(fresh_valkey: Valkey, tmp_path: Path) -> None:
    """The same for ASGI, where the server's lifespan builds and closes the limiter."""
    words = ("uvicorn", "--workers", "2", "--port", "0", "tests.servers.asgi_app:app")
    with running(*words, log=tmp_path / "log", settings=_settings(fresh_valkey, tmp_path)) as server:
        _send(server, BURST + 20)
        took_s = server.stop()
    record = Record(tmp_path / "record")
    assert 2 == len(record.served)
    _check(server, record, fresh_valkey)
    assert took_s < 10, server.log.read_text()


def test_a_client_that_goes_away_in_the_middle_gives_its_slot_back(fresh_valkey: Valkey, tmp_path: Path) -> None:
    """E23 on a real server: the cap is the protection, and must not close the service for good."""
    settings = _settings(fresh_valkey, tmp_path)
    (tmp_path / "policy.yaml").write_text(
        f"{POLICY}fleet: {{copies: 1, ceiling_per_s: 10}}\ncap: {{latency_ms: 100}}\n"
    )
    words = ("gunicorn", "--bind", "127.0.0.1:0", "--threads", "4", "--no-control-socket", APP)
    with running(*words, log=tmp_path / "log", settings=settings) as server:
        with socket.create_connection(("127.0.0.1", server.port), timeout=10) as client:
            client.sendall(b"GET /stream HTTP/1.1\r\nHost: gateway\r\nX-Account: other\r\n\r\n")
            assert client.recv(12) == b"HTTP/1.1 200"
            status, headers, _ = server.get("other")
            assert (503, "1") == (status, headers["retry-after"])
        wait_until(lambda: server.get("other")[0] == 200, 20, what="the slot")
        server.stop()
    Record(tmp_path / "record").assert_adds_up()
