"""What descriptors mean by the policy."""

from __future__ import annotations

import pytest

from enforcer.envoy.mapping import Charged, Mapper
from enforcer.errors import PolicyError
from enforcer.policies.loader import parse_policy
from tests.unit.enforcer.envoy.calls import envoy_policy

_POLICY = """
version: 1
plans: {p: {rate_per_s: 1, burst: 1}}
default_plan: p
envoy:
  domains:
    shop:
      rules:
        one: {%s}
"""


def _mapper() -> Mapper:
    return Mapper(envoy_policy().envoy, anonymous="anonymous", routes=["GET /items/{id}"])


@pytest.mark.parametrize(
    ("entries", "charged"),
    [
        ({"account": "acme", "class": "read"}, Charged("acme", "read", None)),
        ({"account": "acme", "class": "read", "more": "x"}, Charged("acme", "read", None)),
        ({"account": "acme", "method": "GET", "path": "/items/7?x=1"}, Charged("acme", "GET /items/{id}", None)),
        ({"account": "acme", "method": "GET", "path": "/else"}, Charged("acme", "(unmatched)", None)),
        ({"remote_address": "10.0.0.1"}, Charged("ip 10.0.0.1", "by address", 2)),
        ({"account": "", "class": "read"}, Charged("anonymous", "read", None)),
        ({"account": "acme"}, None),
        ({"other": "x"}, None),
    ],
)
def test_descriptor_is_charged_by_the_first_rule_whose_keys_it_has(
    entries: dict[str, str], charged: Charged | None
) -> None:
    """What a request costs, and whom, follows from the policy alone."""
    assert charged == _mapper().charged("shop", entries)


def test_domain_without_rules_charges_nobody() -> None:
    """A domain that the policy does not know is no caller's."""
    assert _mapper().charged("other", {"account": "acme", "class": "read"}) is None
    assert Mapper(None, anonymous="a", routes=[]).charged("shop", {"account": "acme"}) is None


def test_doubled_braces_are_braces() -> None:
    """A constant scope may be a route's name."""
    section = {"domains": {"d": {"rules": {"r": {"caller": "{a}", "scope": "GET /items/{{id}}"}}}}}
    mapper = Mapper(envoy_policy(section=section).envoy, anonymous="anonymous", routes=[])
    assert Charged("x", "GET /items/{id}", None) == mapper.charged("d", {"a": "x"})


@pytest.mark.parametrize(
    ("rule", "says"),
    [
        ("caller: '{a', scope: s", "lone '{'"),
        ("caller: '{a}', scope: 'GET {path}'", "raw path 'path'"),
        ("caller: '{a}', scope: 'GET {:Path}'", "raw path ':path'"),
        ("caller: '{a}', scope: s, route: {method: m, path: p}", "has scope and route; allowed: one of them"),
        ("scope: s", "is missing"),
        ("caller: '{a}', cost: -1", "greater than or equal to 0"),
        ("caller: '{a}', colour: red", "unknown field; allowed: caller, cost, mode, route, scope"),
        ("caller: '{a}', route: {method: m}", "is missing"),
        (r'caller: "a\tb"', "control characters"),
    ],
)
def test_wrong_rule_is_a_fault_with_its_line(rule: str, says: str) -> None:
    """An operator corrects what the message names; a raw path as scope would be scopes without end."""
    with pytest.raises(PolicyError) as caught:
        parse_policy((_POLICY % rule).encode())
    (fault,) = caught.value.faults
    assert says in fault.message
    assert fault.line == 9
    assert fault.path.startswith("envoy.domains.shop.rules.one")
