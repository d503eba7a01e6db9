"""The limiter a gateway embeds: local decisions on leased grants. Never waits for accounting."""

from __future__ import annotations

from enforcer.config import EnforcerConfig
from enforcer.core.sentences import explain_refusal, explain_verdict
from enforcer.decorators import Refused, limited
from enforcer.errors import ConfigError, EnforcerError, InvalidField, PolicyError
from enforcer.http.asgi import RateLimitMiddleware
from enforcer.http.wsgi import RateLimitWSGIMiddleware
from enforcer.identity import CopyIdentity, parse_request_id
from enforcer.keying import first_of, from_address, from_api_key, from_header
from enforcer.limiting.limiter import Limiter
from enforcer.policies import load_policy
from enforcer.policies.model import Policy
from enforcer.process import PerProcess
from enforcer.settings import LimiterSettings
from enforcer.sink import Sink
from enforcer.types import Reason, Source, Verdict
from enforcer.wiring import build_limiter

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
