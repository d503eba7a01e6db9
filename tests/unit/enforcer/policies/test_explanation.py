"""Which rule applies to whom, and where it stands: what is said is what the limiter does."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from enforcer.core.resolution import resolve
from enforcer.policies.explain import lines_of
from enforcer.policies.explanation import Explanation, LimitSays, explain_policy
from enforcer.policies.model import Policy
from tallygate import cli
from tests.unit.enforcer.harness import Fleet, make_policy

DOCUMENT: dict[str, Any] = {
    "version": 3,
    "plans": {
        "standard": {"rate_per_s": 100, "burst": 200, "limits": {"day": {"quota": 1_000, "per": "day"}}},
        "large": {"rate_per_s": 1_000, "burst": 2_000, "soft_share": 0},
        "guest": {"rate_per_s": 1, "burst": 5},
    },
    "default_plan": "standard",
    "callers": {"acme": "large", "ann": {"plan": "standard", "tenant": "beta"}},
    "tenants": {"separator": "/"},
    "limits": {
        "tenant": {
            "by": "tenant", "rate_per_s": 50, "burst": 90, "overrides": {"beta": {"rate_per_s": 5, "burst": 9}},
        },
        "search": {"by": "caller", "scopes": ["POST /search"], "rate_per_s": 5, "burst": 10},
        "tried": {"by": "everyone", "quota": 7, "per": "hour", "zone": "Europe/Berlin", "mode": "shadow"},
        "staged": {"by": "caller", "rate_per_s": 1, "burst": 3, "percent": 50},
    },
    "scopes": {"GET /items/{id}": {}, "POST /search": {"cost": 5, "fail_mode": "closed"}, "GET /ping": {"cost": 0}},
    "anonymous": {"plan": "guest", "buckets": 4},
    "fleet": {"copies": 4, "ceiling_per_s": 1_000},
    "fail": {"mode": "emergency"},
}  # fmt: skip
POLICY = Policy.model_validate(DOCUMENT)


def _limits(found: Explanation) -> dict[str, LimitSays]:
    return {limit.name: limit for limit in found.limits}


@pytest.mark.parametrize(
    ("caller", "plan", "source", "tenant", "tenant_source"),
    [
        ("acme", "large", "callers.'acme'", None, "no tenant"),
        ("ann", "standard", "callers.'ann'", "beta", "callers.'ann'.tenant"),
        ("beta/bob", "standard", "default_plan", "beta", "tenants.separator"),
        ("anonymous/0002", "guest", "anonymous.plan", "anonymous", "tenants.separator"),
        ("somebody", "standard", "default_plan", None, "no tenant"),
    ],
)
def test_plan_and_tenant_are_told_with_their_place(
    caller: str, plan: str, source: str, tenant: str | None, tenant_source: str
) -> None:
    """Who wonders about a plan must find the line that says so."""
    found = explain_policy(POLICY, caller=caller, scope="default")
    assert (plan, source, tenant, tenant_source) == (found.plan, found.plan_source, found.tenant, found.tenant_source)


@pytest.mark.parametrize(
    ("given", "scope", "cost", "mode", "said"),
    [
        ("GET /items/7?x=1", "GET /items/{id}", 1, "emergency", "matches 'GET /items/7?x=1'"),
        ("POST /search", "POST /search", 5, "closed", "scopes.'POST /search'"),
        ("HEAD /ping", "GET /ping", 0, "emergency", "matches 'HEAD /ping'"),
        ("GET /nothing", "(unmatched)", 1, "emergency", "no route among the scopes matches 'GET /nothing'"),
        ("nightly", "nightly", 1, "emergency", "not among the scopes"),
    ],
)
def test_a_request_finds_its_scope_as_in_the_middleware(
    given: str, scope: str, cost: int, mode: str, said: str
) -> None:
    """Nobody knows templates by heart: what is asked about is a request."""
    found = explain_policy(POLICY, caller="acme", scope=given)
    assert (scope, cost, mode) == (found.scope, found.cost, found.fail_mode)
    assert said in found.scope_source


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("POST /serach", "under '(unmatched)', as told here (is it 'POST /search'?)"),
        ("GET /items/7", "under 'GET /items/{id}', as told here"),
        ("nightly", "the policy names no such scope, and no middleware makes it"),
    ],
)
def test_a_scope_that_the_policy_does_not_name_is_told_as_check_takes_it(given: str, said: str) -> None:
    """A mistyped scope is admitted at cost 1, without its limit: whoever asks here must see that."""
    found = explain_policy(POLICY, caller="acme", scope=given)
    assert found.literally is not None
    literal = resolve(POLICY, caller="acme", scope=given)
    assert "search" not in {due.terms.limit for due in literal.dues}
    names = ", ".join(due.terms.limit for due in literal.dues)
    begins = f"check and POST /check take {given!r} as it stands: cost 1, limits {names}; "
    assert found.literally.startswith(begins)
    assert found.literally.endswith(said)
    assert f"literally  {found.literally}" in list(lines_of(found))
    for named in ("POST /search", "default"):
        assert explain_policy(POLICY, caller="acme", scope=named).literally is None


def test_each_limit_says_how_much_whose_from_where_and_at_which_stage() -> None:
    """An amount without its place cannot be corrected."""
    found = explain_policy(POLICY, caller="ann", scope="POST /search", cost=8)
    limits = _limits(found)
    assert ["rate", "day", "tenant", "search"] == [name for name in limits if name not in {"staged", "tried"}]
    assert {
        "rate": (True, 100.0, 200, None, "ann", "plans.standard", False),
        "day": (True, None, None, 1_000, "ann", "plans.standard.limits.day", False),
        "tenant": (True, 5.0, 9, None, "beta", "limits.tenant.overrides.'beta'", False),
        "search": (True, 5.0, 10, None, "ann", "limits.search", False),
        "tried": (False, None, None, 7, "(everyone)", "limits.tried", True),
    } == {
        name: (one.enforced, one.rate_per_s, one.burst, one.quota, one.bucket, one.source, one.never)
        for name, one in limits.items()
        if name != "staged"
    }
    assert ("hour", "Europe/Berlin", "in shadow mode") == (
        limits["tried"].per,
        limits["tried"].zone,
        limits["tried"].stage,
    )
    assert (40, 200) == (limits["rate"].warns_at, limits["day"].warns_at)
    assert [] == found.left_out


def test_what_does_not_apply_is_named_too() -> None:
    """Half of all questions are why a limit did not hold."""
    found = explain_policy(POLICY, caller="acme", scope="GET /items/7")
    assert [("tenant", "the caller has no tenant"), ("search", "only in 'POST /search'")] == [
        (one.name, one.why) for one in found.left_out
    ]
    as_beta = explain_policy(POLICY, caller="acme", scope="GET /items/7", tenant="beta")
    assert ("beta", "given", 5.0) == (as_beta.tenant, as_beta.tenant_source, _limits(as_beta)["tenant"].rate_per_s)


def test_staged_limits_are_told_for_the_caller_as_the_limiter_has_them() -> None:
    """The limiter and the explanation must draw the same callers."""
    policy = make_policy(limits={"staged": {"by": "caller", "rate_per_s": 0.001, "burst": 1, "percent": 50}})
    fleet = Fleet(policy)
    told = set()
    for caller in (f"user-{number}" for number in range(20)):
        limit = _limits(explain_policy(policy, caller=caller, scope="default"))["staged"]
        assert limit.stage is not None
        assert ("is among" in limit.stage) is limit.enforced
        fleet.limiter.check(caller)
        assert fleet.limiter.check(caller).allowed is not limit.enforced
        told.add(limit.enforced)
    assert {True, False} == told


@pytest.mark.parametrize(
    ("mode", "said"),
    [
        ("by_plan", "the whole limit, 100/s, burst 200, in each copy"),
        ("emergency", "the limit divided by 4 copies: 25/s, burst 50, in each copy"),
        ("open_capped", "250/s, burst 250, in each copy, for all callers together"),
        ("closed", "refuses what this copy does not hold"),
    ],
)
def test_what_a_copy_does_without_the_owner_is_told(mode: str, said: str) -> None:
    """In an outage it is too late to read the code."""
    policy = Policy.model_validate({**DOCUMENT, "fail": {"mode": mode}})
    assert said == _limits(explain_policy(policy, caller="ann", scope="default"))["rate"].without_owner


def test_who_shares_the_anonymous_buckets_is_told_so() -> None:
    """A caller that was mistyped in the policy is on another plan, in a bucket with others."""
    policy = Policy.model_validate({**DOCUMENT, "unnamed": "anonymous"})
    found = explain_policy(policy, caller="acmee", scope="default")
    verdict = Fleet(policy).limiter.check("acmee")
    assert (found.charged_as, found.plan) == (verdict.basis.caller, "guest")


def _run(tmp_path: Path, *words: str) -> int:
    path = tmp_path / "policy.yaml"
    path.write_text(json.dumps(DOCUMENT))
    return cli.main(["policy", "explain", str(path), *words])


def test_the_command_prints_text_or_the_same_as_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One for people, one for programs."""
    words = ("--caller", "ann", "--scope", "GET /ping", "--cost", "300")
    assert 0 == _run(tmp_path, *words)
    text = capsys.readouterr().out
    assert "plan       standard (callers.'ann')" in text
    assert "cost       300 (given)" in text
    assert "refuses this request for ever: it costs 300" in text
    assert 0 == _run(tmp_path, *words, "--json")
    found = json.loads(capsys.readouterr().out)
    assert ("standard", 300, True) == (found["plan"], found["cost"], found["limits"][0]["never"])
    assert {limit["name"] for limit in found["limits"]} == {"rate", "day", "tenant", "tried", "staged"}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--caller", "", "--scope", "s"), "--caller is ''; allowed: text of 1 to 256 printable characters"),
        (("--caller", "a", "--scope", "s\n"), "--scope is 's\\n'; allowed"),
        (("--caller", "a", "--scope", "s", "--tenant", ""), "--tenant is ''; allowed"),
        (("--caller", "a", "--scope", "s", "--cost", "x"), "--cost is 'x'; allowed: a whole number from 0 to 1,000"),
        (("--caller", "a", "--scope", "s", "--cost", "1000000001"), "--cost is '1000000001'; allowed"),
    ],
)
def test_a_wrong_argument_is_named_with_its_value_and_what_is_allowed(
    tmp_path: Path, words: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The message is all that the reader sees."""
    assert 1 == _run(tmp_path, *words)
    assert said in capsys.readouterr().err
