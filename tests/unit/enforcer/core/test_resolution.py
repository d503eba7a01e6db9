"""Which rule applies: tested, because nobody can see it in production."""

from __future__ import annotations

import pytest

from enforcer.core.resolution import due_of, resolve
from enforcer.core.routes import RouteMatcher
from enforcer.policies.model import FailMode, Policy

POLICY = Policy.model_validate(
    {
        "version": 3,
        "plans": {
            "standard": {"rate_per_s": 100, "burst": 200},
            "large": {"rate_per_s": 20_000, "burst": 40_000},
            "guest": {"rate_per_s": 1, "burst": 5},
        },
        "default_plan": "standard",
        "callers": {"acme": "large"},
        "anonymous": {"plan": "guest"},
        "scopes": {"POST /search": {"cost": 10, "fail_mode": "closed"}, "GET /ping": {}},
        "fail": {"mode": "emergency"},
    }
)


@pytest.mark.parametrize(
    ("caller", "plan"), [("acme", "large"), ("somebody", "standard"), ("anonymous", "guest"), ("ACME", "standard")]
)
def test_plan_is_the_callers_own_or_the_default(caller: str, plan: str) -> None:
    """A caller on the wrong plan is refused, or served, what it did not buy."""
    assert plan == resolve(POLICY, caller=caller, scope="default").plan.name


@pytest.mark.parametrize(
    ("scope", "cost", "mode"),
    [
        ("POST /search", 10, FailMode.CLOSED),
        ("GET /ping", 1, FailMode.EMERGENCY),
        ("unheard of", 1, FailMode.EMERGENCY),
    ],
)
def test_cost_and_fail_mode_are_the_scopes_own_or_the_policys(scope: str, cost: int, mode: FailMode) -> None:
    """The most specific rule sets the value."""
    found = resolve(POLICY, caller="acme", scope=scope)
    assert (cost, mode, 3, "rate") == (found.cost, found.fail_mode, found.policy_version, found.dues[0].terms.limit)


@pytest.mark.parametrize(
    ("method", "path", "route"),
    [
        ("GET", "/items", "GET /items"),
        ("GET", "/items/new", "GET /items/new"),
        ("GET", "/items/7", "GET /items/{id}"),
        ("GET", "/items/7/parts", None),
        ("GET", "/items/", None),
        ("HEAD", "/items/7", "GET /items/{id}"),
        ("POST", "/items/7", None),
        ("GET", "/files/a/b/c.txt", "GET /files/{rest:path}"),
        ("GET", "/files/readme", "GET /files/{name}"),
        ("GET", "/v1.0/x", "GET /v1.0/x"),
        ("GET", "/v1a0/x", None),
        ("GET", "/items/7\n", "GET /items/{id}"),
        ("DELETE", "/", None),
    ],
)
def test_a_request_belongs_to_its_most_literal_route(method: str, path: str, route: str | None) -> None:
    """Ten thousand paths must become one scope, and always the same one."""
    routes = [
        "GET /files/{rest:path}", "GET /items/{id}", "GET /items", "GET /items/new", "GET /files/{name}",
        "GET /v1.0/x", "PUT /items/{id}",
    ]  # fmt: skip
    assert route == RouteMatcher(routes).match(method, path)
    assert route == RouteMatcher(reversed(routes)).match(method, path)


def test_no_routes_match_nothing() -> None:
    """A policy without routes is the first one that anybody writes."""
    assert RouteMatcher([]).match("GET", "/") is None


def test_a_known_bucket_is_held_to_what_its_next_request_would_be() -> None:
    """Its owner may be asked before such a request comes; two answers for one bucket would fight over it."""
    amount = {"rate_per_s": 1.0, "burst": 5}
    plan = {**amount, "limits": {"day": {"quota": 9, "per": "day", "mode": "shadow"}}}
    limits = {
        "site": {"by": "everyone", **amount},
        "team": {"by": "tenant", "overrides": {"acme": {"rate_per_s": 2.0, "burst": 7}}, **amount},
        "search": {"by": "scope", "scopes": ["search"], **amount},
    }
    policy = Policy.model_validate(
        {
            "version": 3,
            "plans": {"p": amount, "q": plan},
            "default_plan": "p",
            "callers": {"acme/1": "q"},
            "tenants": {"separator": "/"},
            "scopes": {"search": {}},
            "limits": limits,
        }
    )
    resolution = resolve(policy, caller="acme/1", scope="search")
    dues = [*resolution.dues, *resolution.shadows]
    assert {"rate", "day~shadow", "site", "team", "search"} == {due.terms.limit for due in dues}
    assert dues == [due_of(policy, due.subject, due.terms.limit) for due in dues]
    assert due_of(policy, "globex", "day") is None
