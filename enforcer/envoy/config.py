"""Where Envoy's rate-limit service listens and is watched, read from the environment once."""

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
    """The service's own settings.

    Attributes:
        address: ``host:port``; port 0 takes a free one.
        metrics: likewise, where it is watched over HTTP; None: nowhere.
    """

    address: str = DEFAULT_ADDRESS
    metrics: str | None = None

    @classmethod
    def from_env(cls, environ: Mapping[str, str] | None = None) -> EnvoyConfig:
        """Read ``TALLYGATE_ENVOY`` and ``TALLYGATE_ENVOY_METRICS``; empty counts as not set.

        Raises:
            ConfigError: names every setting that is wrong, its value and what is allowed.
        """
        environ = os.environ if environ is None else environ
        address = environ.get("TALLYGATE_ENVOY", "").strip() or DEFAULT_ADDRESS
        metrics = environ.get("TALLYGATE_ENVOY_METRICS", "").strip() or None
        faults = []
        for name, value in (("TALLYGATE_ENVOY", address), ("TALLYGATE_ENVOY_METRICS", metrics)):
            match = None if value is None else _ADDRESS.match(value)
            if value is not None and (match is None or int(match[1]) > 65_535):
                faults.append(f"{name} is {value[:80]!r}; allowed: host:port, as in {DEFAULT_ADDRESS}")
        if faults:
            raise ConfigError("; ".join(faults))
        return cls(address=address, metrics=metrics)
