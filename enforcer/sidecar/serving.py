"""One serving process: builds its limiter, answers until it is told to end, and ends within a stated time.

SIGTERM and SIGINT are orders, not accidents: the exit status is 0 after them. Never records by itself.
"""

from __future__ import annotations

import asyncio
import logging
import multiprocessing
import os
import signal
import socket
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeAlias

import uvicorn

from enforcer.config import EnforcerConfig
from enforcer.identity import CopyIdentity
from enforcer.limiting.limiter import Limiter
from enforcer.metrics.metrics import CopyMetrics, Metrics
from enforcer.settings import LimiterSettings
from enforcer.sidecar.app import Sidecar
from enforcer.sidecar.config import SidecarConfig
from enforcer.sidecar.listening import allow_files
from enforcer.sidecar.protocol import BoundedProtocol, Door
from enforcer.sink import Sink
from enforcer.wiring import build_limiter

#: Makes the sink of one copy, and tells the metrics what it loses.
MakeSink: TypeAlias = Callable[[CopyIdentity, Metrics], Sink]


@dataclass(frozen=True, slots=True)
class Work:
    """What a serving process is given; goes to workers by pickle, so it holds no connection."""

    config: SidecarConfig
    sink: MakeSink | None

    def limiter(self, metrics: Metrics) -> Limiter:
        """Build this process's limiter. Raises as `build_limiter` does."""
        enforcer = EnforcerConfig.from_env()
        if self.config.workers > 1 and not enforcer.copy_id.endswith(f"-{os.getpid()}"):
            # A name that was set is that of the sidecar: two copies must not share one.
            enforcer = replace(enforcer, copy_id=f"{enforcer.copy_id[:52]}-{os.getpid()}")
        settings = LimiterSettings(close_timeout_s=self.config.close_s)
        make = self.sink
        sink = None if make is None else lambda identity: make(identity, metrics)
        return build_limiter(enforcer, sink=sink, metrics=metrics, settings=settings)


def configure_log() -> None:
    """Log to stderr: what happens, but not every start and every broken request of uvicorn's."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    logging.getLogger("uvicorn.error").setLevel(logging.ERROR)


def obey_at_once() -> None:
    """Until the server takes over, an order to end is obeyed where it comes: nothing is held yet."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda _number, _frame: sys.exit(0))


def run(work: Work, sockets: list[socket.socket]) -> int:
    """Serve on these sockets until SIGTERM or SIGINT, or until the process that started this worker is gone.

    Returns:
        0 after an orderly end. Exits with 3 if the limiter could not be built.
    """
    metrics = CopyMetrics()
    config = work.config
    allow_files(config.connections)
    door = Door(most=config.connections, arrive_s=config.timeout_ms / 1e3)
    metrics.watch("tallygate_sidecar_connections", lambda: {(): door.open})
    metrics.watch("tallygate_sidecar_connections_refused_total", lambda: {(): door.refused})
    watched_at = sockets[1].getsockname()[1] if len(sockets) > 1 else None
    application = Sidecar(
        partial(work.limiter, metrics),
        token=config.token,
        metrics=metrics,
        watched_at=watched_at if config.workers > 1 else None,
        is_alone=config.workers == 1,
    )
    _Server(_settings(application, config, door)).run(sockets)
    return 0


def worker(work: Work, sockets: list[socket.socket]) -> None:
    """What a process of its own does. Ends as `run` does."""
    obey_at_once()
    configure_log()
    sys.exit(run(work, sockets))


class _Server(uvicorn.Server):
    """Ends with status 0 when it is told to, also before it serves, and does not outlive what started it."""

    def run(self, sockets: list[socket.socket] | None = None) -> None:
        # uvicorn raises the signal that ended it once more when all is done, for those who handle it otherwise.
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda _number, _frame: self._end())
        super().run(sockets)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        parent = multiprocessing.parent_process()
        if parent is not None:
            # Killed, it could tell nobody: grants go home all the same, and the port is free for the next start.
            asyncio.get_running_loop().add_reader(parent.sentinel, self._end)

    def _end(self) -> None:
        self.should_exit = True


def _settings(application: Sidecar, config: SidecarConfig, door: Door) -> uvicorn.Config:
    return uvicorn.Config(
        application,
        http=partial(BoundedProtocol, door),  # type: ignore[arg-type]  # it is called, as a class is
        loop="uvloop",
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        date_header=False,
        proxy_headers=False,
        timeout_keep_alive=config.idle_ms / 1e3,  # type: ignore[arg-type]  # it is given to call_later, a float
        timeout_graceful_shutdown=config.answer_s,  # type: ignore[arg-type]  # likewise, to wait_for
    )
