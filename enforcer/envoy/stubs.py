"""The messages of Envoy's rate-limit service, gRPC and its health service: the extra ``envoy``. Fails with its name."""

from __future__ import annotations

from enforcer.errors import ConfigError

try:
    import grpc
    import grpc.aio
    from envoy.config.core.v3.base_pb2 import HeaderValue
    from envoy.extensions.common.ratelimit.v3.ratelimit_pb2 import RateLimitDescriptor
    from envoy.service.ratelimit.v3.rls_pb2 import RateLimitRequest, RateLimitResponse
    from google.protobuf.message import DecodeError
    from grpc_health.v1.health import aio as health
    from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse
    from grpc_health.v1.health_pb2_grpc import HealthStub, add_HealthServicer_to_server
except ModuleNotFoundError as missing:
    raise ConfigError(
        f"Envoy's rate-limit service needs the package {missing.name!r}: pip install 'tallygate[envoy]'"
    ) from missing

#: Where Envoy calls.
SERVICE, METHOD = "envoy.service.ratelimit.v3.RateLimitService", "ShouldRateLimit"
HealthServicer = health.HealthServicer

__all__ = [
    "METHOD",
    "SERVICE",
    "DecodeError",
    "HeaderValue",
    "HealthCheckRequest",
    "HealthCheckResponse",
    "HealthServicer",
    "HealthStub",
    "RateLimitDescriptor",
    "RateLimitRequest",
    "RateLimitResponse",
    "add_HealthServicer_to_server",
    "grpc",
]
