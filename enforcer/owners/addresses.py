"""From the text of TALLYGATE_OWNER_URL to the owners that it names. Never connects, never shows a password."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from urllib.parse import quote, unquote, urlsplit

from enforcer.errors import ConfigError
from enforcer.owners.cluster import ClusterOwners
from enforcer.owners.model import OwnersModel
from enforcer.owners.one import OneOwner
from enforcer.owners.patience import Patience
from enforcer.owners.port import Owners
from enforcer.owners.redis import RedisOwner
from enforcer.owners.ring import Ring
from enforcer.owners.sentinel import SentinelOwners
from enforcer.owners.servers import check_files, checked_address, refuse_at

_MANY = re.compile(r"(rediss?)\+(cluster|sentinel)://(?:([^/?]*)@)?([^/?@]*)(/[^?]*)?(\?.*)?")
_FORMS = "redis+cluster://host:port,host:port or redis+sentinel://host:port,host:port/service; rediss+… for TLS"


def owners_from_url(url: str, *, timeout_s: float | Patience, placing: OwnersModel | None = None) -> Owners:
    """The owners that an address names: one server, a ring of several, a cluster, or what sentinels watch.

    Args:
        url: ``redis://…``, ``rediss://…`` or ``unix://…``; several of them with commas or spaces between; or
            ``redis+cluster://host:port,host:port`` or ``redis+sentinel://host:port,host:port/service``, with the
            user, password and options of all nodes in it; the sentinels' own as ``sentinel_user`` and
            ``sentinel_password``.
        timeout_s: longest time for one call to one node; a `Patience` may be changed later.
        placing: pins and weights; for a ring only.

    Raises:
        ConfigError: it is not such an address, or the placing does not fit it. Never shows a password.
    """

    def owner_of(server: str) -> RedisOwner:
        return RedisOwner(server, timeout_s=timeout_s)

    def given(server: str) -> RedisOwner:
        owner = owner_of(server)
        check_files(server)
        return owner

    if "+" in url.split("://", 1)[0]:
        if placing is not None and placing != OwnersModel():
            raise ConfigError("owners of a policy place callers on a ring; allowed: none with a cluster or sentinels")
        return _many(url, owner_of, timeout_s.seconds if isinstance(timeout_s, Patience) else timeout_s)
    servers = [part for part in re.split(r"[\s,]+(?=[a-z]+://)", url.strip()) if part]
    if len(servers) < 2 and (placing is None or placing == OwnersModel()):
        owner = given(url.strip())
        return OneOwner(owner, name=owner.address)
    nodes = {}
    for server in servers:
        owner = given(server.rstrip(","))
        if owner.address in nodes:
            raise ConfigError(f"owner address names {owner.address} twice; allowed: each node once")
        nodes[owner.address] = owner
    return Ring(nodes, placing or OwnersModel())


def _many(url: str, owner_of: Callable[[str], RedisOwner], timeout_s: float) -> Owners:
    found = read_many(url)
    if not found.service:
        return ClusterOwners(found.servers, url_of=found.url_of, owner_of=owner_of, timeout_s=timeout_s)
    return SentinelOwners(
        found.servers, found.service, name=found.name, url_of=found.url_of, owner_of=owner_of, timeout_s=timeout_s
    )


@dataclass(frozen=True, slots=True)
class Many:
    """What the address of a cluster or of sentinels says.

    Attributes:
        name: without credentials.
        servers: the seeds of the cluster, or the sentinels, each as an address.
        service: what the sentinels watch; empty for a cluster.
        url_of: the address of a node, with credentials, by host and port.
    """

    name: str
    servers: list[str] = field(repr=False)
    service: str
    url_of: Callable[[str, int], str]


def read_many(url: str) -> Many:
    """Read the address of a cluster or of sentinels. Raises `ConfigError`, which never shows a password."""
    found = _MANY.fullmatch(url.strip())
    if found is None:
        raise ConfigError(f"owner address has another form; allowed: {_FORMS}")
    scheme, kind, user, hosts, path, options = (part or "" for part in found.groups())
    refuse_at(path, options)
    addresses = [host.strip() for host in hosts.split(",")]
    service = path.strip("/")
    credentials = f"{user}@" if user else ""

    def url_of(host: str, port: int) -> str:
        shown = f"[{host}]" if ":" in host else host
        return f"{scheme}://{credentials}{shown}:{port}/0{options}"

    name = f"{scheme}+{kind}://{','.join(addresses)}"
    if kind == "cluster":
        if service not in {"", "0"}:
            raise ConfigError("owner address has a path; allowed: none with a cluster, which has one database")
        seeds = [_checked(f"{scheme}://{credentials}{address}/0{options}") for address in addresses]
        return Many(name, seeds, "", url_of)
    if not service or "/" in service:
        raise ConfigError(f"owner address names no service; allowed: {_FORMS}")
    own, options = _of_the_sentinels(options)
    sentinels = [_sentinel(f"{scheme}://{own}{address}/0{options}") for address in addresses]
    return Many(f"{name}/{service}", sentinels, service, url_of)


def _of_the_sentinels(options: str) -> tuple[str, str]:
    """The sentinels' own credentials as they stand in an address, and the other options."""
    found: dict[str, str] = {}
    others = []
    for option in filter(None, options.removeprefix("?").split("&")):
        name, _, value = option.partition("=")
        if name in {"sentinel_user", "sentinel_password"}:
            found[name] = quote(unquote(value), safe="")
        else:
            others.append(option)
    credentials = f"{found.get('sentinel_user', '')}:{found.get('sentinel_password', '')}@" if found else ""
    return credentials, f"?{'&'.join(others)}" if others else ""


def _checked(url: str) -> str:
    checked_address(url)
    check_files(url)
    return url


def _sentinel(url: str) -> str:
    parts = urlsplit(_checked(url))
    return url if parts.port else parts._replace(netloc=f"{parts.netloc}:26379").geturl()
