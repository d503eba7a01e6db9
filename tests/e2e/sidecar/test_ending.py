"""How the sidecar ends, by order and by force, and how the next one starts."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tallygate.engines.ports import free_port
from tallygate.engines.valkey import Valkey
from tests.e2e.sidecar.conftest import ROOT, Start, read_answer
from tests.processes import children_of, freeze, is_running, kill, thaw, wait_until

pytestmark = [pytest.mark.services, pytest.mark.chaos]

#: A bucket that hardly refills: what comes back to it was given back.
_POLICY = "{version: 1, plans: {p: {rate_per_s: 0.01, burst: 100}}, default_plan: p}"
_BODY = b'{"caller":"marlow"}'
_HEAD = b"POST /check HTTP/1.1\r\nhost: sidecar\r\ncontent-length: %d\r\n\r\n" % len(_BODY)


def test_order_to_end_is_obeyed_in_order(start: Start, fresh_valkey: Valkey) -> None:
    """What is in flight is answered, nothing new is taken, grants go home, and the status says that all is well."""
    sidecar = start(fresh_valkey.url)
    assert sidecar.ask("POST", "/check", {"caller": "marlow"})[1]["allowed"]
    with sidecar.client() as client:
        client.sendall(_HEAD + _BODY[:5])
        assert sidecar.ask("GET", "/healthz")[0] == 200, "the sidecar has read the head before"
        sidecar.process.terminate()
        wait_until(lambda: not _answers(sidecar.port), 5, what="the end of listening")
        client.sendall(_BODY[5:])
        answer = read_answer(client)
        assert answer.startswith(b"HTTP/1.1 200")
        assert b'"allowed":true' in answer
    assert sidecar.process.wait(5) == 0
    again = start(fresh_valkey.url)
    assert again.ask("POST", "/check", {"caller": "marlow"})[1]["allowed"], "what was not spent is the caller's"


def test_end_keeps_its_bound_whatever_is_away(start: Start, fresh_valkey: Valkey) -> None:
    """An orchestrator kills what takes too long: here the owner is frozen, Kafka away, and a client hangs."""
    kafka = f"127.0.0.1:{free_port()}"
    words = ("--kafka", "--workers", "2")
    sidecar = start(fresh_valkey.url, *words, TALLYGATE_KAFKA=kafka, TALLYGATE_SIDECAR_STOP_MS="4000")
    assert sidecar.ask("POST", "/check", {"caller": "marlow"})[1]["allowed"]
    with sidecar.client() as client:
        client.sendall(_HEAD + _BODY[:5])
        freeze(fresh_valkey.child.pid)
        try:
            status, took_s = sidecar.end()
        finally:
            thaw(fresh_valkey.child.pid)
    # One second more for a busy machine: a worker that needs it longer is killed, and the status says so.
    assert (status, took_s < 5) == (0, True), f"it took {took_s:.1f} s"


def test_order_before_it_serves_is_obeyed_too(tmp_path: Path) -> None:
    """A start that is called off is no accident either."""
    (tmp_path / "policy.yaml").write_text(_POLICY)
    environ = {**os.environ, "TALLYGATE_POLICY": str(tmp_path / "policy.yaml")}
    command = [sys.executable, "-m", "tallygate", "sidecar", "--listen", "127.0.0.1:0"]
    process = subprocess.Popen(command, env=environ, stderr=subprocess.PIPE, cwd=ROOT)
    assert process.stderr is not None
    with process.stderr:
        process.stderr.readline()
        process.terminate()
        assert process.wait(10) == 0


def test_after_a_kill_the_next_serves_and_the_owner_takes_the_grants_back(
    start: Start, fresh_valkey: Valkey, tmp_path: Path
) -> None:
    """A crash must cost the caller no more than the time in which a grant expires."""
    (tmp_path / "policy.yaml").write_text(_POLICY)
    port = str(free_port())
    settings = {"TALLYGATE_POLICY": str(tmp_path / "policy.yaml")}
    sidecar = start(fresh_valkey.url, "--listen", f"127.0.0.1:{port}", **settings)
    assert sidecar.ask("POST", "/check", {"caller": "marlow"})[1]["allowed"]
    held = sidecar.text("/metrics").partition("\ntallygate_tokens_held ")[2].partition("\n")[0]
    assert float(held) >= 1, "there is something to take back"
    kill(sidecar.process.pid)
    again = start(fresh_valkey.url, "--listen", f"127.0.0.1:{port}", **settings)
    admitted = 0

    def has_all() -> bool:
        nonlocal admitted
        checks = [{"caller": "marlow"}] * (100 - admitted)
        verdicts = again.ask("POST", "/check/batch", {"checks": checks})[1]["verdicts"]
        admitted += sum(bool(one["allowed"]) for one in verdicts)
        return admitted >= 99

    has_all()
    assert admitted > 0, "the next one serves at once"
    wait_until(has_all, 12, what="the return of the grants", poll_s=0.5)
    assert admitted <= 101


def test_killed_worker_is_replaced_and_none_outlives_its_parent(start: Start, fresh_valkey: Valkey) -> None:
    """One that lives on would keep the port from the next start, and grants from their callers."""
    port = free_port()
    sidecar = start(fresh_valkey.url, "--listen", f"127.0.0.1:{port}", "--workers", "2")
    parent = sidecar.process.pid

    def workers() -> set[int]:
        return {pid for pid, words in children_of(parent).items() if "spawn_main" in words}

    wait_until(lambda: len(workers()) == 2, 10, what="two workers")
    first = workers()
    victim = min(first)
    kill(victim)
    wait_until(lambda: len(workers()) == 2 and victim not in workers(), 10, what="another worker")
    wait_until(lambda: sidecar.ask("POST", "/check", {"caller": "a"})[0] == 200, 10, what="an answer")
    orphans = workers()
    kill(parent)
    sidecar.connection.close()
    wait_until(lambda: not any(is_running(pid) for pid in orphans), 10, what="the end of the workers")
    assert start(fresh_valkey.url, "--listen", f"127.0.0.1:{port}").ask("GET", "/healthz")[0] == 200


def test_unix_socket_is_taken_over_from_the_dead_only(start: Start, fresh_valkey: Valkey, tmp_path: Path) -> None:
    """A stale file must not keep the sidecar down, and a second start must not take the callers of the first."""
    path = tmp_path / "sidecar.sock"
    words = ("--listen", f"unix:{path}")
    first = start(fresh_valkey.url, *words)
    assert first.ask("POST", "/check", {"caller": "a"})[0] == 200
    assert stat.S_IMODE(path.stat().st_mode) == 0o660
    with pytest.raises(AssertionError, match=f"cannot listen on unix:{path}: Address already in use"):
        start(fresh_valkey.url, *words)
    first.connection.close()
    assert first.ask("GET", "/healthz")[0] == 200
    kill(first.process.pid)
    assert path.exists()
    second = start(fresh_valkey.url, *words)
    assert second.ask("POST", "/check", {"caller": "a"})[0] == 200
    second.connection.close()
    # While the second ends, a third has taken its place.
    path.unlink()
    with socket.socket(socket.AF_UNIX) as third:
        third.bind(str(path))
        assert second.end()[0] == 0
        assert path.exists(), "the third one's file is not the second's to remove"
    path.unlink()
    last = start(fresh_valkey.url, *words)
    assert last.end()[0] == 0
    assert not path.exists()


def _answers(port: int) -> bool:
    with contextlib.closing(socket.socket()) as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def test_interrupt_ends_as_the_order_does(start: Start, fresh_valkey: Valkey) -> None:
    """Ctrl-C in a terminal is how most people end it first."""
    sidecar = start(fresh_valkey.url)
    sidecar.process.send_signal(signal.SIGINT)
    began_s = time.monotonic()
    assert sidecar.process.wait(10) == 0
    assert time.monotonic() - began_s < 5
