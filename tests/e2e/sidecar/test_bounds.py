"""What one client, or too many, may take of the sidecar."""

from __future__ import annotations

import contextlib
import json
import socket
import time

import pytest

from enforcer.sidecar.protocol import MAX_AHEAD
from tests.e2e.sidecar.conftest import Running, Start, read_answer
from tests.processes import wait_until

pytestmark = pytest.mark.services

_NOBODY = "redis://127.0.0.1:1/0"
_GET = b"GET /healthz HTTP/1.1\r\nhost: sidecar\r\n\r\n"


def _answer(sidecar: Running, sent: bytes) -> tuple[bytes, float]:
    """What comes back until the sidecar ends the connection, and after how many seconds it does."""
    with sidecar.client() as client:
        began_s = time.monotonic()
        answer = b""
        try:
            client.sendall(sent)
            while more := client.recv(65_536):
                answer += more
        except ConnectionError:
            return answer, time.monotonic() - began_s
        return answer, time.monotonic() - began_s


def test_slow_and_large_requests_are_ended(start: Start) -> None:
    """Each could hold a connection and its memory for ever, one byte at a time."""
    sidecar = start(_NOBODY, TALLYGATE_SIDECAR_TIMEOUT_MS="400", TALLYGATE_SIDECAR_IDLE_MS="1500")
    slow = {
        "nothing at all": b"",
        "a head without end": b"POST /check HTT",
        "a body without end": b"POST /check HTTP/1.1\r\ncontent-length: 50\r\n\r\n{",
        "a chunk without end": b"POST /check HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n4\r\n{",
        "no request, but data": b"\r\n",
    }
    for name, sent in slow.items():
        answer, took_s = _answer(sidecar, sent)
        assert (answer, 0.3 < took_s < 1.4) == (b"", True), f"{name}: {took_s:.2f} s"
    answer, took_s = _answer(sidecar, _GET)
    assert answer.startswith(b"HTTP/1.1 200")
    assert took_s > 1.2, "an idle connection has a bound of its own"
    with sidecar.client() as client:
        client.sendall(_GET)
        assert read_answer(client).startswith(b"HTTP/1.1 200")
        client.sendall(b"\r\n")
        with contextlib.suppress(ConnectionError):
            assert client.recv(65_536) == b"", "data that begins no request does not keep it"
    large = {
        b"HTTP/1.1 431": b"GET /healthz HTTP/1.1\r\nx: " + b"y" * 40_000 + b"\r\n\r\n",
        b"HTTP/1.1 413": b"POST /check HTTP/1.1\r\ncontent-length: 65537\r\n\r\n" + b"x" * 65_537,
    }
    for status, sent in large.items():
        assert _answer(sidecar, sent)[0].startswith(status)
    whole = b"GET /healthz HTTP/1.1\r\nconnection: close\r\nx: " + b"y" * 30_000 + b"\r\n\r\n"
    assert _answer(sidecar, whole)[0].startswith(b"HTTP/1.1 200")


def test_client_that_does_not_read_is_ended(start: Start) -> None:
    """Its answers would fill memory, and its connection would never be free again."""
    sidecar = start(_NOBODY, TALLYGATE_SIDECAR_TIMEOUT_MS="400")
    body = json.dumps({"checks": [{"caller": "a"}] * 256}).encode()
    with sidecar.client() as client:
        client.sendall((b"POST /check/batch HTTP/1.1\r\ncontent-length: %d\r\n\r\n" % len(body) + body) * MAX_AHEAD)
        wait_until(lambda: _is_reset(client), 20, what="the end of the connection", poll_s=0.1)


def _is_reset(client: socket.socket) -> bool:
    try:
        client.sendall(b"\r\n")
    except ConnectionError:
        return True
    return False


def test_connections_beyond_the_bound_are_told_so(start: Start) -> None:
    """Without a bound the process runs out of files, and then nobody is answered."""
    sidecar = start(_NOBODY, TALLYGATE_SIDECAR_CONNECTIONS="3", TALLYGATE_SIDECAR_IDLE_MS="60000")
    clients = [sidecar.client() for _ in range(3)]
    for client in clients:
        client.sendall(_GET)
        assert read_answer(client).startswith(b"HTTP/1.1 200")
    answer, took_s = _answer(sidecar, _GET)
    assert answer.startswith(b"HTTP/1.1 503 Service Unavailable\r\nretry-after: 1\r\n")
    assert took_s < 2
    clients.pop().close()
    # One that asks far ahead of its answers would have them all wait in memory.
    while (found := _answer(sidecar, _GET * (2 * MAX_AHEAD)))[0].startswith(b"HTTP/1.1 503"):
        continue
    assert found[0].count(b"HTTP/1.1 200") < 2 * MAX_AHEAD
    assert found[1] < 2
    clients[0].sendall(_GET)
    assert read_answer(clients[0]).startswith(b"HTTP/1.1 200"), "who is in stays in"
    while (status := _answer(sidecar, _GET.replace(b"\r\n\r\n", b"\r\nconnection: close\r\n\r\n"))[0][:12]) != (
        b"HTTP/1.1 200"
    ):
        assert status == b"HTTP/1.1 503"
    for client in clients:
        client.close()
    metrics = sidecar.text("/metrics")
    assert "\ntallygate_sidecar_connections_refused_total 0" not in metrics
    assert "\ntallygate_sidecar_connections " in metrics
