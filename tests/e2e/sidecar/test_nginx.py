"""examples/nginx as it stands, but for its ports, behind a real nginx."""

from __future__ import annotations

import http.client
import shutil
import socket
import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from tallygate.engines.valkey import Valkey
from tests.e2e.sidecar.conftest import ROOT, Start
from tests.processes import wait_until
from tests.services import unavailable

pytestmark = pytest.mark.services


class _Hello(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("content-length", "5")
        self.end_headers()
        self.wfile.write(b"hello")

    def log_message(self, *args: object) -> None:
        """Keep quiet."""


@pytest.fixture
def application() -> Iterator[int]:
    """The port of the smallest application."""
    server = HTTPServer(("127.0.0.1", 0), _Hello)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server.server_port
    server.shutdown()
    thread.join()
    server.server_close()


def _listening(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def test_nginx_lets_through_and_says_when_to_come_back(
    start: Start, fresh_valkey: Valkey, application: int, tmp_path: Path
) -> None:
    """auth_request knows no 429: the client must get one all the same, with its headers."""
    program = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin")
    if program is None:
        unavailable("nginx is not installed")
    sidecar = start(fresh_valkey.url)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    text = (ROOT / "examples/nginx/nginx.conf").read_text()
    for old, new in ((8320, sidecar.port), (8000, application), (8080, port)):
        assert text.count(f"127.0.0.1:{old}") == 1
        text = text.replace(f"127.0.0.1:{old}", f"127.0.0.1:{new}")
    (tmp_path / "nginx.conf").write_text(text)
    nginx = subprocess.Popen([program, "-e", "stderr", "-p", str(tmp_path), "-c", "nginx.conf"])
    try:
        wait_until(lambda: _listening(port), timeout_s=10)
        answers = [_get(port, "marlow") for _ in range(4)]
        assert [status for status, _, _ in answers] == [200, 200, 200, 429]
        assert answers[0][1] == b"hello"
        assert answers[0][2]["ratelimit"].startswith('"rate";r=')
        _, body, headers = answers[3]
        assert headers["retry-after"] in {"1", "2"}
        assert headers["ratelimit-policy"] == '"rate";q=3;w=3'
        assert b'"request_id":"' in body
        assert _get(port, "a" * 300)[0] == 400
    finally:
        nginx.terminate()
        nginx.wait(10)


def _get(port: int, caller: str) -> tuple[int, bytes, dict[str, str]]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    connection.request("GET", "/items/7?a=b", headers={"x-account": caller})
    answer = connection.getresponse()
    found = answer.status, answer.read(), {name.lower(): text for name, text in answer.getheaders()}
    connection.close()
    return found
