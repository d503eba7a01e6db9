"""Spans of time and their buckets, cut in the viewer's zone: days have 23, 24 or 25 hours where the law says so.

Pure: `now` is an argument. Instants are unix seconds; what people read is made in `formats`.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from typing import Literal, TypeAlias
from zoneinfo import ZoneInfo, available_timezones

from enforcer.errors import InvalidField

Unit: TypeAlias = Literal["minute", "quarter", "hour", "day"]

_MINUTE_S = 60
#: Every offset and every change of offset in force today is a multiple of this; so are the cuts of all zones.
_QUARTER_S = 900
_NOT_ZONES = frozenset({"Factory", "localtime", "posixrules"})
#: Folders with the whole list again, with leap seconds and without.
_OTHER_COPIES = frozenset({"posix", "right"})
_NOMINAL_S: dict[Unit, int] = {"minute": _MINUTE_S, "quarter": _QUARTER_S, "hour": 3_600, "day": 86_400}


@dataclass(frozen=True, slots=True)
class Span:
    """One choice of how far back a page looks, and how finely.

    Attributes:
        key: its name in the address.
        short: what is written on its choice.
        words: how it stands in a sentence: "in the last hour".
        buckets: how many, the one that is still filling included.
        unit: what one bucket is.
        unit_words: what one bucket is called in a heading.
        step_s: grain in seconds at which rows are read from the store; every bucket is a whole number of steps.
    """

    key: str
    short: str
    words: str
    buckets: int
    unit: Unit
    unit_words: str
    step_s: int


SPANS: dict[str, Span] = {
    span.key: span
    for span in (
        Span("1h", "1 h", "the last hour", 60, "minute", "minute", _MINUTE_S),
        Span("24h", "24 h", "the last 24 hours", 96, "quarter", "15 minutes", _QUARTER_S),
        Span("7d", "7 d", "the last 7 days", 168, "hour", "hour", _QUARTER_S),
        Span("30d", "30 d", "the last 30 days", 30, "day", "day", _QUARTER_S),
    )
}
DEFAULT_SPAN = "1h"
DEFAULT_ZONE = "UTC"


@dataclass(frozen=True, slots=True)
class Bucket:
    """A stretch of time, `end_s` not included."""

    start_s: int
    end_s: int

    @property
    def seconds(self) -> int:
        """Its length: an hour is 3,600 in most zones, a day not always 86,400."""
        return self.end_s - self.start_s


def span_named(key: str) -> Span:
    """The span of that name.

    Raises:
        InvalidField: there is none.
    """
    span = SPANS.get(key)
    if span is None:
        raise InvalidField("span", key, "one of " + ", ".join(SPANS))
    return span


def zone_named(name: str) -> ZoneInfo:
    """The IANA zone of that name.

    Raises:
        InvalidField: there is none.
    """
    if name not in zone_names():
        raise InvalidField("zone", name, "a time zone of the IANA list, such as UTC, Europe/Berlin or America/New_York")
    return ZoneInfo(name)


@cache
def zone_names() -> frozenset[str]:
    """The names of the IANA list, links such as ``Asia/Calcutta`` included; read from the disk once.

    A time zone database holds more than zones: a name for "not set yet", this machine's own choice, other copies.
    """
    return frozenset(
        name for name in available_timezones() if name not in _NOT_ZONES and name.partition("/")[0] not in _OTHER_COPIES
    )


def cut(span: Span, *, now_s: float, zone: ZoneInfo) -> list[Bucket]:
    """The last `span.buckets` buckets of `zone`, oldest first; the last one holds `now_s` and may still be filling."""
    nominal_s = _NOMINAL_S[span.unit]
    from_s = int(now_s) - nominal_s * (span.buckets + 2)
    return list(cut_between(span.unit, from_s=from_s, to_s=int(now_s) + 1, zone=zone))[-span.buckets :]


def cut_between(unit: Unit, *, from_s: int, to_s: int, zone: ZoneInfo) -> Iterator[Bucket]:
    """All whole buckets of `zone` that begin before `to_s`, the first one at the first cut at or after `from_s`.

    A bucket ends where the local minute, quarter, hour or day does, so one that spans a change of the clocks is
    shorter or longer, and both hours that the clocks show twice are buckets of their own.
    """
    step_s = _MINUTE_S if unit == "minute" else _QUARTER_S
    at_s = from_s // step_s * step_s - step_s
    label = _label(unit, at_s, zone)
    start_s: int | None = None
    while True:
        at_s += step_s
        next_label = _label(unit, at_s, zone)
        if next_label == label:
            continue
        label = next_label
        if start_s is not None:
            yield Bucket(start_s, at_s)
        if at_s >= to_s:
            return
        start_s = at_s if at_s >= from_s else None


def _label(unit: Unit, at_s: int, zone: ZoneInfo) -> tuple[object, ...]:
    if unit in ("minute", "quarter"):
        return (at_s,)
    local = datetime.fromtimestamp(at_s, UTC).astimezone(zone)
    return (local.date(),) if unit == "day" else (local.date(), local.hour, local.fold)


def fold(buckets: list[Bucket], times_s: Iterable[int]) -> list[int | None]:
    """For each instant, the place of the bucket that holds it; None where none does."""
    starts = [bucket.start_s for bucket in buckets]
    places: list[int | None] = []
    for at_s in times_s:
        place = bisect_right(starts, at_s) - 1
        places.append(place if place >= 0 and at_s < buckets[place].end_s else None)
    return places
