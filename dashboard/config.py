"""The settings of the dashboard: read from the environment once, all faults reported at once.

Never connects to anything, and never shows the secret or a password.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import ip_address

from aggregator.config import ClickHouseDsn, parse_dsn
from enforcer.errors import ConfigError

MIN_SECRET_CHARACTERS = 16
_ADDRESS = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([A-Za-z0-9._-]+)):([0-9]{1,5})\Z")


@dataclass(frozen=True, slots=True)
class DashboardConfig:
    """Everything that the dashboard is told.

    Attributes:
        host, port: where it listens; port 0 takes a free one.
        clickhouse: where the record is.
        secret: signs sign-in links and sessions; whoever knows it can sign in as anyone.
        link_hours: how long a sign-in link can be used.
        session_hours: how long a session lasts.
    """

    host: str
    port: int
    clickhouse: ClickHouseDsn
    secret: str = field(repr=False)
    link_hours: int = 24
    session_hours: int = 12

    @property
    def base_url(self) -> str:
        """The address that a browser on this machine opens."""
        host = _opened(self.host)
        host = f"[{host}]" if ":" in host else host
        return f"http://{host}:{self.port}"

    @classmethod
    def from_env(cls, environ: Mapping[str, str] | None = None) -> DashboardConfig:
        """Read the ``TALLYGATE_…`` settings.

        Raises:
            ConfigError: one or more settings are missing or wrong; the message names all of them.
        """
        env = os.environ if environ is None else environ
        faults: list[str] = []
        secret = env.get("TALLYGATE_SECRET", "")
        if len(secret) < MIN_SECRET_CHARACTERS:
            state = f"{len(secret)} characters long" if secret else "not set"
            faults.append(
                f"TALLYGATE_SECRET is {state}; allowed: at least {MIN_SECRET_CHARACTERS} characters, "
                "as `python -c 'import secrets; print(secrets.token_urlsafe(32))'` makes them"
            )
        host, port = _address(env.get("TALLYGATE_DASHBOARD", "").strip() or "127.0.0.1:8321", faults)
        clickhouse = _clickhouse(env.get("TALLYGATE_CLICKHOUSE", "").strip() or _DEFAULT_CLICKHOUSE, faults)
        link_hours = _hours("TALLYGATE_LINK_HOURS", env, 24, faults)
        session_hours = _hours("TALLYGATE_SESSION_HOURS", env, 12, faults)
        if faults:
            raise ConfigError(f"{len(faults)} wrong setting(s)\n" + "\n".join(f"  {fault}" for fault in faults))
        return cls(host, port, clickhouse, secret, link_hours, session_hours)


_DEFAULT_CLICKHOUSE = "http://127.0.0.1:18123/tallygate"


def _opened(host: str) -> str:
    """Where a browser finds what listens on this address: that of all addresses is none that it can go to."""
    try:
        address = ip_address(host)
    except ValueError:  # it is a name
        return host
    if not address.is_unspecified:
        return host
    return "127.0.0.1" if address.version == 4 else "::1"


def _address(text: str, faults: list[str]) -> tuple[str, int]:
    match = _ADDRESS.match(text)
    if match is None or int(match.group(3)) > 65_535:
        faults.append(f"TALLYGATE_DASHBOARD is {text[:80]!r}; allowed: host:port, as in 127.0.0.1:8321")
        return "127.0.0.1", 0
    return match.group(1) or match.group(2), int(match.group(3))


def _clickhouse(text: str, faults: list[str]) -> ClickHouseDsn:
    try:
        return parse_dsn(text)
    except ConfigError as fault:
        faults.append(str(fault))
        return parse_dsn(_DEFAULT_CLICKHOUSE)


def _hours(name: str, env: Mapping[str, str], default: int, faults: list[str]) -> int:
    text = env.get(name, "").strip() or str(default)
    if re.fullmatch(r"[0-9]{1,4}", text) and 1 <= int(text) <= 2_160:
        return int(text)
    faults.append(f"{name} is {text[:80]!r}; allowed: a whole number of hours from 1 to 2,160")
    return default
