"""Documents as nobody would write them on purpose: each a fault with its place, at a cost that its size explains."""

from __future__ import annotations

import re
from typing import Any

import pytest

from enforcer.core.headers import header_fields
from enforcer.errors import PolicyError
from enforcer.policies import loader, parse_policy
from enforcer.policies.limits import LEAST_RATE_PER_S
from enforcer.policies.model import Policy
from tests.unit.enforcer.harness import Fleet

BASE = "version: 1\nplans:\n  p: {rate_per_s: 100, burst: 200}\ndefault_plan: p\n"


@pytest.fixture(autouse=True, params=[loader.Loader, loader.PythonLoader], ids=["libyaml", "python"])
def _reader(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both readers must say the same of a document."""
    monkeypatch.setattr(loader, "Loader", request.param)


def _faults(text: str) -> list[tuple[int | None, str, str]]:
    with pytest.raises(PolicyError) as caught:
        parse_policy(text.encode("utf-8", "surrogatepass"))
    str(caught.value).encode("utf-8")
    return [(fault.line, fault.path, fault.message) for fault in caught.value.faults]


@pytest.mark.parametrize("value", ["!!bool maybe", "!!int ''", "!!float ''", "!!timestamp abc"])
def test_a_value_that_is_not_what_its_tag_says_is_a_fault_in_its_line(value: str) -> None:
    """A look that dies of it would leave nobody told that the edit is not in force."""
    line, path, message = _faults(f"{BASE}timeouts:\n  ask_ms: {value}\n")[0]
    assert (6, "timeouts.ask_ms") == (line, path)
    assert message.startswith("cannot be read: ")


@pytest.mark.parametrize("text", ['"\\ud800": 1\n', 'callers: {"\\ud800": p}\n', 'callers: {acme: "\\ud800"}\n'])
def test_half_of_a_surrogate_pair_is_a_fault_that_can_be_logged(text: str) -> None:
    """No caller can be called so, and a log in UTF-8 could not even say what is wrong."""
    assert {5} == {line for line, _, _ in _faults(BASE + text)}


@pytest.mark.parametrize(
    "text",
    ["a: " + "[" * 200 + "]" * 200, "".join(" " * depth + "a:\n" for depth in range(200))],
    ids=["flow", "block"],
)
def test_what_is_nested_without_end_is_not_read_to_its_end(text: str) -> None:
    """Reading brackets costs more than their number, so a small file could keep a gateway from its requests."""
    assert ["is nested too deeply"] == [message for _, _, message in _faults(text)]


def test_a_document_is_refused_where_it_becomes_too_deep() -> None:
    """A megabyte of brackets must not be scanned before it is refused; a policy needs six levels."""
    text = "a: " + "[" * 500_000
    (fault,) = _faults(text)
    assert "nest" in fault[2]


def test_a_valid_document_is_validated_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A policy of 20,000 callers takes its time, beside the requests of a gateway."""
    validated: list[object] = []
    validate = Policy.model_validate

    def counted(data: Any) -> Policy:
        validated.append(data)
        return validate(data)

    monkeypatch.setattr(Policy, "model_validate", counted)
    assert 1 == parse_policy(BASE.encode()).version
    assert 1 == len(validated)


@pytest.mark.parametrize("rate", ["1.0e-300", "5.0e-324", "0", "-1", "1.0e+10"])
def test_a_rate_whose_waits_are_no_numbers_is_a_fault_with_what_is_allowed(rate: str) -> None:
    """Every response would fail while its headers are made."""
    plan = f"version: 1\ndefault_plan: p\nplans:\n  p:\n    rate_per_s: {rate}\n    burst: 1000000000\n"
    (fault,) = _faults(plan)
    assert (5, "plans.p.rate_per_s") == fault[:2]
    assert re.search(r"allowed: (greater than or equal to 0.000000001|less than or equal to 1000000000)", fault[2])
    assert ["fleet.ceiling_per_s"] == [path for _, path, _ in _faults(f"{BASE}fleet: {{ceiling_per_s: {rate}}}\n")]


def test_headers_can_be_made_of_the_slowest_plan_that_is_allowed() -> None:
    """A client of it is told the longest wait that there is, and no error."""
    policy = parse_policy(
        f"version: 1\ndefault_plan: p\nplans:\n  p: {{rate_per_s: {LEAST_RATE_PER_S:.1e}, burst: 1000000000}}\n"
        "fleet: {copies: 1000000}\n".encode()
    )
    fleet = Fleet(policy)
    for cost in (1_000_000_000, 1_000_000_000, 1):
        verdict = fleet.limiter.check("acme", cost=cost)
        assert header_fields(verdict, fleet.limiter.rooms(verdict))
    assert not verdict.allowed
    fleet.owner.away = "unplugged"
    for caller in ("acme", "globex", "globex"):
        verdict = fleet.limiter.check(caller, cost=900_000_000)
        assert header_fields(verdict, fleet.limiter.rooms(verdict))
