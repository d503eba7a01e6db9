"""The first line of a page is the answer: its words are tested like code."""

from __future__ import annotations

from zoneinfo import ZoneInfo

import pytest

from dashboard import sentences
from dashboard.formats import NBSP
from dashboard.rows import Busiest, Counts
from dashboard.sentences import plain
from enforcer.core.sentences import explain_refusal
from enforcer.types import Reason, Source
from tests.unit.dashboard.records import NOW_US, STANDARD, refusal

UTC = ZoneInfo("UTC")


def test_usage_sentence_has_the_numbers_and_the_busiest_second() -> None:
    """What a worried customer reads first."""
    busiest = Busiest(1_795_989_571_000_000, 184, "second")
    counts = Counts(offered=4_812, admitted=4_692, refused_spent=120)
    said = plain(sentences.usage_sentence(counts, "the last hour", busiest, UTC, now_us=NOW_US))
    sent = f"You sent 4,812 requests in the last hour; 120 (2.5{NBSP}%) were refused."
    assert f"{sent} Your busiest second was 184, at 21:59:31." == said


def test_usage_sentence_speaks_of_one_as_one() -> None:
    """ "1 requests were refused" is a machine talking."""
    counts = Counts(offered=1, admitted=0, refused_spent=1)
    said = plain(sentences.usage_sentence(counts, "the last hour", None, UTC, now_us=NOW_US))
    assert f"You sent 1 request in the last hour; 1 (100{NBSP}%) was refused." == said


def test_usage_sentence_says_none_where_none_was_refused() -> None:
    """Good news is one calm line."""
    said = plain(sentences.usage_sentence(Counts(offered=5, admitted=5), "the last hour", None, UTC, now_us=NOW_US))
    assert "You sent 5 requests in the last hour; none were refused." == said


def test_a_busiest_minute_is_called_a_minute() -> None:
    """Where seconds were not counted the page must not seem to have counted them."""
    counts = Counts(offered=5_000_000, admitted=5_000_000)
    busiest = Busiest(1_795_989_540_000_000, 90_000, "minute")
    said = plain(sentences.usage_sentence(counts, "the last 7 days", busiest, UTC, now_us=NOW_US))
    assert said.endswith("Your busiest minute was 90,000, at 21:59.")


def test_verdict_sentence_counts_every_reason() -> None:
    """Support must see at once whether it was the plan or us."""
    counts = Counts(offered=100, admitted=90, refused_spent=7, refused_emergency=3)
    said = plain(sentences.verdict_sentence("acme", counts, "the last hour"))
    assert "acme sent 100 requests in the last hour; 10 " in said
    assert "7 because the plan’s tokens were spent, 3 because the limiter could not be reached" in said


def test_context_sentence_has_plan_busiest_k_and_degraded() -> None:
    """The four facts that support asks for next."""
    counts = Counts(offered=100, admitted=90, degraded=14)
    said = plain(sentences.context_sentence(STANDARD, Busiest(NOW_US, 16, "second"), 12, counts, UTC, now_us=NOW_US))
    assert "Its plan is standard (100/s, bursts of 200). Its busiest second was 16" in said
    assert "reaches 12 servers (k). 14 decisions were made in degraded mode." in said


@pytest.mark.parametrize("reason", [reason for reason in Reason if reason is not Reason.NONE])
def test_why_is_the_one_sentence_for_every_reason(reason: Reason) -> None:
    """The page, the CSV, the API and the 429 body must say the same words."""
    decision = refusal(reason=reason)
    expected = explain_refusal(reason=reason, cost=1, rate_per_s=100.0, burst=200, retry_after_ms=310)
    assert expected == sentences.why(decision, STANDARD, UTC)


@pytest.mark.parametrize("reason", list(Reason))
def test_every_reason_has_advice_and_a_cause(reason: Reason) -> None:
    """A new reason without words would be a page that fails."""
    assert sentences.advice(reason)
    assert sentences.why(refusal(reason=reason), None, UTC).startswith("Refused ")


@pytest.mark.parametrize("source", list(Source))
def test_every_source_has_words(source: Source) -> None:
    """As above, for who decided."""
    assert sentences.source_words(source)


def test_why_of_an_admitted_decision_says_so() -> None:
    """Support may paste the id of a request that was not refused."""
    assert sentences.why(refusal(allowed=True, reason=Reason.NONE), STANDARD, UTC, at=True).startswith("Admitted at ")


def test_reply_names_the_span_the_plan_and_the_request() -> None:
    """A reply that support can send without adding anything."""
    counts = Counts(offered=100, admitted=90, refused_spent=10)
    text = sentences.reply_text(
        "acme",
        counts,
        span=("A", "B"),
        plan=STANDARD,
        busiest=Busiest(NOW_US, 16, "second"),
        refusals=["Request x: why."],
    )
    assert "From A to B your account acme sent 100 requests; 10 " in text
    assert "Your plan is standard (100/s, bursts of 200)." in text
    assert "Request x: why." in text
    assert "Retry-After" in text


@pytest.mark.parametrize(
    ("refused", "listed", "said"),
    [(0, 0, "None in this span."), (1, 1, "The only one."), (3, 3, "All of them, newest first."),
     (770, 25, "The last 25 of 770, newest first.")],
)  # fmt: skip
def test_listed_line_says_how_many_of_how_many(refused: int, listed: int, said: str) -> None:
    """A list that was cut must say that it was."""
    assert said == sentences.listed_line(refused, listed)
