"""Where the sidecar listens: a port or a Unix socket, with what one that was killed left behind taken away.

Never takes the place of a server that is alive, nor removes a socket that is not its own.
"""

from __future__ import annotations

import os
import resource
import socket
import stat
from contextlib import suppress
from pathlib import Path

from enforcer.errors import ConfigError
from enforcer.sidecar.config import SidecarConfig, split_address

_BACKLOG = 1_024
#: Open files of a process beside its connections: owners, log, policy, those that are turned away.
_OTHER_FILES = 256


class Listening:
    """All listening sockets of one sidecar.

    Attributes:
        shared: where requests come in; all workers take from it.
        own: for each worker the one where it is watched; empty where none was asked for.
    """

    def __init__(self, config: SidecarConfig) -> None:
        """Listen.

        Raises:
            OSError: an address is taken, or none of this machine; names it.
        """
        self._path = config.path
        self.own: list[socket.socket] = []
        try:
            self.shared = _unix(config.path) if config.path is not None else _port(*split_address(config.listen))
        except OSError as fault:
            raise OSError(fault.errno, f"cannot listen on {config.listen}: {fault.strerror or fault}") from fault
        self._file = os.stat(config.path) if config.path is not None else None
        if config.metrics is None:
            return
        host, first = split_address(config.metrics)
        for number in range(config.workers):
            port = first + number if first else 0
            try:
                self.own.append(_port(host, port))
            except OSError as fault:
                self.close()
                raise OSError(fault.errno, f"cannot listen on {host}:{port}: {fault.strerror or fault}") from fault

    @property
    def name(self) -> str:
        """Where requests are taken, as it is told to people."""
        return f"unix:{self._path}" if self._path is not None else name_of(self.shared)

    def of(self, worker: int) -> list[socket.socket]:
        """The sockets of the worker with this number, from 0."""
        return [self.shared, *self.own[worker : worker + 1]]

    def close(self) -> None:
        """Stop listening. A Unix socket's file is removed, unless another server has taken the path meanwhile."""
        for one in (self.shared, *self.own):
            one.close()
        if self._path is not None and self._file is not None:
            with suppress(FileNotFoundError):
                if os.path.samestat(os.stat(self._path), self._file):
                    Path(self._path).unlink()


def name_of(listener: socket.socket) -> str:
    """``host:port`` of a listening socket."""
    host, port = listener.getsockname()[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def allow_files(connections: int) -> None:
    """Have this process open as many files as its connections need.

    Raises:
        ConfigError: the machine does not let it.
    """
    wanted = connections + _OTHER_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        if hard != resource.RLIM_INFINITY and hard < wanted:
            raise ConfigError(
                f"TALLYGATE_SIDECAR_CONNECTIONS is {connections}, and this process may open {hard} files; "
                f"allowed: {max(0, hard - _OTHER_FILES)}, or raise its limit of open files (nofile)"
            )
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _port(host: str, port: int) -> socket.socket:
    listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    return _listen(listener, (host, port))


def _unix(path: str) -> socket.socket:
    """For its user and group only; takes the place of one that is dead."""
    _clear(path)
    return _listen(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM), path)


def _listen(listener: socket.socket, where: tuple[str, int] | str) -> socket.socket:
    try:
        listener.bind(where)
        if isinstance(where, str):
            Path(where).chmod(0o660)
        listener.listen(_BACKLOG)
    except OSError:
        listener.close()
        raise
    return listener


def _clear(path: str) -> None:
    """Take away a socket that nobody listens on, as one that was killed leaves it."""
    try:
        if not stat.S_ISSOCK(os.stat(path).st_mode):
            return
    except FileNotFoundError:
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(path)
        except ConnectionRefusedError:
            Path(path).unlink(missing_ok=True)
