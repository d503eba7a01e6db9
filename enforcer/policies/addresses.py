"""From the text of TALLYGATE_POLICY to where the policy is: a file, or a key of Redis. Never connects.

No message shows a user or a password. An address of Redis is one of an owner with the key after the ``?``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from urllib.parse import unquote

from enforcer.errors import ConfigError
from enforcer.owners.addresses import read_many
from enforcer.owners.servers import checked_address

DEFAULT_KEY = "tallygate:policy"
_LONGEST = 256
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
        fallback: the file to start with where nobody answers; empty where there is none.
    """

    name: str
    key: str
    servers: Sequence[str] = field(repr=False)
    service: str
    url_of: Callable[[str, int], str]
    fallback: str


def is_address(where: str) -> bool:
    """Whether it is meant as an address rather than as a path."""
    return _ADDRESS.match(where) is not None


def read_policy_address(where: str) -> PolicyAddress:
    """Read ``redis://…?key=…&fallback=…`` and the other forms of an owner's address.

    Raises:
        ConfigError: it is not such an address. Never shows a password.
    """
    server, _, query = where.strip().partition("?")
    own: dict[str, list[str]] = {"key": [], "fallback": []}
    others = []
    for option in filter(None, query.split("&")):
        name, _, value = option.partition("=")
        if name in own:
            own[name].append(unquote(value))
        else:
            others.append(option)
    for name, values in own.items():
        if len(values) > 1 or not all(0 < len(value) <= _LONGEST and value.isprintable() for value in values):
            raise ConfigError(f"policy address has as {name} {values!r}; allowed: one of 1 to {_LONGEST} characters")
    key, fallback = (
        next(iter(values), default) for values, default in zip(own.values(), (DEFAULT_KEY, ""), strict=True)
    )
    url = f"{server}?{'&'.join(others)}" if others else server
    try:
        if "+" in url.split("://", 1)[0]:
            many = read_many(url)
            servers = tuple(many.servers)
            return PolicyAddress(f"{many.name}?key={key}", key, servers, many.service, many.url_of, fallback)
        return PolicyAddress(f"{checked_address(url)}?key={key}", key, (url,), "", _nowhere_else, fallback)
    except ConfigError as fault:
        said = str(fault).replace("owner address", "policy address")
        # These two were taken out above, so whoever judged the rest knows nothing of them.
        raise ConfigError(said.replace("; allowed: db, and", "; allowed: key, fallback, db, and")) from None


def _nowhere_else(host: str, port: int) -> str:
    raise ConfigError(f"policy address names one server, which sent us to {host}:{port}; allowed: redis+cluster://…")
