"""The gRPC server on a port of its own: statuses as a client sees them, a port that is taken, a missing extra."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from typing import Any

import pytest

from enforcer.envoy.server import start
from enforcer.envoy.stubs import (
    METHOD,
    SERVICE,
    HealthCheckRequest,
    HealthCheckResponse,
    HealthStub,
    RateLimitResponse,
    grpc,
)
from enforcer.errors import ConfigError
from tests.unit.enforcer.envoy.calls import call, descriptor, envoy_policy
from tests.unit.enforcer.harness import Fleet


async def _ask(port: int, message: bytes) -> Any:
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        method: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(f"/{SERVICE}/{METHOD}")
        return RateLimitResponse.FromString(await method(message, timeout=10))


async def test_statuses_reach_the_client() -> None:
    """A malformed call says so in Envoy's log, and a closed limiter is not taken for an answer."""
    fleet = Fleet(envoy_policy())
    server = await start(fleet.limiter, "127.0.0.1:0")
    port = server.port
    good = call(descriptor(account="acme", class_="read"))
    try:
        assert RateLimitResponse.OK == (await _ask(port, good)).overall_code
        with pytest.raises(grpc.aio.AioRpcError) as malformed:
            await _ask(port, b"\x0a\x02\xc3\x28")
        assert grpc.StatusCode.INVALID_ARGUMENT == malformed.value.code()
        assert "UTF-8" in str(malformed.value.details())
        fleet.limiter.close()
        with pytest.raises(grpc.aio.AioRpcError) as closed:
            await _ask(port, good)
        assert grpc.StatusCode.UNAVAILABLE == closed.value.code()
    finally:
        await server.stop(0)


async def test_health_is_told_by_name_and_ends_before_the_service_does() -> None:
    """Envoy stops asking before calls fail; a name that nobody serves is not well."""
    server = await start(Fleet(envoy_policy()).limiter, "127.0.0.1:0")
    async with grpc.aio.insecure_channel(f"127.0.0.1:{server.port}") as channel:
        health: Any = HealthStub(channel)
        for name in ("", SERVICE):
            answer = await health.Check(HealthCheckRequest(service=name), timeout=10)
            assert HealthCheckResponse.SERVING == answer.status
        with pytest.raises(grpc.aio.AioRpcError) as unknown:
            await health.Check(HealthCheckRequest(service="else"), timeout=10)
        assert grpc.StatusCode.NOT_FOUND == unknown.value.code()
        watched = health.Watch(HealthCheckRequest(service=SERVICE), timeout=10)
        assert HealthCheckResponse.SERVING == (await watched.read()).status
        ending = asyncio.create_task(server.stop(0.2))
        assert HealthCheckResponse.NOT_SERVING == (await watched.read()).status
        await ending


async def test_port_that_is_taken_is_an_error_that_names_the_setting() -> None:
    """Two services on one port would each get some of the calls."""
    fleet = Fleet(envoy_policy())
    server = await start(fleet.limiter, "127.0.0.1:0")
    port = server.port
    try:
        with pytest.raises(ConfigError, match=f"TALLYGATE_ENVOY: cannot listen on 127.0.0.1:{port}"):
            await start(fleet.limiter, f"127.0.0.1:{port}")
    finally:
        await server.stop(0)


def test_without_the_extra_the_enforcer_loads_and_the_service_names_it() -> None:
    """The base install stays lean, and whoever wants more is told what to install."""
    code = (
        "import sys; sys.modules['grpc'] = None\n"
        "import enforcer\n"
        "from enforcer.errors import ConfigError\n"
        "try:\n    import enforcer.envoy.server\n"
        "except ConfigError as error:\n    print(error)"
    )
    seen = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "Envoy's rate-limit service needs the package 'grpc': pip install 'tallygate[envoy]'" == seen.stdout.strip()
