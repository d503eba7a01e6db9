"""From the text of TALLYGATE_POLICY to where the policy is: a file, or a key of Redis. Never connects.

No message shows a user or a password. An address of Redis is one of an owner with the key after the ``?``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from urllib.parse import unquote

from enforcer.errors import ConfigError
from enforcer.owners.addresses import read_many
from enforcer.owners.servers import checked_address

DEFAULT_KEY = "tallygate:policy"
_LONGEST_KEY = 256
_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")


@dataclass(frozen=True, slots=True)
class PolicyAddress:
    """Where in Redis a policy is.

    Attributes:
        name: the address as it may be shown, with the key, without user and password.
        key: that holds it.
        servers: addresses with credentials: of the server, of seeds of a cluster, or of sentinels.
        service: that the sentinels watch; empty where there are none.
        url_of: the address of a node that a cluster or a sentinel has named, by host and port.
    """

    name: str
    key: str
    servers: Sequence[str]
    service: str
    url_of: Callable[[str, int], str]


def is_address(where: str) -> bool:
    """Whether it is meant as an address rather than as a path."""
    return _ADDRESS.match(where) is not None


def read_policy_address(where: str) -> PolicyAddress:
    """Read ``redis://…?key=…`` and the other forms of an owner's address.

    Raises:
        ConfigError: it is not such an address. Never shows a password.
    """
    server, _, query = where.strip().partition("?")
    options = [option for option in query.split("&") if option]
    keys = [unquote(option[len("key=") :]) for option in options if option.startswith("key=")]
    if len(keys) > 1 or not all(0 < len(key) <= _LONGEST_KEY and key.isprintable() for key in keys):
        raise ConfigError(f"policy address has the keys {keys!r}; allowed: one of 1 to {_LONGEST_KEY} characters")
    key = keys[0] if keys else DEFAULT_KEY
    others = "&".join(option for option in options if not option.startswith("key="))
    url = f"{server}?{others}" if others else server
    try:
        if "+" in url.split("://", 1)[0]:
            many = read_many(url)
            return PolicyAddress(f"{many.name}?key={key}", key, tuple(many.servers), many.service, many.url_of)
        return PolicyAddress(f"{checked_address(url)}?key={key}", key, (url,), "", _nowhere_else)
    except ConfigError as fault:
        raise ConfigError(str(fault).replace("owner address", "policy address")) from None


def _nowhere_else(host: str, port: int) -> str:
    raise ConfigError(f"policy address names one server, which sent us to {host}:{port}; allowed: redis+cluster://…")
