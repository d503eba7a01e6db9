"""Where Envoy's rate-limit service listens, read from the environment once."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass

from enforcer.errors import ConfigError

DEFAULT_ADDRESS = "127.0.0.1:8081"
_ADDRESS = re.compile(r"(?:\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+):([0-9]{1,5})\Z")


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvoyConfig:
    """The service's own setting.

    Attributes:
        address: ``host:port``; port 0 takes a free one.
    """

    address: str = DEFAULT_ADDRESS

    @classmethod
    def from_env(cls, environ: Mapping[str, str] | None = None) -> EnvoyConfig:
        """Read ``TALLYGATE_ENVOY``; empty counts as not set. Raises `ConfigError` if it is wrong."""
        environ = os.environ if environ is None else environ
        address = environ.get("TALLYGATE_ENVOY", "").strip() or DEFAULT_ADDRESS
        match = _ADDRESS.match(address)
        if match is None or int(match[1]) > 65_535:
            raise ConfigError(f"TALLYGATE_ENVOY is {address[:80]!r}; allowed: host:port, as in {DEFAULT_ADDRESS}")
        return cls(address=address)
