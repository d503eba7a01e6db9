"""The life of Envoy's rate-limit service: a gRPC server around one limiter, from its start to a signal.

Builds no limiter by itself, and never ends while a call is being answered, unless that takes longer than its grace.
"""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Callable

from enforcer.envoy.requests import MAX_DESCRIPTORS
from enforcer.envoy.service import RateLimitService
from enforcer.envoy.stubs import grpc
from enforcer.errors import ConfigError
from enforcer.limiting.limiter import Limiter

log = logging.getLogger("enforcer.envoy")

#: Calls under way at the end are answered within this; a check itself waits for at most the policy's `ask_ms`.
GRACE_S = 0.5
#: A call is a few hundred bytes; what is larger is refused by gRPC before it is read.
MAX_CALL_BYTES = MAX_DESCRIPTORS << 14


async def start(limiter: Limiter, address: str) -> tuple[grpc.aio.Server, int]:
    """Serve a limiter at ``host:port``; returns the server and its port. Raises `ConfigError` if it cannot listen."""
    server = grpc.aio.server(
        # A port that is taken must be an error, not a second server that gets every other call.
        options=(("grpc.so_reuseport", 0), ("grpc.max_receive_message_length", MAX_CALL_BYTES))
    )
    server.add_generic_rpc_handlers((RateLimitService(limiter).handler(),))
    try:
        port = server.add_insecure_port(address)
    except RuntimeError as error:
        raise ConfigError(f"TALLYGATE_ENVOY: cannot listen on {address}: {error}") from error
    await server.start()
    return server, port


async def serve(build: Callable[[], Limiter], address: str) -> None:
    """Build the limiter here, serve it until SIGTERM or SIGINT, then answer what is under way and close it.

    Raises:
        ConfigError: it cannot listen there, or the policy has no section ``envoy``; or as `build` raises.
    """
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    limiter = build()
    try:
        if limiter.policy.envoy is None:
            raise ConfigError("the policy has no section 'envoy': which descriptors mean which caller is not known")
        server, port = await start(limiter, address)
        log.info("Envoy's rate-limit service listens on %s:%d", address.rpartition(":")[0], port)
        await stop.wait()
        await server.stop(GRACE_S)
    finally:
        # In a thread: it waits for the owner and the record, and the loop still has calls to end.
        await asyncio.to_thread(limiter.close)
