"""Local TCP ports: find free ones, and say clearly who holds one that is taken. Never keeps a port open."""

from __future__ import annotations

import contextlib
import errno
import secrets
import socket
from collections.abc import Iterator
from pathlib import Path

from tallygate.engines.errors import EngineFailed, PortTaken

#: Below the kernel's ephemeral range, so that no outgoing connection can take a chosen port before its server does.
_FIRST_PORT, _LAST_PORT = 20_000, 32_000
_ATTEMPTS = 200


def is_free(port: int, host: str = "127.0.0.1") -> bool:
    """Whether a server could listen on the port now.

    Raises:
        EngineFailed: the host is not an address of this machine, or the port needs rights that we lack.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                return False
            raise EngineFailed(f"cannot listen on {host}:{port}: {error.strerror}") from error
    return True


def free_port(host: str = "127.0.0.1") -> int:
    """A port that nothing listens on, drawn at random so that runs beside each other rarely meet.

    Raises:
        EngineFailed: none was found.
    """
    for _ in range(_ATTEMPTS):
        port = _FIRST_PORT + secrets.randbelow(_LAST_PORT - _FIRST_PORT)
        if is_free(port, host):
            return port
    raise EngineFailed(f"no free port between {_FIRST_PORT} and {_LAST_PORT} on {host}")


def claim_port(port: int, *, purpose: str, setting: str, host: str = "127.0.0.1") -> int:
    """Return the port if it is free, or a free one for 0.

    Args:
        port: 0 to 65535.
        purpose: what is to listen there, for the message.
        setting: the flag or variable that chooses another, for the message.
        host: the local address to listen on.

    Raises:
        PortTaken: another process listens there; names it where the system lets us see it.
        ValueError: not a port.
    """
    if not 0 <= port <= 65_535:
        raise ValueError(f"{setting}: port {port} is not within 0 to 65535")
    if port == 0:
        return free_port(host)
    if is_free(port, host):
        return port
    holder = holder_of(port)
    by = f" by {holder}" if holder else ""
    raise PortTaken(
        f"port {port}, meant for {purpose}, is taken{by}: end that process or choose another port with {setting}"
    )


def holder_of(port: int) -> str | None:
    """The process that listens on a local port, as ``name (pid n)``; None where it cannot be seen."""
    inodes = {inode for table in ("tcp", "tcp6") for inode in _listening_inodes(Path("/proc/net") / table, port)}
    if not inodes:
        return None
    links = {f"socket:[{inode}]" for inode in inodes}
    for process in Path("/proc").glob("[0-9]*"):
        if links & set(_open_files(process)):
            with contextlib.suppress(OSError):
                return f"{(process / 'comm').read_text().strip()} (pid {process.name})"
    return None


def _listening_inodes(table: Path, port: int) -> Iterator[str]:
    try:
        lines = table.read_text().splitlines()[1:]
    except OSError:  # not Linux, or /proc is closed to us: the holder stays unnamed
        return
    for line in lines:
        columns = line.split()
        local_port, state = int(columns[1].rpartition(":")[2], 16), columns[3]
        if local_port == port and state == "0A":
            yield columns[9]


def _open_files(process: Path) -> Iterator[str]:
    with contextlib.suppress(OSError):  # another user's process, or one that has just ended
        for descriptor in (process / "fd").iterdir():
            with contextlib.suppress(OSError):
                yield str(descriptor.readlink())
