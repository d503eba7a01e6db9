"""Headers that tell the truth, in the form that the draft asks for."""

from __future__ import annotations

import pytest

from enforcer.core.headers import header_fields, legacy_fields, retry_after_s
from enforcer.core.rooms import Room, notice_of, room_of_verdict
from enforcer.types import NEVER_NS, Basis, Plan, Reason, Source, Standing, Terms, Verdict, outcome_code

STANDARD = Plan("standard", 100.0, 200)
RATE = Terms("rate", STANDARD, 1)
MONTH = Terms("month", Plan("standard", 1_000 / 2_592_000, 1_000), 1, "month Europe/Berlin")


def _verdict(
    *,
    allowed: bool,
    retry_after_ms: int = 0,
    reason: Reason = Reason.NONE,
    terms: Terms = RATE,
    source: Source = Source.LOCAL,
) -> Verdict:
    basis = Basis(Standing("acme", terms), "GET /", 0, 1)
    ready_at_ns = NEVER_NS if retry_after_ms < 0 else retry_after_ms * 1_000_000
    return Verdict(0, 0, basis, allowed, outcome_code(source, reason), 1, 7, ready_at_ns)


def _room(left: int, more_in_s: int = 0, terms: Terms = RATE) -> Room:
    return Room(notice_of(terms), left, more_in_s)


@pytest.mark.parametrize(
    ("terms", "item"),
    [
        (RATE, '"rate";q=200;w=2'),
        (Terms("rate", Plan("p", 10.0, 5), 1), '"rate";q=5;w=1'),
        (Terms("rate", Plan("p", 1 / 86_400, 1), 1), '"rate";q=1;w=86400'),
        (Terms("rate", Plan("p", 54 / 60, 10), 1), '"rate";q=10;w=12'),
        (Terms("day", Plan("p", 3 / 86_400, 3), 1, "day"), '"day";q=3;w=86400'),
        (MONTH, '"month";q=1000;w=2678400'),
    ],
)
def test_policy_is_the_amount_over_the_time_it_comes_back_in(terms: Terms, item: str) -> None:
    """q over w must never promise more than was sold: w is rounded up, and a month is a long one."""
    assert item == notice_of(terms).policy.decode()


def test_names_are_quoted_as_structured_strings() -> None:
    """A name with a quote must not break the field, or the response."""
    fields = dict(header_fields(_verdict(allowed=True), [_room(3, 1, Terms('a"b\\c\n%d', STANDARD, 1))]))
    assert {
        b"ratelimit-policy": b'"a\\"b\\\\c?%d";q=200;w=2',
        b"ratelimit": b'"a\\"b\\\\c?%d";r=3;t=1',
    } == fields


@pytest.mark.parametrize(("milliseconds", "seconds"), [(1, 1), (999, 1), (1_000, 1), (1_001, 2), (0, None), (-1, None)])
def test_retry_after_is_never_earlier_than_true(milliseconds: int, seconds: int | None) -> None:
    """A client that obeys must not be refused again for obeying."""
    assert seconds == retry_after_s(milliseconds)


def test_every_limit_has_an_item_in_both_lists() -> None:
    """A client that sees one limit of two is refused by the other without a warning."""
    fields = header_fields(_verdict(allowed=True), [_room(137, 1), _room(12, 9_000, MONTH)])
    assert [
        (b"ratelimit-policy", b'"rate";q=200;w=2, "month";q=1000;w=2678400'),
        (b"ratelimit", b'"rate";r=137;t=1, "month";r=12;t=9000'),
    ] == fields


def test_successes_carry_the_state_too() -> None:
    """Headers only on failures teach clients to retry instead of to pace."""
    fields = dict(header_fields(_verdict(allowed=True), [_room(137, 1)]))
    assert {b"ratelimit-policy": b'"rate";q=200;w=2', b"ratelimit": b'"rate";r=137;t=1'} == fields
    full = dict(header_fields(_verdict(allowed=True), [_room(200)]))
    assert b'"rate";r=200' == full[b"ratelimit"]


def test_refusals_say_when_to_come_back_and_never_says_nothing() -> None:
    """`never` is not a wait: no Retry-After, no t."""
    refused = _verdict(allowed=False, retry_after_ms=1_200, reason=Reason.SPENT)
    fields = dict(header_fields(refused, [room_of_verdict(refused)]))
    assert (b'"rate";r=7;t=2', b"2") == (fields[b"ratelimit"], fields[b"retry-after"])
    never = _verdict(allowed=False, retry_after_ms=-1, reason=Reason.NEVER)
    fields = dict(header_fields(never, [room_of_verdict(never)]))
    assert b'"rate";r=7' == fields[b"ratelimit"]
    assert b"retry-after" not in fields


def test_the_older_three_speak_of_the_limit_that_is_nearest_to_a_refusal() -> None:
    """They can speak of one only: with another's numbers a client would run into this one."""
    rooms = [_room(137, 1), _room(12, 9_000, MONTH)]
    nearest = [(b"x-ratelimit-limit", b"1000"), (b"x-ratelimit-remaining", b"12"), (b"x-ratelimit-reset", b"9000")]
    assert nearest == legacy_fields(_verdict(allowed=True), rooms)
    refused = _verdict(allowed=False, retry_after_ms=900, reason=Reason.SPENT)
    of_rate = [(b"x-ratelimit-limit", b"200"), (b"x-ratelimit-remaining", b"137"), (b"x-ratelimit-reset", b"1")]
    assert of_rate == legacy_fields(refused, rooms)
    by_cap = _verdict(allowed=False, retry_after_ms=900, reason=Reason.CEILING, source=Source.CAP)
    assert nearest == legacy_fields(by_cap, rooms)


@pytest.mark.parametrize(("left", "reset"), [(200, {b"x-ratelimit-reset": b"0"}), (3, {})])
def test_a_reset_that_nobody_knows_is_left_out(left: int, reset: dict[bytes, bytes]) -> None:
    """0 would mean at once."""
    fields = dict(legacy_fields(_verdict(allowed=True), [_room(left)]))
    assert reset == {name: value for name, value in fields.items() if name == b"x-ratelimit-reset"}
