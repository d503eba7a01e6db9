"""Debian's Redis, as many as a test needs, with options of its own."""

from __future__ import annotations

import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tallygate.engines.ports import claim_port
from tests.processes import wait_until
from tests.services import unavailable


@dataclass(frozen=True, slots=True)
class RedisServer:
    """A running server."""

    process: subprocess.Popen[bytes]
    port: int

    @property
    def url(self) -> str:
        """Without TLS."""
        return f"redis://127.0.0.1:{self.port}/0"


def free_port() -> int:
    """A port of this machine that nobody listens on."""
    return claim_port(0, purpose="a server", setting="-", host="127.0.0.1")


def spawn_redis(folder: Path, *, port: int, **options: object) -> subprocess.Popen[bytes]:
    """Start a server in this folder, options by name with ``_`` for ``-``. It may not answer yet."""
    if shutil.which("redis-server") is None:
        unavailable("redis-server is not installed")
    folder.mkdir(parents=True, exist_ok=True)
    fixed = {"bind": "127.0.0.1", "save": "", "appendonly": "no", "repl-diskless-sync-delay": 0}
    fixed |= {"enable-debug-command": "yes", "dir": folder, "port": port}
    chosen = {**fixed, **{name.replace("_", "-"): value for name, value in options.items()}}
    argv = ["redis-server", *(str(word) for name, value in chosen.items() for word in (f"--{name}", value))]
    return subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def answers(port: int) -> bool:
    """Whether it is up, also if it refuses."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1) as connection:
            connection.sendall(b"PING\r\n")
            return bool(connection.recv(16))
    except OSError:
        return False


def is_open(port: int) -> bool:
    """Whether somebody listens there."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1):
            return True
    except OSError:
        return False


@contextmanager
def redis_server(folder: Path, *, port: int = 0, **options: object) -> Iterator[RedisServer]:
    """A server that is up, for as long as the block lasts."""
    chosen = port or free_port()
    process = spawn_redis(folder, port=chosen, **options)
    try:
        wait_until(lambda: answers(chosen), 20, what="the server")
        yield RedisServer(process, chosen)
    finally:
        process.kill()
        process.wait()
