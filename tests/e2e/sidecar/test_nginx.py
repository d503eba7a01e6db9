"""examples/nginx as it stands, but for its ports, behind a real nginx."""

from __future__ import annotations

import http.client
import os
import shutil
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from tallygate.engines.ports import free_port
from tallygate.engines.valkey import Valkey
from tests.docs.snippets import snippets
from tests.e2e.sidecar.conftest import ROOT, Running, Start
from tests.processes import children_of, freeze, kill, thaw, wait_until
from tests.services import unavailable

pytestmark = [pytest.mark.services, pytest.mark.chaos]


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


def test_nginx_says_when_to_come_back_and_goes_on_without_the_sidecar(
    start: Start, fresh_valkey: Valkey, application: int, tmp_path: Path
) -> None:
    """auth_request knows no 429: the client must get one all the same; and it must outlive the limiter."""
    program = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin")
    if program is None:
        unavailable("nginx is not installed")
    sidecar = start(fresh_valkey.url)
    port = free_port()
    text = _configuration({8320: sidecar.port, 8000: application, 8080: port, 8322: free_port()})
    (tmp_path / "nginx.conf").write_text(text)
    (tmp_path / "run").mkdir()
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
        assert _get(port, "marlow, acme")[0] == 400, "as nginx joins two headers"
        unchecked = tmp_path / "run/unchecked.log"
        assert unchecked.read_text() == ""
        _without_the_sidecar(sidecar, port, unchecked)
        assert text.count("return 204;") == 1
        (tmp_path / "nginx.conf").write_text(text.replace("return 204;", "return 503;"))
        ended = children_of(nginx.pid).keys()
        nginx.send_signal(signal.SIGHUP)
        # Both take connections until the old worker has ended.
        wait_until(
            lambda: len(now := children_of(nginx.pid).keys()) == 1 and now.isdisjoint(ended),
            timeout_s=20,
            what="the closed configuration",
        )
        status, _, headers = _get(port, "marlow")
        assert (status, headers["retry-after"]) == (503, "1")
    finally:
        nginx.terminate()
        nginx.wait(10)


def test_commands_of_the_readme_do_what_it_says(fresh_valkey: Valkey, tmp_path: Path) -> None:
    """A newcomer types them word for word, and what nginx leaves must not stand among the files of the checkout."""
    if shutil.which("nginx", path=f"{os.environ['PATH']}:/usr/sbin") is None:
        unavailable("nginx is not installed")
    ports = {number: free_port() for number in (8320, 8000, 8080, 8322)}
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    before = _files(tmp_path)
    (tmp_path / ".venv").symlink_to(ROOT / ".venv")
    (tmp_path / "examples/nginx/nginx.conf").write_text(_configuration(ports))
    policy = tmp_path / "examples/nginx/policy.yaml"
    assert "rate_per_s: 1," in policy.read_text()
    # No token comes back while a slow machine sends six requests.
    policy.write_text(policy.read_text().replace("rate_per_s: 1,", "rate_per_s: 0.01,"))
    *starts, call = snippets(ROOT / "examples/nginx/README.md", "sh")
    environ = {**os.environ, "PATH": f"{os.environ['PATH']}:/usr/sbin", "PYTHONPATH": str(ROOT)}
    environ |= {"TALLYGATE_OWNER_URL": fresh_valkey.url, "TALLYGATE_KAFKA": "127.0.0.1:1"}
    environ["TALLYGATE_SIDECAR"] = f"127.0.0.1:{ports[8320]}"
    with ExitStack() as running:
        for start, port in zip(starts, (8320, 8000, 8080), strict=True):
            command = f"exec env {start.replace('8000', str(ports[8000]))}"
            process = subprocess.Popen(["bash", "-c", command], cwd=tmp_path, env=environ)
            running.callback(process.wait, 15)
            running.callback(process.terminate)
            wait_until(partial(_listening, ports[port]), timeout_s=20, what=start)
        called = ["bash", "-c", call.replace("8080", str(ports[8080]))]
        said = subprocess.run(called, check=True, capture_output=True, text=True, timeout=20).stdout
    codes, _, refusal = said.partition("HTTP/1.1 ")
    assert codes.split() == ["200", "200", "200", "429", "429"]
    assert refusal.startswith("429 ")
    assert '"request_id":"' in refusal
    assert {name for name in _files(tmp_path) - before if not name.startswith("examples/nginx/run/")} == set()


def _files(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in (folder / "examples").rglob("*")}


def _configuration(ports: dict[int, int]) -> str:
    """The example's, on other ports."""
    text = (ROOT / "examples/nginx/nginx.conf").read_text()
    for old, new in ports.items():
        assert text.count(f"127.0.0.1:{old}") == (2 if old == 8322 else 1)
        text = text.replace(f"127.0.0.1:{old}", f"127.0.0.1:{new}")
    return text


def _without_the_sidecar(sidecar: Running, port: int, unchecked: Path) -> None:
    """It hangs, comes back, and is killed: every request is served, and those that nobody decided about are told."""
    freeze(sidecar.process.pid)
    try:
        began_s = time.monotonic()
        answers = [_get(port, "acme") for _ in range(12)]
        took_s = time.monotonic() - began_s
    finally:
        thaw(sidecar.process.pid)
    assert [status for status, _, _ in answers] == [200] * 12
    assert not any("ratelimit" in headers for _, _, headers in answers)
    assert took_s < 12 * 0.25, "not each of them waits for it"
    lines = unchecked.read_text().splitlines()
    assert [line.partition(" ")[2] for line in lines] == ['GET /items/7?a=b "acme"'] * 12
    wait_until(lambda: "ratelimit" in _get(port, "acme")[2], timeout_s=10, what="the sidecar's return")
    kill(sidecar.process.pid)
    before = len(unchecked.read_text().splitlines())
    assert [_get(port, "marlow")[0] for _ in range(6)] == [200] * 6
    assert len(unchecked.read_text().splitlines()) == before + 6


def _get(port: int, caller: str) -> tuple[int, bytes, dict[str, str]]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    connection.request("GET", "/items/7?a=b", headers={"x-account": caller})
    answer = connection.getresponse()
    found = answer.status, answer.read(), {name.lower(): text for name, text in answer.getheaders()}
    connection.close()
    return found
