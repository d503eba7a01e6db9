"""When a calendar quota starts anew, in any time zone. The time is an argument; no clock is read."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo

from enforcer.policies.limits import Per

#: Periods before and after the present one whose turns are named: the owner's clock may differ from the copy's.
_AROUND = 2
_US = 1_000_000


@lru_cache(maxsize=4_096)
def _turns(per: Per, zone: str, anchor: datetime) -> tuple[int, ...]:
    starts = sorted({round(start.timestamp()) * _US for start in _starts(per, ZoneInfo(zone), anchor)})
    return tuple(starts)


def turns(per: Per, zone: str, now_us: int) -> tuple[int, ...]:
    """Moments at which the quota starts anew, unix microseconds, rising: some before `now_us`, some after it.

    A day begins at the zone's midnight (or at the first moment after it, where a clock change skips that), and lasts 23
    or 25 hours when the clocks change. An hour is one of the zone's wall clock: the one that a change repeats is two.
    """
    now = datetime.fromtimestamp(now_us / _US, UTC)
    return _turns(per, zone, now.replace(minute=now.minute // 15 * 15, second=0, microsecond=0))


def _starts(per: Per, zone: ZoneInfo, anchor: datetime) -> Iterator[datetime]:
    if per is Per.HOUR:
        yield from _hours(zone, anchor)
        return
    today = anchor.astimezone(zone).date()
    for number in range(-_AROUND, _AROUND + 1):
        yield _midnight(_shifted(per, today, number), zone)


def _hours(zone: ZoneInfo, anchor: datetime) -> Iterator[datetime]:
    # Zones are offset by quarters of an hour, so each start of an hour there is a quarter's in UTC.
    first = anchor - timedelta(hours=_AROUND)
    for quarter in range(4 * (2 * _AROUND + 1)):
        moment = first + timedelta(minutes=15 * quarter)
        if moment.astimezone(zone).minute == 0:
            yield moment


def _shifted(per: Per, day: date, number: int) -> date:
    if per is Per.DAY:
        return day + timedelta(days=number)
    if per is Per.WEEK:
        return day - timedelta(days=day.weekday()) + timedelta(weeks=number)
    months = day.year * 12 + day.month - 1 + number
    return date(months // 12, months % 12 + 1, 1)


def _midnight(day: date, zone: ZoneInfo) -> datetime:
    """The first moment of a day there; where a clock change skips midnight, the moment of the change."""
    start = datetime(day.year, day.month, day.day, tzinfo=zone)
    moment = start.astimezone(UTC)
    if moment.astimezone(zone).date() == day and moment.astimezone(zone).replace(tzinfo=None) == start.replace(
        tzinfo=None
    ):
        return moment
    return _first_of(day, zone, moment)


def _first_of(day: date, zone: ZoneInfo, near: datetime) -> datetime:
    low, high = near - timedelta(hours=26), near + timedelta(hours=26)
    while high - low > timedelta(seconds=1):
        middle = low + (high - low) / 2
        if middle.astimezone(zone).date() >= day:
            high = middle
        else:
            low = middle
    return high.replace(microsecond=0)
