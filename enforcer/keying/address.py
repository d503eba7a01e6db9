"""Callers without an identity, by their address: a bounded number of buckets, and no address in any record."""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b

from enforcer.core.anonymous import ANONYMOUS, MOST_BUCKETS, bucket_name
from enforcer.errors import ConfigError
from enforcer.keying.credentials import secret_key
from enforcer.keying.nodes import Address
from enforcer.keying.proxies import TrustedProxies
from enforcer.keying.request import Identify, Request

_BITS = {4: 32, 6: 128}


def from_address(
    *,
    secret: bytes | str,
    trusted_proxies: Iterable[str] = (),
    header: str | None = None,
    ipv6_prefix: int = 64,
    ipv4_prefix: int = 32,
    buckets: int = 1_024,
    caller: str = ANONYMOUS,
) -> Identify:
    """Make an id of the caller's address: ``anonymous/0417``, a keyed hash of its prefix modulo `buckets`.

    Made-up addresses so fill `buckets` callers and no more, and an id says nothing about the address. Two callers share
    a bucket with a chance of one in `buckets`. None, the policy's one anonymous caller, where there is no address.

    Args:
        secret: keys the hash, 16 to 64 bytes; the same in every copy, or a caller gets a bucket from each.
        trusted_proxies: see `TrustedProxies`; empty: the peer is the caller, whatever the headers say.
        header: ``forwarded`` or ``x-forwarded-for``, the one that your proxies write; None: see `TrustedProxies`.
        ipv6_prefix: leading bits that make one caller, 1 to 128; a household or a server is given a whole /64 or more.
        ipv4_prefix: leading bits that make one caller, 1 to 32.
        buckets: how many callers there can be, 1 to 65,536.
        caller: the policy's ``anonymous.caller``; the ids begin with it.

    Raises:
        ConfigError: one of these is not allowed.
    """
    key = secret_key(secret)
    proxies = TrustedProxies(trusted_proxies, header=header)
    prefixes = {
        4: _within("ipv4_prefix", ipv4_prefix, _BITS[4]),
        6: _within("ipv6_prefix", ipv6_prefix, _BITS[6]),
    }
    count = _within("buckets", buckets, MOST_BUCKETS)

    def identify(request: Request) -> str | None:
        address = proxies.address_of(request)
        if address is None:
            return None
        digest = blake2b(_prefix(address, prefixes[address.version]), digest_size=8, key=key).digest()
        return bucket_name(caller, int.from_bytes(digest, "big") % count)

    return identify


def _prefix(address: Address, bits: int) -> bytes:
    """The leading bits of an address, with its version: no IPv4 prefix is an IPv6 one."""
    host_bits = _BITS[address.version] - bits
    return bytes([address.version]) + (int(address) >> host_bits << host_bits).to_bytes(16, "big")


def _within(name: str, value: int, most: int) -> int:
    if type(value) is not int or not 1 <= value <= most:
        raise ConfigError(f"{name} is {value!r}; allowed: 1 to {most:,}")
    return value
