"""The one refusal sentence: what a worried reader is told, for every reason."""

from __future__ import annotations

import pytest

from enforcer.core.sentences import explain_refusal
from enforcer.errors import InvalidField
from enforcer.types import Reason


def _explain(reason: Reason, *, cost: int = 1, retry_after_ms: int = 310, at: str | None = None) -> str:
    return explain_refusal(reason=reason, cost=cost, rate_per_s=100.0, burst=200, retry_after_ms=retry_after_ms, at=at)


@pytest.mark.parametrize(
    ("sentence", "expected"),
    [
        (
            _explain(Reason.SPENT, at="22:00:03.412"),
            "Refused at 22:00:03.412: the burst of 200 was spent; "
            "the next request would have been admitted 0.31 s later.",
        ),
        (
            _explain(Reason.SPENT, cost=10),
            "Refused: the burst of 200 was spent; a request that costs 10 would have been admitted 0.31 s later.",
        ),
        (
            _explain(Reason.SPENT, retry_after_ms=0),
            "Refused: the burst of 200 was spent; it refills at 100 per second.",
        ),
        (
            _explain(Reason.NEVER, cost=500, retry_after_ms=-1),
            "Refused: this request costs 500, more than the limit can ever hold (200). "
            "It will never be admitted; ask for a larger plan or split the request.",
        ),
        (
            _explain(Reason.EMERGENCY, retry_after_ms=2_000),
            "Refused: this server held no share of your limit and the limiter could not be reached, so it used its "
            "emergency budget (your plan divided by the number of servers), which was spent; "
            "the next request would have been admitted 2 s later.",
        ),
        (
            _explain(Reason.CLOSED, retry_after_ms=1_000),
            "Refused: this server held no share of your limit and the limiter could not be reached; "
            "this endpoint stays closed until it can be reached again.",
        ),
        (
            _explain(Reason.CEILING),
            "Refused to protect the service (this server had as much to do as it can take), not because of your plan.",
        ),
    ],
)
def test_sentence_of_each_reason(sentence: str, expected: str) -> None:
    """Support reads it aloud to a customer: it must be true, whole and the same everywhere."""
    assert expected == sentence


def test_every_reason_of_a_refusal_has_a_sentence() -> None:
    """A new reason without a sentence would be a refusal that nobody can explain."""
    for reason in Reason:
        if reason is not Reason.NONE:
            assert _explain(reason).endswith(".")
            assert _explain(reason, at="1:00").startswith("Refused at 1:00")


def test_there_is_no_sentence_for_an_admission() -> None:
    """Explaining a refusal that never was is a fault of the caller."""
    with pytest.raises(InvalidField, match="reason"):
        _explain(Reason.NONE)


@pytest.mark.parametrize(
    ("milliseconds", "shown"),
    [
        (1, "0.001 s"),
        (1_234, "1.234 s"),
        (60_000, "60 s"),
        (120_001, "3 min"),
        (86_400_000, "24 h"),
        (2**31 - 1, "597 h or more"),
    ],
)
def test_waits_are_never_shown_shorter_than_they_are(milliseconds: int, shown: str) -> None:
    """A reader who comes back when told must be admitted."""
    assert f"admitted {shown} later" in _explain(Reason.SPENT, retry_after_ms=milliseconds)


@pytest.mark.parametrize(
    ("per", "says"),
    [
        ("day", "the quota of 1,000 per day was used up; it starts anew 3 h later (UTC)."),
        ("month Europe/Berlin", "the quota of 1,000 per month was used up; it starts anew 3 h later (Europe/Berlin)."),
    ],
)
def test_a_quota_that_is_used_up_says_when_it_starts_anew(per: str, says: str) -> None:
    """A burst refills, a quota does not: the customer must not wait for the next second."""
    told = explain_refusal(
        reason=Reason.SPENT, cost=1, rate_per_s=0.01, burst=1_000, retry_after_ms=10_800_000, per=per
    )
    assert f"Refused: {says}" == told
