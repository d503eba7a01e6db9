"""The first line of a page is the answer: its words are tested like code."""

from __future__ import annotations

from zoneinfo import ZoneInfo

import pytest

from dashboard import sentences
from dashboard.formats import NBSP
from dashboard.rows import Busiest, Counts, LimitTerms
from dashboard.sentences import plain
from enforcer.core.sentences import explain_refusal
from enforcer.types import Reason, Source
from tests.unit.dashboard.records import NOW_US, STANDARD, refusal

UTC = ZoneInfo("UTC")


def test_usage_sentence_has_the_numbers_and_the_busiest_second() -> None:
    """What a worried customer reads first."""
    busiest = Busiest(1_795_989_571_000_000, 184, "second")
    counts = Counts(offered=4_812, admitted=4_692, refused_spent=120)
    said = plain(sentences.usage_sentence(counts, "the last hour", busiest, STANDARD, UTC, now_us=NOW_US))
    sent = f"You sent 4,812 requests in the last hour; 120 (2.5{NBSP}%) were refused."
    plan = "your plan is 100 per second with bursts of 200"
    assert f"{sent} Your busiest second was 184, at 21:59:31; {plan}." == said


def test_usage_sentence_speaks_of_one_as_one() -> None:
    """ "1 requests were refused" is a machine talking."""
    counts = Counts(offered=1, admitted=0, refused_spent=1)
    said = plain(sentences.usage_sentence(counts, "the last hour", None, None, UTC, now_us=NOW_US))
    assert "You sent 1 request in the last hour, and it was refused." == said
    counts = Counts(offered=1, admitted=1)
    said = plain(sentences.usage_sentence(counts, "the last hour", None, None, UTC, now_us=NOW_US))
    assert "You sent 1 request in the last hour, and it was admitted." == said


def test_usage_sentence_says_none_where_none_was_refused() -> None:
    """Good news is one calm line."""
    said = plain(
        sentences.usage_sentence(Counts(offered=5, admitted=5), "the last hour", None, None, UTC, now_us=NOW_US)
    )
    assert "You sent 5 requests in the last hour; none were refused." == said


def test_a_busiest_minute_is_called_a_minute() -> None:
    """Where seconds were not counted the page must not seem to have counted them."""
    counts = Counts(offered=5_000_000, admitted=5_000_000)
    busiest = Busiest(1_795_989_540_000_000, 90_000, "minute")
    said = plain(sentences.usage_sentence(counts, "the last 7 days", busiest, None, UTC, now_us=NOW_US))
    assert said.endswith("Your busiest minute was 90,000, at 21:59.")


def test_verdict_sentence_counts_every_reason() -> None:
    """Support must see at once whether it was the plan or us."""
    counts = Counts(offered=100, admitted=90, refused_spent=7, refused_emergency=3)
    said = plain(sentences.verdict_sentence("acme", counts, "the last hour"))
    assert "acme sent 100 requests in the last hour; 10 " in said
    assert "7 because a limit was used up, 3 because the limiter could not be reached" in said


def test_verdict_sentence_with_one_cause_has_its_number_once() -> None:
    """The same count twice in a line looks like two facts."""
    counts = Counts(offered=5_361, admitted=2_948, refused_spent=2_413)
    said = plain(sentences.verdict_sentence("dahlia", counts, "the last hour"))
    expected = f"2,413 (45.0{NBSP}%) were refused because a limit was used up."
    assert f"dahlia sent 5,361 requests in the last hour; {expected}" == said


def test_context_sentence_has_plan_busiest_k_and_degraded() -> None:
    """The four facts that support asks for next, and what degraded means."""
    counts = Counts(offered=100, admitted=90, degraded=14)
    said = plain(sentences.context_sentence(STANDARD, Busiest(NOW_US, 16, "second"), 12, counts, UTC, now_us=NOW_US))
    assert said.startswith("Its busiest second was 16")
    assert "; its plan is 100 per second with bursts of 200. Its traffic reaches 12 servers (k). 14 decisions" in said
    assert "14 decisions were made in degraded mode: the server could not reach the limiter and decided alone" in said


def test_context_sentence_without_degraded_decisions_explains_nothing() -> None:
    """A calm hour needs no lecture; a plan that is not known is said to be so."""
    said = plain(sentences.context_sentence(None, None, 1, Counts(offered=1, admitted=1), UTC, now_us=NOW_US))
    expected = "Its plan is not known yet. Its traffic reaches 1 server (k)."
    assert f"{expected} No server had to decide alone (degraded mode)." == said


def test_arriving_sentence_says_only_what_is_known_at_least() -> None:
    """A total that is still arriving is not a total."""
    said = plain(sentences.arriving_sentence("Your", 50, 50, "the last hour"))
    assert (
        "Your totals are still arriving: so far at least 50 requests in the last hour, at least 50 of them refused."
    ) == said
    said = plain(sentences.arriving_sentence("dahlia’s", 1, 0, "the last hour"))
    assert "dahlia’s totals are still arriving: so far at least 1 request in the last hour." == said


@pytest.mark.parametrize("reason", [reason for reason in Reason if reason is not Reason.NONE])
def test_why_is_the_one_sentence_for_every_reason(reason: Reason) -> None:
    """The page, the CSV, the API and the 429 body must say the same words."""
    decision = refusal(reason=reason)
    expected = explain_refusal(reason=reason, cost=1, rate_per_s=100.0, burst=200, retry_after_ms=310)
    assert expected == sentences.why(decision, LimitTerms(100.0, 200), UTC)


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
    assert sentences.why(refusal(allowed=True, reason=Reason.NONE), None, UTC, at=True).startswith("Admitted at ")


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


def test_reply_speaks_of_one_request_as_one() -> None:
    """ "1 requests; none of them was refused" is not a letter to send."""

    def told(counts: Counts) -> str:
        return sentences.reply_text("acme", counts, span=("A", "B"), plan=None, busiest=None, refusals=[])

    assert "your account acme sent 1 request, and it was admitted." in told(Counts(offered=1, admitted=1))
    assert "your account acme sent 1 request, and it was refused." in told(Counts(offered=1, refused_spent=1))
    assert "your account acme sent 2 requests; none of them was refused." in told(Counts(offered=2, admitted=2))
    assert "your account acme sent no requests." in told(Counts())


def test_listed_line_claims_no_whole_while_totals_arrive() -> None:
    """ "All of them" over a list that still grows would be false."""
    assert "Those that have arrived so far, newest first." == sentences.listed_line(0, 50, arriving=True)


@pytest.mark.parametrize(
    ("refused", "listed", "said"),
    [(0, 0, "None in this span."), (1, 1, "The only one."), (3, 3, "All of them, newest first."),
     (770, 25, "The last 25 of 770, newest first.")],
)  # fmt: skip
def test_listed_line_says_how_many_of_how_many(refused: int, listed: int, said: str) -> None:
    """A list that was cut must say that it was."""
    assert said == sentences.listed_line(refused, listed)
