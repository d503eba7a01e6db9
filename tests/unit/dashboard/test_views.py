"""From rows to what is shown: sums, shares, plans and states."""

from __future__ import annotations

import pytest

from dashboard.formats import minute_of
from dashboard.rows import Busiest, CallerStep, CopyMark, Counts, GrantFacts, LimitTerms, PlanTerms
from dashboard.sentences import plain
from dashboard.views import caller_view, usage_sentence, verdict_sentence
from tests.unit.dashboard.records import NOW_US, STANDARD, frame, record, refusal

MINUTE_S = NOW_US // 1_000_000


def test_chart_and_table_have_the_same_sum() -> None:
    """A picture that does not add up to the sentence above it is worth nothing."""
    series = {MINUTE_S - 60 * n: Counts(offered=10 + n, admitted=9) for n in range(60)}
    total = sum(series.values(), Counts())
    view = caller_view("acme", frame(), record(series=series, endpoints={"GET /v1": total}))
    assert view.totals.offered == sum(row.offered for row in view.rows)
    assert view.totals.refused == sum(row.refused for row in view.rows)


def test_the_limit_of_a_bar_is_the_rate_times_its_length() -> None:
    """On the day that has 23 hours the plan allows less than on the others."""
    now_us = 1_774_872_000_000_000  # 2026-03-30T12:00Z, the day after the change in Berlin
    steps = [CallerStep(now_us // 1_000_000 - 900, STANDARD, 1, 1)]
    view = caller_view("acme", frame("30d", "Europe/Berlin", now_us), record(steps=steps))
    by_length = {row.seconds: row.limit for row in view.rows}
    assert {86_400: 8_640_000.0, 82_800: 8_280_000.0} == by_length


def test_a_change_of_plan_is_a_step_of_the_line() -> None:
    """Before the change the old limit held: judging the past by today's plan makes wrong refusals of right ones."""
    small = PlanTerms("small", 1.0, 2)
    steps = [CallerStep(MINUTE_S - 1_800, small, 1, 1), CallerStep(MINUTE_S - 600, STANDARD, 1, 1)]
    limits = [row.limit for row in caller_view("acme", frame(), record(steps=steps)).rows]
    assert {60.0, 6_000.0} == set(limits)
    assert 6_000.0 == limits[-11]
    assert 60.0 == limits[-12]


def test_a_bar_is_still_filling_until_every_copy_has_delivered_it() -> None:
    """A late copy's requests are missing from the bars since it was last heard."""
    marks = [CopyMark("a", 1, NOW_US - 1_000_000, False), CopyMark("b", 1, NOW_US - 150_000_000, False)]
    filling = [row.filling for row in caller_view("acme", frame(), record(marks=marks)).rows]
    assert [False, True, True, True, True] == filling[-5:]


def test_no_copy_known_means_nothing_is_complete() -> None:
    """Without a mark nothing is known of how far the record reaches."""
    assert all(row.filling for row in caller_view("acme", frame(), record(marks=[])).rows)


def test_a_refusal_is_explained_by_the_plan_of_its_time() -> None:
    """The burst in the sentence is the one that was spent, not the one bought since."""
    then, now = PlanTerms("standard", 10.0, 20), STANDARD
    steps = [CallerStep(MINUTE_S - 1_200, then, 1, 1), CallerStep(MINUTE_S - 60, now, 1, 1)]
    view = caller_view("acme", frame(), record(steps=steps, refusals=[refusal(NOW_US - 600_000_000)]))
    assert "burst of 20 was spent" in view.refusals[0].sentence


def test_a_change_of_plan_is_said_beside_the_plan() -> None:
    """Refusals of the small plan beside the figures of the large one read as if the limiter were wrong."""
    then, now = PlanTerms("free", 5.0, 10), STANDARD
    steps = [CallerStep(MINUTE_S - 1_200, then, 1, 1), CallerStep(MINUTE_S - 600, now, 1, 1)]
    steps.append(CallerStep(MINUTE_S - 60, now, 1, 1))
    changed = caller_view("acme", frame(), record(steps=steps))
    same = caller_view("acme", frame(), record(steps=steps[1:]))
    since = minute_of((MINUTE_S - 600) * 1_000_000, changed.frame.zone, now_us=NOW_US)
    said = f" Your plan changed about {since}: before, it was free (5/s, bursts of 10)."
    assert plain(usage_sentence(changed)).endswith(said)
    assert "changed" not in plain(usage_sentence(same))


def test_a_refusal_whose_plan_is_not_known_yet_names_no_figure() -> None:
    """The exact record may be ahead of the totals: a burst of 0 would be a lie."""
    view = caller_view("acme", frame(), record(refusals=[refusal()]))
    assert "Refused because a limit was used up." == view.refusals[0].sentence


@pytest.mark.parametrize(
    ("limit", "plan", "terms", "said"),
    [
        ("day", "standard", LimitTerms(10 / 86_400, 10, "day"), "the quota of 10 per day was used up"),
        ("search", "search", LimitTerms(1.0, 2), "the burst of 2 was spent"),
        ("search", "search", None, "Refused because a limit was used up."),
    ],
)
def test_a_refusal_by_a_further_limit_is_told_apart_from_the_callers_plan(
    limit: str, plan: str, terms: LimitTerms | None, said: str
) -> None:
    """A customer who bought 100 per second must not read that his plan is ten per day."""
    steps = [CallerStep(MINUTE_S - 600, STANDARD, 1, 1), CallerStep(MINUTE_S - 60, None, 1, 1)]
    refused = refusal(limit=limit, plan=plan, terms=terms)
    view = caller_view("acme", frame(), record(steps=steps, refusals=[refused]))
    assert said in view.refusals[0].sentence
    assert STANDARD == view.refusals[0].plan == view.plan
    assert view.changed is None
    assert {6_000.0} == {row.limit for row in view.rows}


def test_the_endpoint_table_is_ordered_and_drawn_by_the_busiest() -> None:
    """Eyes go to the longest bar first."""
    endpoints = {"b": Counts(offered=10, admitted=10), "a": Counts(offered=40, admitted=30)}
    rows = caller_view("acme", frame(), record(endpoints=endpoints)).endpoints
    assert ["a", "b"] == [row.scope for row in rows]
    assert [(100.0, 25.0), (25.0, 0.0)] == [(row.width, row.refused_width) for row in rows]


def test_a_grant_says_what_is_known_of_it() -> None:
    """Not settled, settled so far, and final are three different answers to "where did my tokens go"."""

    def spent(tokens: int | None, *, final: bool) -> str:
        facts = GrantFacts("rate", 9, 50, NOW_US, NOW_US, "gw-1", tokens, final)
        row = caller_view("acme", frame(), record(refusals=[refusal()]), [facts]).refusals[0]
        assert row.grant is not None
        return row.grant.spent

    assert "not settled yet" == spent(None, final=False)
    assert "20 of 50 so far" == spent(20, final=False)
    assert "50 of 50 (final)" == spent(50, final=True)


def test_a_grant_of_another_limit_is_not_taken_for_this_one() -> None:
    """Grant ids are unique per caller and limit only."""
    facts = GrantFacts("other", 9, 50, NOW_US, NOW_US, "gw-1", 1, False)
    assert caller_view("acme", frame(), record(refusals=[refusal()]), [facts]).refusals[0].grant is None


def test_the_plan_of_an_idle_caller_is_the_last_one_known() -> None:
    """Nothing was sent in the span, but what was bought is still known."""
    view = caller_view("acme", frame(), record(last_plan=STANDARD))
    assert "standard (100/s, bursts of 200)" == view.terms
    assert "You sent no requests in the last hour." == plain(usage_sentence(view))


def test_the_heading_leaves_the_plans_figures_to_the_sentence_that_has_them() -> None:
    """The plan twice within two lines is once too often."""
    endpoints = {"GET /v1": Counts(offered=10, admitted=10)}
    told = caller_view(
        "acme", frame(), record(endpoints=endpoints, last_plan=STANDARD, busiest=Busiest(NOW_US, 4, "second"))
    )
    assert "standard" == told.terms
    assert "your plan is 100 per second with bursts of 200." in plain(usage_sentence(told))


def test_a_second_or_two_between_the_two_ways_is_nothing_to_speak_of() -> None:
    """The record is a moment ahead of the totals all day long: the page must not flicker at every refusal."""
    totals = Counts(offered=40, admitted=39, refused_spent=1)
    fresh = record(endpoints={"GET /v1": totals}, refusals=[refusal(NOW_US - 2_000_000)] * 3, decided=3)
    assert not caller_view("acme", frame(), fresh).arriving


@pytest.mark.parametrize(
    ("totals", "decided", "arriving"),
    [
        (Counts(), 0, True),
        (Counts(offered=40, admitted=39, refused_spent=1), 0, True),
        (Counts(offered=40, admitted=37, refused_spent=3), 41, False),
        (Counts(offered=400, admitted=37, refused_spent=363), 9, False),
    ],
)
def test_totals_that_say_less_than_the_record_are_still_arriving(totals: Counts, decided: int, arriving: bool) -> None:
    """ "sent no requests" above a list of refusals is a false letter to a customer."""
    found = record(endpoints={"GET /v1": totals}, refusals=[refusal()] * 3, decided=max(3, decided))
    view = caller_view("acme", frame(), found)
    assert arriving is view.arriving
    for said in (plain(usage_sentence(view)), plain(verdict_sentence(view))):
        assert arriving is ("totals are still arriving: so far at least" in said)
        assert "no requests" not in said
    assert arriving is view.complete_line.endswith("; totals are still arriving.")


def test_refusals_of_a_fleet_that_has_not_reported_are_not_all() -> None:
    """Two rows of totals and no word of any server: nobody knows how much is missing. Old ones are complete enough."""
    endpoints = {"GET /v1": Counts(offered=9, admitted=8, refused_spent=1)}
    fresh = caller_view("acme", frame(), record(endpoints=endpoints, refusals=[refusal()], marks=[]))
    assert fresh.arriving
    assert "No server has reported its totals yet; they are still arriving." == fresh.complete_line
    old = refusal(NOW_US - 3_000_000_000)
    assert not caller_view("acme", frame(), record(endpoints=endpoints, refusals=[old], marks=[])).arriving


def test_the_legend_names_what_the_picture_holds() -> None:
    """A key to a hatch that is not there makes people look for it."""
    calm = {MINUTE_S - 60: Counts(offered=3, admitted=3)}
    alone = {MINUTE_S - 60: Counts(offered=3, admitted=3, degraded=1)}
    assert not caller_view("acme", frame(), record(series=calm)).locally
    assert caller_view("acme", frame(), record(series=alone)).locally
