"""Headers that tell the truth, in the form that the draft asks for."""

from __future__ import annotations

import pytest

from enforcer.core.headers import header_fields, policy_field, retry_after_s, state_field
from enforcer.types import NEVER_NS, Basis, Plan, Reason, Source, Standing, Terms, Verdict, outcome_code

STANDARD = Plan("standard", 100.0, 200)


def _verdict(*, allowed: bool, retry_after_ms: int = 0, reason: Reason = Reason.NONE, plan: Plan = STANDARD) -> Verdict:
    basis = Basis(Standing("acme", Terms("rate", plan, 1)), "GET /", 0, 1)
    ready_at_ns = NEVER_NS if retry_after_ms < 0 else retry_after_ms * 1_000_000
    return Verdict(0, 0, basis, allowed, outcome_code(Source.LOCAL, reason), 1, 7, ready_at_ns)


@pytest.mark.parametrize(
    ("plan", "field"),
    [
        (STANDARD, '"rate";q=200;w=2'),
        (Plan("p", 10.0, 5), '"rate";q=5;w=1'),
        (Plan("p", 1 / 86_400, 1), '"rate";q=1;w=86400'),
        (Plan("p", 54 / 60, 10), '"rate";q=10;w=12'),
    ],
)
def test_policy_is_the_burst_over_the_time_it_refills_in(plan: Plan, field: str) -> None:
    """q over w must never promise more than the plan holds, so w is rounded up."""
    assert field == policy_field("rate", plan)


def test_names_are_quoted_as_structured_strings() -> None:
    """A name with a quote must not break the field, or the response."""
    assert '"a\\"b\\\\c?";r=0' == state_field('a"b\\c\n', -3, more_in_s=None)


@pytest.mark.parametrize(("milliseconds", "seconds"), [(1, 1), (999, 1), (1_000, 1), (1_001, 2), (0, None), (-1, None)])
def test_retry_after_is_never_earlier_than_true(milliseconds: int, seconds: int | None) -> None:
    """A client that obeys must not be refused again for obeying."""
    assert seconds == retry_after_s(milliseconds)


def test_successes_carry_the_state_too() -> None:
    """Headers only on failures teach clients to retry instead of to pace."""
    fields = dict(header_fields(_verdict(allowed=True), room=137))
    assert {b"ratelimit-policy": b'"rate";q=200;w=2', b"ratelimit": b'"rate";r=137;t=1'} == fields
    full = dict(header_fields(_verdict(allowed=True), room=200))
    assert b'"rate";r=200' == full[b"ratelimit"]


def test_refusals_say_when_to_come_back_and_never_says_nothing() -> None:
    """`never` is not a wait: no Retry-After, no t."""
    fields = dict(header_fields(_verdict(allowed=False, retry_after_ms=1_200, reason=Reason.SPENT), room=0))
    assert (b'"rate";r=0;t=2', b"2") == (fields[b"ratelimit"], fields[b"retry-after"])
    never = dict(header_fields(_verdict(allowed=False, retry_after_ms=-1, reason=Reason.NEVER), room=5))
    assert b'"rate";r=5' == never[b"ratelimit"]
    assert b"retry-after" not in never
