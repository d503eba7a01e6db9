"""Buckets are cut in the viewer's zone, also on the days on which the clocks change."""

from __future__ import annotations

from datetime import datetime, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo, available_timezones

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dashboard import spans
from dashboard.spans import SPANS, Bucket, Unit, cut, cut_between, fold, span_named, zone_named
from enforcer.errors import InvalidField


def s(text: str) -> int:
    """Unix seconds of an ISO time."""
    return round(datetime.fromisoformat(text).timestamp())


@pytest.mark.parametrize(
    ("zone", "first", "counts"),
    [
        ("America/New_York", "2026-03-07T05:00:00+00:00", [24, 23, 24, 1]),
        ("America/New_York", "2026-10-31T04:00:00+00:00", [24, 25, 23]),
        ("Africa/Cairo", "2026-04-22T22:00:00+00:00", [24, 23, 24, 1]),
    ],
)
def test_days_have_the_hours_that_the_law_gives_them(zone: str, first: str, counts: list[int]) -> None:
    """R16: one decision per UTC hour, 72 of them; a day cut at a fixed 24 h puts one on the wrong day."""
    hours = [s(first) + 3_600 * number for number in range(72)]
    days = list(cut_between("day", from_s=hours[0], to_s=hours[-1] + 1, zone=ZoneInfo(zone)))
    places = fold(days, hours)
    assert counts == [places.count(place) for place in range(len(days)) if place in places]
    assert None not in places


def test_a_decision_late_in_the_utc_day_is_on_the_next_in_kolkata() -> None:
    """R17: 2026-01-01T18:45Z is 2 January in Asia/Kolkata."""
    zone = ZoneInfo("Asia/Kolkata")
    days = cut(SPANS["30d"], now_s=s("2026-01-02T12:00:00+00:00"), zone=zone)
    place = fold(days, [s("2026-01-01T18:45:00+00:00")])[0]
    assert place is not None
    assert datetime(2026, 1, 2) == datetime.fromtimestamp(days[place].start_s, zone).replace(tzinfo=None)


def test_an_hour_that_the_clocks_show_twice_is_two_buckets() -> None:
    """Berlin, 25 October 2026: 02:00 comes twice; both hours have their own bar, each of 3,600 s."""
    hours = list(
        cut_between(
            "hour",
            from_s=s("2026-10-24T22:00:00+00:00"),
            to_s=s("2026-10-25T04:00:00+00:00"),
            zone=ZoneInfo("Europe/Berlin"),
        )
    )
    assert {3_600} == {hour.seconds for hour in hours}
    shown = [datetime.fromtimestamp(hour.start_s, ZoneInfo("Europe/Berlin")).hour for hour in hours]
    assert [0, 1, 2, 2, 3, 4] == shown


def test_hours_begin_at_the_local_hour_in_a_half_hour_zone() -> None:
    """Kolkata is half an hour off UTC: its hours begin at half past, by UTC."""
    hours = cut(SPANS["7d"], now_s=s("2026-05-05T10:10:00+00:00"), zone=ZoneInfo("Asia/Kolkata"))
    assert {1_800} == {hour.start_s % 3_600 for hour in hours}


def test_lord_howe_moves_by_half_an_hour() -> None:
    """The zone that changes by 30 minutes: one short bucket, and then hours on the hour again."""
    zone = ZoneInfo("Australia/Lord_Howe")
    from_s = s("2026-10-03T12:30:00+00:00")
    hours = list(cut_between("hour", from_s=from_s, to_s=from_s + 6 * 3_600, zone=zone))
    assert [3_600, 1_800] == sorted({hour.seconds for hour in hours}, reverse=True)
    local = [datetime.fromtimestamp(hour.start_s, zone) for hour in hours]
    assert {0} == {moment.minute for moment in local if moment.hour > 2}


@pytest.mark.parametrize("key", list(SPANS))
def test_cut_ends_with_the_bucket_that_holds_now(key: str) -> None:
    """The last bar is the one that is still filling; the count of bars never changes while a page is open."""
    now_s = s("2026-11-01T05:59:59+00:00") + 0.5
    buckets = cut(SPANS[key], now_s=now_s, zone=ZoneInfo("America/New_York"))
    assert SPANS[key].buckets == len(buckets)
    assert buckets[-1].start_s <= now_s < buckets[-1].end_s


@given(
    zone=st.sampled_from(
        ["UTC", "America/New_York", "Asia/Kathmandu", "Australia/Lord_Howe", "Africa/Cairo", "Pacific/Apia"]
    ),
    unit=st.sampled_from(["quarter", "hour", "day"]),
    from_s=st.integers(s("2020-01-01T00:00:00+00:00"), s("2030-01-01T00:00:00+00:00")),
    hours=st.integers(1, 80),
)
def test_buckets_follow_each_other_without_gap_or_overlap(zone: str, unit: Unit, from_s: int, hours: int) -> None:
    """A request in a gap would be on no bar, one in an overlap on two."""
    buckets = list(cut_between(unit, from_s=from_s, to_s=from_s + hours * 3_600, zone=ZoneInfo(zone)))
    assert all(left.end_s == right.start_s for left, right in pairwise(buckets))
    assert all(bucket.start_s < bucket.end_s for bucket in buckets)
    assert all(bucket.start_s % 900 == 0 for bucket in buckets)


def test_fold_places_nothing_outside_the_buckets() -> None:
    """The step after the last bucket belongs to no bar; the end of a bucket belongs to the next."""
    buckets = [Bucket(100, 160), Bucket(160, 220)]
    assert [None, 0, 0, 1, 1, None] == fold(buckets, [99, 100, 159, 160, 219, 220])


@pytest.mark.parametrize(
    "name", ["Factory", "localtime", "posixrules", "posix/Europe/Berlin", "right/UTC", "posix", "right", "leapseconds"]
)
def test_zone_named_refuses_what_the_database_holds_beside_zones(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Which of them are there depends on the machine: ``localtime`` would be another zone on every server."""
    held = {*available_timezones(), "Factory", "localtime", "posixrules", "posix/Europe/Berlin", "right/UTC"}
    monkeypatch.setattr("dashboard.spans.available_timezones", lambda: held)
    spans.zone_names.cache_clear()
    try:
        with pytest.raises(InvalidField, match=r"zone is .*; allowed: a time zone of the IANA list, such as UTC"):
            zone_named(name)
    finally:
        spans.zone_names.cache_clear()


@pytest.mark.parametrize("name", ["UTC", "Asia/Calcutta", "Etc/GMT+5", "EST5EDT", "America/Argentina/Ushuaia"])
def test_zone_named_knows_every_name_of_the_list(name: str) -> None:
    """Links and fixed offsets are names of the list as well, and stand in addresses that people have kept."""
    assert name == zone_named(name).key


@pytest.mark.parametrize("name", ["Mars/Olympus", "", "../etc/passwd", "Europe/Berlin\x00", "utc ", "A" * 500])
def test_zone_named_refuses_what_is_no_zone(name: str) -> None:
    """The zone comes from an address: a name that is no zone is a clear message, never a path that is opened."""
    with pytest.raises(InvalidField, match="zone is"):
        zone_named(name)


def test_span_named_says_what_is_allowed() -> None:
    """A mistyped span is answered with the list."""
    with pytest.raises(InvalidField, match="1h, 24h, 7d, 30d"):
        span_named("2h")


def test_every_bucket_is_a_whole_number_of_steps() -> None:
    """Rows are read by step: a step that crosses the end of a bucket would be counted on one side only."""
    now_s = s("2026-10-25T12:07:00+00:00")
    for span in SPANS.values():
        for zone in ("Europe/Berlin", "Asia/Kathmandu", "Australia/Lord_Howe"):
            buckets = cut(span, now_s=now_s, zone=ZoneInfo(zone))
            assert all(bucket.start_s % span.step_s == 0 for bucket in buckets)
            assert timedelta(seconds=buckets[-1].end_s - buckets[0].start_s) >= timedelta(minutes=60)
