"""Whose word about addresses is taken: the proxies that were configured, and nobody else's."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from ipaddress import IPv4Network, IPv6Address, IPv6Network, ip_network
from typing import TypeAlias

from enforcer.errors import ConfigError
from enforcer.keying.nodes import Address, address_of, forwarded, x_forwarded_for
from enforcer.keying.request import Request, header_lines

Network: TypeAlias = IPv4Network | IPv6Network

#: Stands among trusted proxies for the peer at the other end of a Unix socket, which has no address.
UNIX = "unix"
_HEADERS = ("forwarded", "x-forwarded-for")


class TrustedProxies:
    """Finds the address of a caller behind proxies.

    Rules, in order:

    1. A peer that is not trusted is the caller; its headers are not read.
    2. Behind a trusted peer the hops are walked from the right; the first that is not trusted is the caller.
    3. A hop whose name is missing, hidden (``unknown``, ``_obfuscated``) or no address: the trusted hop that wrote so
       answers for it, and is the caller.
    4. All hops trusted: the farthest one is the caller.
    5. ``Forwarded`` and ``X-Forwarded-For`` in one request must lead to the same address. If they do not, one of them
       came through from the client, and nobody can tell which: the peer is the caller. Naming the header that your
       proxies write (`header`) settles it: the other is then never read.
    """

    def __init__(self, networks: Iterable[str], *, header: str | None = None) -> None:
        """Trust these networks.

        Args:
            networks: addresses and networks (``10.0.0.0/8``, ``2001:db8::/32``, ``192.0.2.7``) of proxies that append
                the address of whoever called them; ``unix`` trusts the peer of a Unix socket.
            header: ``forwarded`` or ``x-forwarded-for``: the one that all of them write; None reads both (rule 5).

        Raises:
            ConfigError: one is no network, or has bits set behind its prefix; another header.
        """
        if isinstance(networks, str):
            raise ConfigError(f"trusted_proxies is {networks!r}; allowed: a list of networks")
        if header is not None and header.lower() not in _HEADERS:
            raise ConfigError(f"header is {header!r}; allowed: {', '.join(_HEADERS)}")
        names = list(networks)
        self._unix = UNIX in names
        self._networks = tuple(_network(name) for name in names if name != UNIX)
        self._read = _HEADERS if header is None else (header.lower(),)

    def address_of(self, request: Request) -> Address | None:
        """The caller's address; None if there is none (a Unix socket whose peer is not trusted or names nobody)."""
        client = request.get("client")
        peer = address_of(str(client[0])) if client and client[0] else None
        has_address = bool(client and client[0])
        trusted = self.trusts(peer) if peer is not None else self._unix and not has_address
        if not trusted:
            return peer
        answers = [self._walk(peer, hops) for hops in self._chains(request)]
        if not answers or any(answer != answers[0] for answer in answers):
            return peer
        return answers[0]

    def trusts(self, address: Address) -> bool:
        """Whether an address is one of the proxies."""
        return any(address.version == network.version and address in network for network in self._networks)

    def _chains(self, request: Request) -> Iterator[Iterator[Address | None]]:
        for name in self._read:
            lines = header_lines(request, name.encode("ascii"))
            if lines:
                yield forwarded(lines) if name == "forwarded" else x_forwarded_for(lines)

    def _walk(self, peer: Address | None, hops: Iterator[Address | None]) -> Address | None:
        nearest = peer
        for hop in hops:
            if hop is None:
                return nearest
            nearest = hop
            if not self.trusts(hop):
                return hop
        return nearest


def _network(name: str) -> Network:
    try:
        network = ip_network(name.strip())
    except (ValueError, AttributeError):
        raise ConfigError(
            f"trusted_proxies has {name!r}; allowed: an address, a network such as 10.0.0.0/8 without bits behind its "
            f"prefix, or {UNIX}"
        ) from None
    mapped = _mapped(network)
    return mapped or network


def _mapped(network: Network) -> IPv4Network | None:
    """``::ffff:10.0.0.0/104`` is ``10.0.0.0/8``: addresses are compared after they were unmapped."""
    first = network.network_address
    if not isinstance(first, IPv6Address) or first.ipv4_mapped is None or network.prefixlen < 96:
        return None
    return IPv4Network((int(first.ipv4_mapped), network.prefixlen - 96))
