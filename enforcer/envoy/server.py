"""The life of Envoy's rate-limit service: a gRPC server around one limiter, from its start to a signal.

Builds no limiter by itself, and never ends while a call is being answered, unless that takes longer than its grace.
"""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from prometheus_client import CollectorRegistry, start_http_server

from enforcer.envoy.config import EnvoyConfig
from enforcer.envoy.requests import MAX_DESCRIPTORS
from enforcer.envoy.service import RateLimitService
from enforcer.envoy.stubs import SERVICE, HealthCheckResponse, HealthServicer, add_HealthServicer_to_server, grpc
from enforcer.errors import ConfigError
from enforcer.limiting.limiter import Limiter
from enforcer.metrics.metrics import CopyMetrics, Metrics
from enforcer.metrics.prometheus import PrometheusCollector

log = logging.getLogger("enforcer.envoy")

#: Calls under way at the end are answered within this; a check itself waits for at most the policy's `ask_ms`.
GRACE_S = 0.5
#: A call is a few hundred bytes; what is larger is refused by gRPC before it is read.
MAX_CALL_BYTES = MAX_DESCRIPTORS << 14


class Server:
    """The service and gRPC's health service on one port.

    Attributes:
        port: where it listens.
    """

    def __init__(self, server: grpc.aio.Server, health: HealthServicer, port: int) -> None:
        self.port = port
        self._server = server
        self._health = health

    async def stop(self, grace_s: float) -> None:
        """Say that it serves no more, answer what is under way, at most for `grace_s`, and end."""
        await self._health.enter_graceful_shutdown()
        await self._server.stop(grace_s)


async def start(limiter: Limiter, address: str, metrics: Metrics | None = None) -> Server:
    """Serve a limiter at ``host:port``. Raises `ConfigError` if it cannot listen."""
    server = grpc.aio.server(
        # A port that is taken must be an error, not a second server that gets every other call.
        options=(("grpc.so_reuseport", 0), ("grpc.max_receive_message_length", MAX_CALL_BYTES))
    )
    health = HealthServicer()
    # Whoever is asked about by another name is unknown, not well.
    await health.set(SERVICE, HealthCheckResponse.SERVING)
    add_HealthServicer_to_server(health, server)
    server.add_generic_rpc_handlers((RateLimitService(limiter, metrics).handler(),))
    try:
        port = server.add_insecure_port(address)
    except RuntimeError as error:
        raise ConfigError(f"TALLYGATE_ENVOY: cannot listen on {address}: {error}") from error
    await server.start()
    return Server(server, health, port)


async def serve(build: Callable[[Metrics], Limiter], config: EnvoyConfig) -> None:
    """Build the limiter here, serve it until SIGTERM or SIGINT, then answer what is under way and close it.

    Raises:
        ConfigError: it cannot listen there, or the policy has no section ``envoy``; or as `build` raises.
    """
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    metrics = CopyMetrics()
    limiter = build(metrics)
    try:
        if limiter.policy.envoy is None:
            raise ConfigError("the policy has no section 'envoy': which descriptors mean which caller is not known")
        with _watched(metrics, config.metrics):
            server = await start(limiter, config.address, metrics)
            log.info("Envoy's rate-limit service listens on %s:%d", config.address.rpartition(":")[0], server.port)
            await stop.wait()
            await server.stop(GRACE_S)
    finally:
        # In a thread: it waits for the owner and the record, and the loop still has calls to end.
        await asyncio.to_thread(limiter.close)


@contextmanager
def _watched(metrics: CopyMetrics, address: str | None) -> Iterator[None]:
    """Show the metrics over HTTP, from threads of their own."""
    if address is None:
        yield
        return
    host, _, port = address.rpartition(":")
    registry = CollectorRegistry()
    registry.register(PrometheusCollector(metrics))
    try:
        server, thread = start_http_server(int(port), host.strip("[]"), registry)
    except OSError as error:
        raise ConfigError(f"TALLYGATE_ENVOY_METRICS: cannot listen on {address}: {error}") from error
    try:
        log.info("its metrics are on %s:%d", host, server.server_port)
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
