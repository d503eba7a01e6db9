"""A server in a process of its own, as a user starts it, and what its clients saw."""

from __future__ import annotations

import http.client
import os
import re
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.processes import children_of, wait_until

ROOT = Path(__file__).resolve().parents[2]
_ADDRESS = re.compile(r"http://127\.0\.0\.1:(\d+)")


class Server:
    """A running server; it is told to end with SIGTERM."""

    def __init__(self, process: subprocess.Popen[bytes], log: Path) -> None:
        self.process = process
        self.log = log
        self.port = 0
        self.seen: Counter[tuple[str, int]] = Counter()
        self.workers: Counter[str] = Counter()
        self.began_s = time.monotonic()

    @property
    def address(self) -> str:
        """Where it is called."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def worker_pids(self) -> set[int]:
        """Processes that it has started."""
        return set(children_of(self.process.pid))

    def get(self, caller: str, path: str = "/") -> tuple[int, dict[str, str], bytes]:
        """Status, headers and body of one answer, over a connection of its own."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
        try:
            connection.request("GET", path, headers={"x-account": caller})
            answer = connection.getresponse()
            body = answer.read()
        finally:
            connection.close()
        self.seen[caller, answer.status] += 1
        if answer.status == 200:
            self.workers[body.decode()] += 1
        return answer.status, {name.lower(): text for name, text in answer.getheaders()}, body

    def stop(self) -> float:
        """End it as a service manager does; returns how long that took, in seconds."""
        began = time.monotonic()
        self.process.terminate()
        self.process.wait(30)
        return time.monotonic() - began


@contextmanager
def running(*words: str, log: Path, settings: Mapping[str, str]) -> Iterator[Server]:
    """``python -m WORDS`` with these settings; its log must name the port of 127.0.0.1 on which it listens."""
    with launched([sys.executable, "-m", *words], log=log, settings=settings) as server:
        yield server


@contextmanager
def launched(argv: Sequence[str], *, log: Path, settings: Mapping[str, str]) -> Iterator[Server]:
    """The same for any command."""
    environ = {name: text for name, text in os.environ.items() if not name.startswith("TALLYGATE_")}
    environ |= {"PYTHONUNBUFFERED": "1", **settings}
    with log.open("wb") as file:
        process = subprocess.Popen(argv, env=environ, stdout=file, stderr=subprocess.STDOUT, cwd=ROOT)
    server = Server(process, log)

    def listens() -> bool:
        assert process.poll() is None, log.read_text()
        found = _ADDRESS.search(log.read_text())
        server.port = int(found[1]) if found else 0
        return server.port > 0 and _is_open(server.port)

    try:
        wait_until(listens, 30, what="the server's start")
        yield server
    finally:
        if process.poll() is None:
            process.kill()
            process.wait(30)


def _is_open(port: int) -> bool:
    """Whether somebody listens; a server may name its address before that."""
    try:
        socket.create_connection(("127.0.0.1", port), timeout=5).close()
    except ConnectionRefusedError:
        return False
    return True
