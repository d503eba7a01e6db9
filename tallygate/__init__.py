"""The public names of the enforcer, loaded when they are first used; the command and the embedded engines beside it.

Importing it loads nothing else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from enforcer import (
        ConfigError,
        CopyIdentity,
        EnforcerConfig,
        EnforcerError,
        InvalidField,
        Limiter,
        LimiterSettings,
        PerProcess,
        Policy,
        PolicyError,
        RateLimitMiddleware,
        RateLimitWSGIMiddleware,
        Reason,
        Refused,
        Sink,
        Source,
        Verdict,
        build_limiter,
        explain_refusal,
        explain_verdict,
        first_of,
        from_address,
        from_api_key,
        from_header,
        limited,
        load_policy,
        parse_request_id,
    )

__all__ = [
    "ConfigError",
    "CopyIdentity",
    "EnforcerConfig",
    "EnforcerError",
    "InvalidField",
    "Limiter",
    "LimiterSettings",
    "PerProcess",
    "Policy",
    "PolicyError",
    "RateLimitMiddleware",
    "RateLimitWSGIMiddleware",
    "Reason",
    "Refused",
    "Sink",
    "Source",
    "Verdict",
    "build_limiter",
    "explain_refusal",
    "explain_verdict",
    "first_of",
    "from_address",
    "from_api_key",
    "from_header",
    "limited",
    "load_policy",
    "parse_request_id",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'tallygate' has no attribute {name!r}")
    import enforcer  # noqa: PLC0415  loaded late on purpose: the command must start without the enforcer

    return getattr(enforcer, name)
