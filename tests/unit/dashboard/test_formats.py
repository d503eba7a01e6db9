"""Numbers and times as people read them."""

from __future__ import annotations

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest

from dashboard import formats
from dashboard.formats import NBSP
from enforcer.core.sentences import explain_refusal
from enforcer.types import Reason

BERLIN = ZoneInfo("Europe/Berlin")


def us(text: str) -> int:
    """Unix microseconds of an ISO time."""
    return round(datetime.fromisoformat(text).timestamp() * 1_000_000)


@pytest.mark.parametrize(
    ("part", "whole", "text"),
    [
        (120, 4_812, "2.5 %"),
        (1_204, 4_812_331, "< 0.1 %"),
        (0, 10, "0.0 %"),
        (10, 10, "100.0 %"),
        (1, 100_000_000, "< 0.1 %"),
        (99_999_999, 100_000_000, "> 99.9 %"),
        (9_995, 10_000, "> 99.9 %"),
        (5, 10_000, "0.1 %"),
        (1, 4, "25.0 %"),
        (0, 0, "–"),
    ],
)
def test_share_never_says_none_or_all_unless_it_is(part: int, whole: int, text: str) -> None:
    """A refusal share that rounds to 0 % hides the one refusal that someone calls about."""
    assert text.replace(" ", NBSP) == formats.share(part, whole)


@pytest.mark.parametrize(
    ("per_s", "text"),
    [
        (100, "100/s"),
        (0.9, "54/min"),
        (1 / 86_400, "1/day"),
        (20_000, "20,000/s"),
        (2.5, "2.5/s"),
        (1e-7, "0.00864/day"),
    ],
)
def test_rate_is_said_in_the_unit_it_was_sold_in(per_s: float, text: str) -> None:
    """A plan of 54 a minute shown as 0.9/s is not what the customer bought."""
    assert text == formats.rate(per_s)


def test_moment_names_the_day_only_where_it_is_another() -> None:
    """Today's times are short; yesterday's must not look like today's."""
    now = us("2025-11-29T12:00:00+01:00")
    assert "21:59:31 on 28 Nov" == formats.moment(us("2025-11-28T21:59:31+01:00"), BERLIN, now_us=now)
    assert "09:59:31" == formats.moment(us("2025-11-29T09:59:31+01:00"), BERLIN, now_us=now)
    assert "21:59:31 on 28 Nov 2024" == formats.moment(us("2024-11-28T21:59:31+01:00"), BERLIN, now_us=now)


def test_moment_is_of_the_viewers_zone() -> None:
    """R17: 18:45 UTC on New Year's Day is the second of January in Kolkata."""
    now = us("2026-01-03T00:00:00+00:00")
    shown = formats.moment(us("2026-01-01T18:45:00+00:00"), ZoneInfo("Asia/Kolkata"), now_us=now)
    assert "00:15:00 on 2 Jan" == shown


def test_full_names_the_offset_of_its_own_time() -> None:
    """Both ends of a span stand on the page; in October they have different offsets."""
    assert "24 Oct 2026, 12:00:00 (+02:00)" == formats.full(us("2026-10-24T12:00:00+02:00"), BERLIN)
    assert "26 Oct 2026, 12:00:00 (+01:00)" == formats.full(us("2026-10-26T12:00:00+01:00"), BERLIN)


def test_ends_say_once_what_both_share() -> None:
    """One hour of one day: its date and offset twice are noise; where they differ, both must be seen."""
    kolkata = ZoneInfo("Asia/Kolkata")
    from_us, to_us = us("2026-11-28T20:59:31+05:30"), us("2026-11-28T21:59:31+05:30")
    assert ("28 Nov 2026, 20:59:31", "21:59:31 (+05:30)") == formats.ends(from_us, to_us, kolkata)
    before_us = us("2026-11-27T21:59:31+05:30")
    assert ("27 Nov, 21:59:31", "28 Nov 2026, 21:59:31 (+05:30)") == formats.ends(before_us, to_us, kolkata)
    october = formats.ends(us("2026-10-24T12:00:00+02:00"), us("2026-10-26T12:00:00+01:00"), BERLIN)
    assert ("24 Oct 2026, 12:00:00 (+02:00)", "26 Oct 2026, 12:00:00 (+01:00)") == october
    new_year = formats.ends(us("2025-12-31T12:00:00+01:00"), us("2026-01-01T12:00:00+01:00"), BERLIN)
    assert ("31 Dec 2025, 12:00:00", "1 Jan 2026, 12:00:00 (+01:00)") == new_year


@pytest.mark.parametrize("wait_ms", [5, 40, 310, 12_500, 119_999, 120_000, 125_000, 7_199_999, 7_200_001])
def test_a_wait_is_written_as_in_the_sentence_beside_it(wait_ms: int) -> None:
    """0.31 s in the sentence and 310 ms in the facts below it look like two measurements."""
    sentence = explain_refusal(reason=Reason.SPENT, cost=1, rate_per_s=1.0, burst=2, retry_after_ms=wait_ms)
    assert f" {formats.milliseconds(wait_ms).replace(NBSP, ' ')} later." in sentence


@pytest.mark.parametrize(
    ("per_s", "text"), [(100, "100 per second with bursts of 200"), (0.9, "54 per minute with bursts of 200")]
)
def test_plan_figures_are_words_for_a_sentence(per_s: float, text: str) -> None:
    """Said beside the busiest second, so in the unit that was sold and in words."""
    assert text == formats.plan_figures(per_s, 200)


def test_clock_ms_keeps_the_millisecond_it_was() -> None:
    """Support compares it with a customer's log: rounding up would show a time that did not happen yet."""
    assert "22:00:03.412" == formats.clock_ms(us("2026-01-01T21:00:03.412999+00:00"), BERLIN)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 s"), (8, "8 s"), (200, "3 min 20 s"), (7_200, "2 h"), (100_800, "1 day 4 h"), (172_800, "2 days")],
)
def test_duration_has_two_units_at_most(seconds: float, text: str) -> None:
    """Exact enough to act on, short enough to read."""
    assert text == formats.duration(seconds).replace(NBSP, " ")


SIGNS = ("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")
BLANKS = ("", " ", "   ", "\u00a0", "\u2003", "\u3000", "\u200b", "\ufeff", "\x00", "\x0b", " \u200b\u00a0")


@pytest.mark.parametrize("blanks", BLANKS, ids=ascii)
@pytest.mark.parametrize("sign", SIGNS, ids=ascii)
def test_cell_is_never_a_formula(sign: str, blanks: str) -> None:
    """A scope named like a formula must not run in a customer's spreadsheet, which looks past what stands before it."""
    text = f"{blanks}{sign}HYPERLINK(1)"
    assert f"'{text}" == formats.cell(text)


@pytest.mark.parametrize(
    "text", ["", " ", "\u200b", "GET /a", "  GET /a", "a=1", "GET /a-b", "1+1", "'=1", "(=1)", "é@"]
)
def test_cell_leaves_what_is_no_formula(text: str) -> None:
    """A mark in front of an ordinary name would be wrong in every file."""
    assert text == formats.cell(text)


def test_limit_is_whole_where_it_is_large() -> None:
    """6,000 per minute, but 0.69 per minute for a plan of 1,000 a day."""
    assert "6,000" == formats.limit(6_000.0)
    assert "0.69" == formats.limit(1_000 / 1_440)


def test_local_reads_negative_and_large_times_exactly() -> None:
    """Float seconds would lose microseconds."""
    assert datetime(2026, 1, 1, 0, 0, 0, 1, tzinfo=UTC) == formats.local(
        us("2026-01-01T00:00:00.000001+00:00"), ZoneInfo("UTC")
    )
