"""Callers by address: whose word is taken, and what is made of an address."""

from __future__ import annotations

from typing import Any

import pytest

from enforcer.errors import ConfigError, InvalidField
from enforcer.keying import (
    TrustedProxies,
    first_of,
    from_address,
    from_api_key,
    from_header,
    of_environ,
)
from tests.unit.enforcer.harness import Fleet

SECRET = "a-secret-of-enough-bytes"
PROXIES = ["10.0.0.0/8", "2001:db8:ffff::/48"]
XFF, FORWARDED = "x-forwarded-for", "forwarded"


def _request(peer: str | None, *headers: tuple[str, str]) -> dict[str, Any]:
    encoded = [(name.encode(), value.encode("latin-1")) for name, value in headers]
    return {"type": "http", "headers": encoded, "client": (peer, 1) if peer is not None else None}


def _address(peer: str | None, *headers: tuple[str, str], trusted: list[str] = PROXIES) -> str | None:
    found = TrustedProxies(trusted).address_of(_request(peer, *headers))
    return str(found) if found is not None else None


@pytest.mark.parametrize("header", [(XFF, "1.2.3.4"), (FORWARDED, "for=1.2.3.4"), ("x_forwarded_for", "1.2.3.4")])
def test_headers_of_an_untrusted_peer_are_ignored(header: tuple[str, str]) -> None:
    """E22: else anybody takes a new address, and with it a new burst, with each request."""
    assert "192.0.2.9" == _address("192.0.2.9", header)
    assert "192.0.2.9" == _address("192.0.2.9", header, trusted=[])


@pytest.mark.parametrize(
    ("headers", "caller"),
    [
        ([(XFF, "1.1.1.1, 192.0.2.9")], "192.0.2.9"),
        ([(XFF, "1.1.1.1, 192.0.2.9, 10.0.0.2, 10.9.9.9")], "192.0.2.9"),
        ([(XFF, "1.1.1.1"), (XFF, "192.0.2.9"), (XFF, "10.0.0.2")], "192.0.2.9"),
        ([(XFF, "192.0.2.9:4711")], "192.0.2.9"),
        ([(XFF, "[2001:db8::1]:443")], "2001:db8::1"),
        ([(XFF, "2001:db8::1")], "2001:db8::1"),
        ([(XFF, "::ffff:192.0.2.9")], "192.0.2.9"),
        ([(XFF, "fe80::1%eth0")], "fe80::1"),
        ([(FORWARDED, 'for="[2001:db8::1]:47011";proto=https;by=203.0.113.43')], "2001:db8::1"),
        ([(FORWARDED, "For=192.0.2.9;Proto=http, for=10.0.0.3")], "192.0.2.9"),
        ([(FORWARDED, 'by="a,b;\\"c";for="192.0.2.9:_port"')], "192.0.2.9"),
        ([(FORWARDED, "for=1.1.1.1"), (FORWARDED, "for=192.0.2.9")], "192.0.2.9"),
        ([(FORWARDED, "for=192.0.2.9"), (XFF, "192.0.2.9")], "192.0.2.9"),
        ([(XFF, "10.0.0.7, 10.0.0.8")], "10.0.0.7"),
    ],
)
def test_rightmost_untrusted_hop_is_the_caller(headers: list[tuple[str, str]], caller: str) -> None:
    """E22: only what a trusted proxy wrote is read; what stands before it came from the caller."""
    assert caller == _address("10.0.0.1", *headers)


@pytest.mark.parametrize(
    "header",
    [
        (XFF, "1.1.1.1, unix:"),
        (XFF, "1.1.1.1,"),
        (XFF, ""),
        (XFF, "1.1.1.1, 300.1.1.1"),
        (FORWARDED, "for=1.1.1.1, for=unknown"),
        (FORWARDED, "for=1.1.1.1, for=_hidden"),
        (FORWARDED, "for=1.1.1.1, proto=http"),
        (FORWARDED, "for=1.1.1.1, for=2.2.2.2;for=3.3.3.3"),
        (FORWARDED, 'for=1.1.1.1, for="2.2.2.2"junk'),
    ],
)
def test_a_trusted_hop_that_names_nobody_answers_itself(header: tuple[str, str]) -> None:
    """Going on to the left would believe what the unnamed hop claims."""
    assert "10.0.0.1" == _address("10.0.0.1", header)


@pytest.mark.parametrize("claimed", ['for="1.1.1.1', 'for=1.1.1.1;by="', '"', 'for="\\', ',;=\\"'])
def test_an_open_quote_of_the_client_does_not_swallow_what_the_proxy_appended(claimed: str) -> None:
    """A parser from the left reads the proxy's element as part of the client's string."""
    for appended in ("for=192.0.2.9", 'for="192.0.2.9:80";proto=http'):
        assert "192.0.2.9" == _address("10.0.0.1", (FORWARDED, f"{claimed}, {appended}"))


def test_headers_that_disagree_are_both_not_believed_unless_one_was_named() -> None:
    """Proxies that append one of them let the client's other through."""
    headers = [(FORWARDED, "for=1.1.1.1"), (XFF, "192.0.2.9")]
    assert "10.0.0.1" == _address("10.0.0.1", *headers)
    named = TrustedProxies(PROXIES, header="X-Forwarded-For").address_of(_request("10.0.0.1", *headers))
    assert "192.0.2.9" == str(named)


def test_a_unix_socket_is_trusted_only_where_it_was_named() -> None:
    """It has no address by which it could be known."""
    assert _address(None, (XFF, "192.0.2.9")) is None
    assert "192.0.2.9" == _address(None, (XFF, "192.0.2.9"), trusted=["unix"])
    assert "192.0.2.9" == _address("", (XFF, "192.0.2.9"), trusted=["unix"])
    assert _address("testclient", (XFF, "192.0.2.9"), trusted=["unix"]) is None
    assert _address(None, trusted=["unix"]) is None


def test_a_mapped_peer_and_network_are_their_ipv4_selves() -> None:
    """A dual-stack socket shows a proxy of 10.0.0.0/8 as ::ffff:10.…: it is the same proxy."""
    assert "192.0.2.9" == _address("::ffff:10.0.0.1", (XFF, "192.0.2.9"))
    assert "192.0.2.9" == _address("10.0.0.1", (XFF, "192.0.2.9"), trusted=["::ffff:10.0.0.0/104"])


def test_a_prefix_is_one_caller_and_an_address_shows_in_no_id() -> None:
    """A household has 2^64 addresses; a limit by address is none for it."""
    identify = from_address(secret=SECRET, buckets=65_536)
    first, same, other = (identify(_request(a)) for a in ("2001:db8::1", "2001:db8::ffff:1", "2001:db8:0:1::1"))
    assert first is not None
    assert first == same != other
    assert first.removeprefix("anonymous/").isdigit()
    assert identify(_request("192.0.2.1")) != identify(_request("192.0.2.2"))
    wide = from_address(secret=SECRET, ipv4_prefix=24)
    assert wide(_request("192.0.2.1")) == wide(_request("192.0.2.2"))
    assert identify(_request(None)) is None


def test_made_up_addresses_fill_the_buckets_and_no_more() -> None:
    """The state of the owner is bounded by the configuration, not by an attacker."""
    identify = from_address(secret=SECRET, buckets=8)
    names = {identify(_request(f"198.51.{n // 256}.{n % 256}")) for n in range(2_000)}
    assert {f"anonymous/{n:04d}" for n in range(8)} == names
    moved = from_address(secret=SECRET + "x", buckets=8)
    assert any(moved(_request(f"198.51.0.{n}")) != identify(_request(f"198.51.0.{n}")) for n in range(50))


def test_identity_comes_first_and_a_broken_one_is_refused() -> None:
    """An address is for requests without an identity, not for those that broke theirs."""
    identify = first_of(from_header("x-account"), from_address(secret=SECRET))
    assert "acme" == identify(_request("192.0.2.1", ("x-account", "acme")))
    assert str(identify(_request("192.0.2.1"))).startswith("anonymous/")
    with pytest.raises(InvalidField):
        identify(_request("192.0.2.1", ("x-account", "a"), ("x-account", "b")))
    with pytest.raises(ConfigError, match="one or more"):
        first_of()


def test_an_environ_is_the_same_request() -> None:
    """One way to identify callers for both kinds of server."""
    environ = {"REQUEST_METHOD": "GET", "PATH_INFO": "/caf\xc3\xa9", "REMOTE_ADDR": "10.0.0.1"}
    request = of_environ({**environ, "HTTP_X_FORWARDED_FOR": "1.1.1.1,192.0.2.9", "HTTP_X_ACCOUNT": "acme"})
    assert ("GET", "/café") == (request["method"], request["path"])
    assert "192.0.2.9" == str(TrustedProxies(PROXIES).address_of(request))
    assert "acme" == from_header("x-account")(request)
    with pytest.raises(InvalidField, match="more than once"):
        from_header("x-account")(of_environ({"HTTP_X_ACCOUNT": "acme,other"}))


@pytest.mark.parametrize(
    "wrong",
    [
        {"trusted_proxies": ["10.0.0.1/8"]},
        {"trusted_proxies": "10.0.0.0/8"},
        {"trusted_proxies": ["nginx"]},
        {"header": "x-real-ip"},
        {"ipv6_prefix": 0},
        {"ipv4_prefix": 33},
        {"buckets": 0},
        {"buckets": True},
        {"secret": "short"},
    ],
)
def test_a_wrong_setting_is_refused_by_name(wrong: dict[str, Any]) -> None:
    """A network that was meant otherwise trusts whom nobody meant to trust."""
    with pytest.raises(ConfigError, match=r"prox|header|prefix|buckets|secret"):
        from_address(**{"secret": SECRET, **wrong})


def test_a_key_reaches_no_fact_and_no_state_of_the_owner() -> None:
    """What the enforcer never holds it can never leak."""
    key = "live-9f8e7d6c5b4a39281706-Zq4T"
    caller = from_api_key("authorization", SECRET)(_request("192.0.2.1", ("authorization", f"Bearer {key}")))
    assert caller is not None
    fleet = Fleet()
    verdicts = [fleet.limiter.check(caller) for _ in range(300)]
    fleet.advance(3)
    fleet.limiter.close()
    sink = fleet.sink
    everything = repr((verdicts, sink.verdicts, sink.grants, sink.settlements, sink.changes, vars(fleet.owner)))
    assert caller in everything
    assert key[:-4] not in everything
