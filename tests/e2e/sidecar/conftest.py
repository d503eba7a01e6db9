"""A sidecar in a process of its own, as a user starts it."""

from __future__ import annotations

import http.client
import json
import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

import pytest

from tests.services import fresh_valkey

__all__ = ["fresh_valkey"]

ROOT = Path(__file__).resolve().parents[3]


class _UnixConnection(http.client.HTTPConnection):
    """To a Unix socket."""

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.host)


class Running:
    """A running sidecar, and one client's connection to it. `host` is the path of a Unix socket where that is used."""

    def __init__(self, process: subprocess.Popen[str], host: str, port: int) -> None:
        self.process = process
        self.host, self.port = host, port
        kind = _UnixConnection if host.startswith("/") else http.client.HTTPConnection
        self.connection = kind(host, port, timeout=20)

    def client(self) -> socket.socket:
        """Another connection, for what no HTTP client would send."""
        return socket.create_connection((self.host, self.port), timeout=20)

    def text(self, path: str) -> str:
        """What a GET answers, as it stands."""
        self.connection.request("GET", path)
        return self.connection.getresponse().read().decode()

    def end(self, timeout_s: float = 15) -> tuple[int, float]:
        """Send SIGTERM; returns the exit status, and how many seconds the end took."""
        began_s = time.monotonic()
        self.process.terminate()
        return self.process.wait(timeout_s), time.monotonic() - began_s

    def ask(self, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, Any, dict[str, str]]:
        """Status, body and headers of one answer; `body` is sent as JSON, bytes as they are."""
        data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        self.connection.request(method, path, data, {name.replace("_", "-"): text for name, text in headers.items()})
        answer = self.connection.getresponse()
        text = answer.read()
        return answer.status, json.loads(text) if text else None, {k.lower(): v for k, v in answer.getheaders()}

    def stop(self) -> None:
        """End it, if a test has not."""
        self.connection.close()
        if self.process.poll() is None:
            self.process.terminate()
            self.process.wait(15)
        if self.process.stderr is not None:
            self.process.stderr.close()


def read_answer(client: socket.socket) -> bytes:
    """One whole answer with a length, or what came before the connection ended."""
    answer = b""
    while more := client.recv(65_536):
        answer += more
        head, found, body = answer.partition(b"\r\n\r\n")
        length = re.search(rb"content-length: (\d+)", head)
        if found and length is not None and len(body) >= int(length[1]):
            break
    return answer


class Start(Protocol):
    """Starts a sidecar with further settings."""

    def __call__(self, owner_url: str, *words: str, **settings: str) -> Running: ...


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts sidecars of the nginx example's policy, and ends them."""
    running: list[Running] = []

    def begin(owner_url: str, *words: str, **settings: str) -> Running:
        environ = {name: text for name, text in os.environ.items() if not name.startswith("TALLYGATE_")}
        environ |= {
            "TALLYGATE_POLICY": str(ROOT / "examples/nginx/policy.yaml"),
            "TALLYGATE_OWNER_URL": owner_url,
            **settings,
        }
        process = subprocess.Popen(
            [sys.executable, "-m", "tallygate", "sidecar", "--listen", "127.0.0.1:0", *words],
            env=environ,
            stderr=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )
        assert process.stderr is not None
        line = process.stderr.readline()
        found = re.search(r"listens on (?:unix:(/\S+)|([\d.]+):(\d+))", line)
        if found is None:
            said = line + process.communicate(timeout=15)[1]
            raise AssertionError(f"it ended with status {process.returncode}: {said}")
        running.append(Running(process, found[1] or found[2], int(found[3] or 0)))
        return running[-1]

    yield begin
    for one in running:
        one.stop()
