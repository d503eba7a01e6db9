"""Policy files: every fault at once, each with its line."""

from __future__ import annotations

from pathlib import Path

import pytest

from enforcer.errors import PolicyError
from enforcer.policies import load_policy, parse_policy
from enforcer.policies.check import main
from enforcer.policies.model import METHODS, FailMode

GOOD = """\
version: 7
plans:
  standard: {rate_per_s: 100, burst: 200}
  large: {rate_per_s: 20000, burst: 40000}
default_plan: standard
callers:
  acme: large
  007: standard
scopes:
  "GET /items/{id}": {}
  "POST /search": {cost: 10, fail_mode: closed}
  nightly-import: {cost: 5}
anonymous: {caller: nobody, plan: standard}
fleet: {copies: 48, ceiling_per_s: 160000}
fail: {mode: by_plan, large_share: 0.5}
timeouts: {ask_ms: 40}
"""

FIVE_FAULTS = """\
version: 1
plans:
  standard: {rate_per_s: -1, burst: 200}
  standard: {rate_per_s: 1, burst: 200}
default_plan: gold
callers:
  acme: standard
  beta: {plan: 7}
colour: red
"""


def _faults(text: str) -> list[tuple[int | None, str, str]]:
    with pytest.raises(PolicyError) as caught:
        parse_policy(text.encode())
    return [(fault.line, fault.path, fault.message) for fault in caught.value.faults]


def test_a_valid_policy_is_read_whole() -> None:
    """A field that is read wrong charges a customer wrong."""
    policy = parse_policy(GOOD.encode())
    assert 7 == policy.version
    assert (20_000.0, 40_000) == (policy.plans["large"].rate_per_s, policy.plans["large"].burst)
    assert {"acme": "large", "007": "standard"} == {name: rule.plan for name, rule in policy.callers.items()}
    assert (10, FailMode.CLOSED) == (policy.scopes["POST /search"].cost, policy.scopes["POST /search"].fail_mode)
    assert (1, None) == (policy.scopes["GET /items/{id}"].cost, policy.scopes["GET /items/{id}"].fail_mode)
    assert ("nobody", 48, 0.5, 40) == (
        policy.anonymous.caller, policy.fleet.copies, policy.fail.large_share, policy.timeouts.ask_ms,
    )  # fmt: skip


def test_five_faults_are_five_faults_with_their_lines() -> None:
    """Whoever mends a policy at night must not find its faults one deployment at a time."""
    faults = _faults(FIVE_FAULTS)
    assert [3, 4, 5, 8, 9] == [line for line, _, _ in faults]
    assert [
        "plans.standard.rate_per_s",
        "plans.standard (again)",
        "default_plan",
        "callers.beta.plan",
        "colour",
    ] == [path for _, path, _ in faults]
    assert "is -1" in faults[0][2]
    assert "first in line 3" in faults[1][2]
    assert "'gold'" in faults[2][2]
    assert "allowed: standard" in faults[2][2]
    assert "allowed: anonymous, callers, cap, default_plan, envoy, fail, fleet, limits, owners, plans, " in faults[4][2]


@pytest.mark.parametrize(
    ("old", "new", "line", "says"),
    [
        ("rate_per_s: 100,", "rate_per_s: .nan,", 3, "finite"),
        ("rate_per_s: 100,", "rate_per_s: .inf,", 3, ""),
        ("burst: 200", "burst: 0", 3, "greater than or equal to 1"),
        ("burst: 200", "burst: '200'", 3, "integer"),
        ("burst: 200", "burst: yes", 3, "integer"),
        ("burst: 200", "burst: 200, bust: 1", 3, "allowed: burst, limits, rate_per_s, soft_share"),
        ("burst: 200", "", 3, "is missing"),
        ("version: 7", "version: 0", 1, "greater than or equal to 1"),
        ("version: 7", "version: 7.0", 1, "integer"),
        ("acme: large", "acme: larg", 7, "there is no plan 'larg'; allowed: large, standard"),
        ("cost: 10", "cost: -10", 11, "greater than or equal to 0"),
        ("fail_mode: closed", "fail_mode: open", 11, "'by_plan', 'closed', 'emergency' or 'open_capped'"),
        ("/items/{id}", "/items/{id", 10, "not allowed"),
        ("/items/{id}", "/items/{id:path}/x", 10, "must be the last"),
        ('"GET /items/{id}"', "GET items/{id}", 10, "'GET /items/{id}'"),
        ('"GET /items/{id}"', "FETCH /x", 10, "'FETCH' is no method"),
        ('"GET /items/{id}"', '"* /x"', 10, "'*' is no method"),
        ('"GET /items/{id}"', "get /x", 10, "allowed: GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS"),
        ('"GET /items/{id}"', "/y", 10, "a path without a method; allowed: METHOD /path, as in 'GET /y'"),
        ('"GET /items/{id}"', "items/{id}", 10, "no method"),
        ('"GET /items/{id}"', "nightly import", 10, "a name without slash and space"),
        ("cost: 10", "cost: 40001", 11, "is 40001, above the burst of every plan"),
        ("plan: standard}", "plan: none}", 13, "there is no plan 'none'"),
        ("caller: nobody", 'caller: "no\\tbody"', 13, "control characters"),
        ("copies: 48", "copies: 0", 14, "greater than or equal to 1"),
        ("ask_ms: 40", "ask_ms: 0", 16, "greater than or equal to 1"),
        ("default_plan: standard", "default_plan: *nowhere", 5, "is not YAML"),
        ("version: 7", "version: [7", 2, "is not YAML"),
        ("acme: large", "[acme]: large", 7, "a key must be text"),
    ],
)
def test_each_fault_is_named_with_its_line(old: str, new: str, line: int, says: str) -> None:
    """The message must lead to the place: field, value, what is allowed."""
    assert old in GOOD
    faults = _faults(GOOD.replace(old, new, 1))
    assert [line] == [found for found, _, _ in faults]
    assert says in faults[0][2]


@pytest.mark.parametrize(
    ("old", "new"),
    [("cost: 10", "cost: 40000"), ("nightly-import", "search"), ("nightly-import", "(unmatched)")]
    + [("GET /items/{id}", f"{method} /items/{{id}}") for method in METHODS]
    + [("GET /items/{id}", "GET /")],
)
def test_scopes_that_some_request_can_match_and_some_plan_can_pay_are_allowed(old: str, new: str) -> None:
    """A cost that only the larger plans can pay is how a route is kept to them."""
    assert old in GOOD
    assert 3 == len(parse_policy(GOOD.replace(old, new, 1).encode()).scopes)


@pytest.mark.parametrize(
    ("limit", "place", "says"),
    [
        ("{by: caller, scopes: [/search], rate_per_s: 1, burst: 99}", "scopes.0", "(is it 'POST /search'?)"),
        ("{by: caller, scopes: ['POST /search', gold], rate_per_s: 1, burst: 99}", "scopes.1", "no scope 'gold':"),
        ("{by: scope, rate_per_s: 1, burst: 99, overrides: {gold: {quota: 99, per: day}}}", "overrides.gold", "'gold'"),
        ("{by: tenant, rate_per_s: 1, burst: 99}", "by", "no caller has one"),
        ("{by: caller, rate_per_s: 1, burst: 7}", "burst", "is 7, below the cost of scope 'POST /search'"),
        ("{by: everyone, quota: 9, per: day}", "quota", "allowed: at least 10"),
        ("{by: scope, rate_per_s: 1, burst: 9, overrides: {nightly-import: {quota: 99, per: day}}}", "burst", "is 9"),
    ],
)
def test_a_limit_that_never_applies_or_never_admits_is_a_fault(limit: str, place: str, says: str) -> None:
    """It was written to protect something, and called valid it would protect nothing."""
    faults = _faults(f"{GOOD}limits:\n  new: {limit}\n")
    assert [(18, f"limits.new.{place}")] == [(line, path) for line, path, _ in faults]
    assert says in faults[0][2]


@pytest.mark.parametrize(
    "limit",
    [
        "{by: caller, scopes: [default, (unmatched), nightly-import], rate_per_s: 1, burst: 5}",
        "{by: caller, rate_per_s: 1, burst: 7, mode: shadow}",
        "{by: caller, rate_per_s: 1, burst: 7, percent: 50}",
        "{by: caller, rate_per_s: 1, burst: 7, overrides: {acme: {rate_per_s: 1, burst: 10}}}",
        "{by: scope, rate_per_s: 1, burst: 7, overrides: {'POST /search': {rate_per_s: 1, burst: 10}}}",
        "{by: tenant, rate_per_s: 1, burst: 10}\ntenants: {separator: /}",
    ],
)
def test_a_limit_that_applies_and_admits_to_somebody_is_none(limit: str) -> None:
    """What only some can pay, or what is only tried, is how it was meant."""
    assert ["new"] == list(parse_policy(f"{GOOD}limits:\n  new: {limit}\n".encode()).limits)


@pytest.mark.parametrize(
    ("old", "new", "place", "says"),
    [
        ("acme: large", "acme:", "callers.acme", "is empty; allowed: the name of a plan, or a mapping with plan"),
        ("acme: large", "acme: 7", "callers.acme", "is 7; allowed: the name of a plan, or a mapping with plan"),
        ("nightly-import: {cost: 5}", "x: 5", "scopes.x", "is 5; allowed: a mapping"),
        ("cost: 5", "cost: x", "scopes.nightly-import.cost", "is 'x'; allowed: a valid integer"),
    ],
)
def test_a_fault_is_said_in_the_words_of_the_policy(old: str, new: str, place: str, says: str) -> None:
    """Whoever edits a policy knows nothing of the classes that it is read into."""
    ((_, found, message),) = _faults(GOOD.replace(old, new, 1))
    assert (place, says) == (found, message)


@pytest.mark.parametrize(
    ("limit", "says"),
    [
        ("{by: caller, quota: 99, per: day, zone: Europe/Berlni}", "is 'Europe/Berlni', which is no time zone"),
        ("{by: caller, rate_per_s: 5, burst: 99, quota: 99, per: day}", "is both a bucket and a quota; allowed: rate"),
        ("{by: caller}", "is neither a bucket nor a quota; allowed: rate_per_s with burst, or quota with per"),
        ("{rate_per_s: 5}", "burst is missing; allowed: rate_per_s with burst"),
        ("{by: caller, per: day}", "quota is missing; allowed: quota with per"),
    ],
)
def test_an_amount_that_is_not_whole_says_what_is_missing(limit: str, says: str) -> None:
    """A field that was left out must be named, not the two kinds that there are."""
    assert any(message.startswith(says) for _, _, message in _faults(f"{GOOD}limits:\n  new: {limit}\n"))


def test_aliases_cannot_blow_a_policy_up() -> None:
    """Ten lines of aliases of aliases would fill the memory of every gateway that loads them."""
    levels = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    levels += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 12)]
    faults = _faults("\n".join(levels))
    assert any("alias" in message for _, _, message in faults)
    assert len(faults) < 200


@pytest.mark.parametrize("text", ["", "# nothing\n", "[]", "just text", "[" * 3_000])
def test_documents_that_are_no_policy_are_refused(text: str) -> None:
    """Whatever is in the file, the answer is a list of faults, never a traceback."""
    assert _faults(text)


def test_files_that_cannot_be_read_say_so(tmp_path: Path) -> None:
    """A wrong path is the commonest fault of all."""
    with pytest.raises(PolicyError) as missing:
        load_policy(tmp_path / "none.yaml")
    assert f"{tmp_path / 'none.yaml'}: cannot be read: No such file or directory" == str(missing.value)
    with pytest.raises(PolicyError, match="Is a directory"):
        load_policy(tmp_path)
    binary = tmp_path / "binary.yaml"
    binary.write_bytes(b"version: \xff")
    with pytest.raises(PolicyError, match="UTF-8"):
        load_policy(binary)


def test_check_command_reports_and_tells_by_its_status(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The gate of a deployment asks this command."""
    good, bad = tmp_path / "good.yaml", tmp_path / "bad.yaml"
    good.write_text(GOOD)
    bad.write_text(FIVE_FAULTS)
    assert 0 == main(["check", str(good)])
    assert "version 7, 2 plans, 2 callers, 3 scopes, 0 limits: valid" in capsys.readouterr().out
    assert 1 == main(["check", str(good), str(bad)])
    assert f"{bad}: 5 faults in the policy\n  line 3: " in capsys.readouterr().err
    bad.write_text(GOOD.replace("acme: large", "acme: larg"))
    assert 1 == main(["check", str(bad)])
    assert f"{bad}: 1 fault in the policy\n  line 7: " in capsys.readouterr().err
    assert 2 == main([])
