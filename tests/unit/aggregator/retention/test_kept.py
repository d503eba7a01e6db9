"""Since when the raw record is whole, from what was in force when."""

from __future__ import annotations

from datetime import UTC, datetime

from aggregator.retention.kept import Kept, from_history, month_span
from aggregator.retention.tiers import Keep


def _us(text: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()) * 1_000_000


NOON = _us("2026-11-30T12:00:00")


def test_nothing_was_dropped_before_any_retention_was_in_force() -> None:
    """An older database had no TTL on its decisions."""
    found = from_history([], [], now_us=NOON)
    assert Kept() == found
    assert found.whole(0, NOON)


def test_record_is_whole_from_the_first_day_that_is_within_the_settings() -> None:
    """The day on which a TTL ends a day's rows is the one after the last that counts."""
    found = from_history([(_us("2026-01-01T00:00:00"), Keep())], [], now_us=NOON)
    assert (_us("2026-11-16T00:00:00"), _us("2026-09-01T00:00:00")) == (found.admitted_from_us, found.refused_from_us)


def test_longer_retention_brings_nothing_back() -> None:
    """What fourteen days had dropped is gone, whatever is kept from now on."""
    history = [(_us("2026-01-01T00:00:00"), Keep()), (_us("2026-11-29T00:00:00"), Keep(60, 400))]
    assert _us("2026-11-15T00:00:00") == from_history(history, [], now_us=NOON).admitted_from_us
    later = _us("2027-03-01T00:00:00")
    assert _us("2026-12-31T00:00:00") == from_history(history, [], now_us=later).admitted_from_us


def test_gone_says_what_of_a_span_is_missing_and_nothing_of_one_that_is_whole() -> None:
    """Whoever verifies an old span must read "gone", not "broken"."""
    found = from_history([(0, Keep())], [(2026, 10)], now_us=NOON)
    assert found.whole(found.admitted_from_us, NOON)
    assert ["admitted raw decisions before 2026-11-16 are gone: they were kept no longer"] == found.gone(
        _us("2026-11-10T00:00:00"), NOON
    )
    assert found.whole(_us("2026-11-10T00:00:00"), NOON, refused_only=True)
    assert [
        "raw decisions before 2026-09-01 are gone: they were kept no longer",
        "raw decisions from 2026-10-01 to 2026-11-01 are gone: dropped by hand",
    ] == found.gone(_us("2026-08-01T00:00:00"), _us("2026-10-02T00:00:00"), refused_only=True)


def test_month_span_goes_over_the_end_of_a_year() -> None:
    """December is followed by January of the next."""
    assert (_us("2026-12-01T00:00:00"), _us("2027-01-01T00:00:00")) == month_span(2026, 12)
