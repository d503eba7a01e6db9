"""Calls of Envoy by hand: what it sends, and what it is answered."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from enforcer.envoy.service import RateLimitService
from enforcer.envoy.stubs import RateLimitDescriptor, RateLimitRequest, RateLimitResponse
from enforcer.policies.model import Policy
from tests.unit.enforcer.harness import Fleet, make_policy

RULES: dict[str, object] = {
    "domains": {
        "shop": {
            "rules": {
                "route": {"caller": "{account}", "route": {"method": "method", "path": "path"}},
                "account": {"caller": "{account}", "scope": "{class}"},
                "address": {"caller": "ip {remote_address}", "scope": "by address", "cost": 2},
            }
        }
    }
}
CODES = RateLimitResponse


def envoy_policy(*, section: Mapping[str, object] | None = None, **fields: Any) -> Policy:
    """A policy with the rules above, or those given."""
    return make_policy(envoy=dict(RULES if section is None else section), **fields)


def descriptor(*, hits: int | None = None, **entries: str) -> Any:
    """One descriptor with its entries in order; a key that Python keeps for itself ends with an underscore."""
    return raw_descriptor({key.rstrip("_"): value for key, value in entries.items()}, hits=hits)


def raw_descriptor(entries: Mapping[str, str], *, hits: int | None = None) -> Any:
    """One descriptor with exactly these entries."""
    made = RateLimitDescriptor()
    for key, value in entries.items():
        made.entries.add(key=key, value=value)
    if hits is not None:
        made.hits_addend.value = hits
    return made


def call(*descriptors: Any, domain: str = "shop", hits: int = 0) -> bytes:
    """An encoded request."""
    request = RateLimitRequest(domain=domain, hits_addend=hits, descriptors=descriptors)
    encoded: bytes = request.SerializeToString()
    return encoded


async def ask(fleet: Fleet, message: bytes) -> Any:
    """Its decoded answer, from a service of its own."""
    return RateLimitResponse.FromString(await RateLimitService(fleet.limiter).answer(message))


def headers(response: Any) -> dict[str, str]:
    """The headers that Envoy is to add."""
    return {header.key: header.value for header in response.response_headers_to_add}
