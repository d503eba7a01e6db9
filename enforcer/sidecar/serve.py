"""Starts the sidecar: settings and policy are judged before it listens, and every worker is a copy of its own.

Never records by itself: the sink is given, as the name of the function that makes it, to each worker.
"""

from __future__ import annotations

import argparse
import logging
import os
import socket
import stat
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeAlias

import uvicorn
from uvicorn.supervisors import Multiprocess

from enforcer.config import EnforcerConfig
from enforcer.errors import ConfigError, PolicyError
from enforcer.identity import CopyIdentity
from enforcer.limiting.limiter import Limiter
from enforcer.policies import load_policy
from enforcer.sidecar.app import Sidecar
from enforcer.sidecar.config import SidecarConfig
from enforcer.sidecar.protocol import BoundedProtocol
from enforcer.sink import Sink
from enforcer.wiring import build_limiter

log = logging.getLogger("enforcer")

MakeSink: TypeAlias = Callable[[CopyIdentity], Sink]
_GRACE_S = 1
_BACKLOG = 1_024


@dataclass(frozen=True, slots=True)
class Application:
    """Makes the application in the process that serves; goes to workers by pickle, so it holds no connection."""

    config: SidecarConfig
    sink: MakeSink | None

    def __call__(self) -> Sidecar:
        """The application of this worker."""
        return Sidecar(self._limiter, token=self.config.token)

    def _limiter(self) -> Limiter:
        enforcer = EnforcerConfig.from_env()
        if self.config.workers > 1 and not enforcer.copy_id.endswith(f"-{os.getpid()}"):
            # A name that was set is that of the sidecar: two copies must not share one.
            enforcer = replace(enforcer, copy_id=f"{enforcer.copy_id[:52]}-{os.getpid()}")
        return build_limiter(enforcer, sink=self.sink)


def main(arguments: Sequence[str] | None = None) -> int:
    """The command without a record; see `serve`."""
    parser = argparse.ArgumentParser(prog="python -m enforcer.sidecar", description=__doc__)
    add_options(parser)
    options = parser.parse_args(arguments)
    return serve(listen=options.listen, workers=options.workers)


def add_options(parser: argparse.ArgumentParser) -> None:
    """What both commands take."""
    parser.add_argument("--listen", metavar="ADDRESS", help="host:port or unix:/path (TALLYGATE_SIDECAR)")
    parser.add_argument("--workers", type=int, metavar="N", help="processes, each its own copy (1)")


def serve(*, listen: str | None = None, workers: int | None = None, sink: MakeSink | None = None) -> int:
    """Serve until SIGTERM or SIGINT.

    Returns:
        0 after an orderly end, 1 if it cannot listen, 2 if a setting or the policy is wrong.
    """
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    # It tells of every start and every broken request; the ends of workers are told as warnings.
    logging.getLogger("uvicorn.error").setLevel(logging.ERROR)
    try:
        config = SidecarConfig.from_env(listen=listen, workers=workers)
        load_policy(EnforcerConfig.from_env().policy_path)
    except (ConfigError, PolicyError) as fault:
        sys.stderr.write(f"sidecar: {fault}\n")
        return 2
    try:
        listener = bind(config)
    except OSError as fault:
        sys.stderr.write(f"sidecar: cannot listen on {config.listen}: {fault.strerror or fault}\n")
        return 1
    name = config.listen if config.path else "{}:{}".format(*listener.getsockname()[:2])
    log.info("the sidecar listens on %s", name, extra={"action": "listening"})
    settings = _server(config, sink)
    try:
        with listener:
            if config.workers == 1:
                uvicorn.Server(settings).run(sockets=[listener])
            else:
                Multiprocess(settings, sockets=[listener]).run()
    finally:
        if config.path:
            with suppress(FileNotFoundError):
                Path(config.path).unlink()
    return 0


def _server(config: SidecarConfig, sink: MakeSink | None) -> uvicorn.Config:
    return uvicorn.Config(
        Application(config, sink),
        factory=True,
        http=BoundedProtocol,
        loop="uvloop",
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        date_header=False,
        proxy_headers=False,
        workers=config.workers,
        timeout_keep_alive=config.timeout_ms / 1e3,  # type: ignore[arg-type]  # it is given to call_later, a float
        timeout_graceful_shutdown=_GRACE_S,
    )


def bind(config: SidecarConfig) -> socket.socket:
    """A listening socket; a Unix socket is for its user and group only, and takes the place of one that is dead.

    Raises:
        OSError: the address is taken, or none of this machine.
    """
    if config.path is None:
        host, port = config.address
        listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        where: tuple[str, int] | str = (host, port)
    else:
        _clear(config.path)
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        where = config.path
    try:
        listener.bind(where)
        if config.path is not None:
            Path(config.path).chmod(0o660)
        listener.listen(_BACKLOG)
        listener.set_inheritable(True)
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
