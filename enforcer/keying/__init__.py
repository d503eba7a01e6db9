"""Who is calling: ways to find the caller's id in a request. Identity first; an address only where there is none.

A credential or an address is never a caller id; what is made of one here cannot be turned back. Never reads the
policy.

A request that names the policy's anonymous caller, or one of the ``anonymous/…`` buckets, as its own is counted there:
that gives it nothing which it would not have had by naming nobody.
"""

from __future__ import annotations

from enforcer.keying.address import from_address
from enforcer.keying.credentials import from_api_key
from enforcer.keying.identity import first_of, from_header
from enforcer.keying.proxies import Network, TrustedProxies
from enforcer.keying.request import Identify, Request, of_environ

__all__ = [
    "Identify",
    "Network",
    "Request",
    "TrustedProxies",
    "first_of",
    "from_address",
    "from_api_key",
    "from_header",
    "of_environ",
]
