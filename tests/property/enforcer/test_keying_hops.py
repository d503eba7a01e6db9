"""Whatever a client sends, the address that the first trusted proxy saw is the caller's."""

from __future__ import annotations

from ipaddress import IPv6Address, ip_address, ip_network
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from enforcer.keying import TrustedProxies, from_address

_TEN = ip_network("10.0.0.0/8")
PROXIES = TrustedProxies(["10.0.0.0/8"])
_claims = st.one_of(
    st.text(alphabet=st.characters(max_codepoint=255), max_size=40),
    st.text(alphabet='for=,;"\\ 1.:[]_unkow', max_size=40),
    st.sampled_from(["for=1.1.1.1", "1.1.1.1", 'for="1.1.1.1', "10.0.0.9", 'for="[::1]:1"', "for=10.0.0.9"]),
)
_callers = st.ip_addresses().filter(lambda a: (getattr(a, "ipv4_mapped", None) or a) not in _TEN)

_hops = st.lists(st.integers(1, 250).map(lambda n: f"10.0.0.{n}"), min_size=1, max_size=4)


def _written(header: str, address: str) -> str:
    if header == "x-forwarded-for":
        return address
    return f'for="[{address}]:80";proto=http' if ":" in address else f"for={address}"


@pytest.mark.parametrize("header", ["forwarded", "x-forwarded-for"])
@given(claims=st.lists(_claims, max_size=3), caller=_callers, hops=_hops, same_line=st.lists(st.booleans(), min_size=4))
def test_no_claim_of_a_client_moves_it(
    header: str, claims: list[str], caller: Any, hops: list[str], same_line: list[bool]
) -> None:
    """A model: each trusted proxy appends who called it, to the last line or as a line of its own."""
    lines = list(claims)
    for number, peer in enumerate([str(caller), *hops[:-1]]):
        text = _written(header, peer)
        if lines and same_line[number % len(same_line)]:
            lines[-1] = f"{lines[-1]}, {text}"
        else:
            lines.append(text)
    headers = [(header.encode(), line.encode("latin-1")) for line in lines]
    found = PROXIES.address_of({"headers": headers, "client": (hops[-1], 1)})
    mapped = caller.ipv4_mapped if isinstance(caller, IPv6Address) else None
    assert ip_address(str(mapped or caller)) == found


@given(claims=st.lists(_claims, max_size=4), peer=st.one_of(st.none(), _claims, st.just("10.0.0.1")))
def test_nothing_is_raised_whatever_stands_in_the_headers(claims: list[str], peer: str | None) -> None:
    """A header of a client must never be a 500."""
    identify = from_address(secret="a-secret-of-enough-bytes", trusted_proxies=["10.0.0.0/8", "unix"])
    for name in (b"forwarded", b"x-forwarded-for"):
        headers = [(name, claim.encode("latin-1")) for claim in claims]
        caller = identify({"headers": headers, "client": None if peer is None else (peer, 0)})
        assert caller is None or caller.startswith("anonymous/")
