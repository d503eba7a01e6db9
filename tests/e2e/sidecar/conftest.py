"""A sidecar in a process of its own, as a user starts it."""

from __future__ import annotations

import http.client
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

import pytest

from tests.services import fresh_valkey

__all__ = ["fresh_valkey"]

ROOT = Path(__file__).resolve().parents[3]


class Running:
    """A running sidecar, and one client's connection to it."""

    def __init__(self, process: subprocess.Popen[str], host: str, port: int) -> None:
        self.process = process
        self.host, self.port = host, port
        self.connection = http.client.HTTPConnection(host, port, timeout=5)

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
        found = re.search(r"listens on ([\d.]+):(\d+)", line)
        assert found is not None, line
        running.append(Running(process, found[1], int(found[2])))
        return running[-1]

    yield begin
    for one in running:
        one.stop()
