"""Numbers, shares, rates and times as people read them: one way for every page, table and sentence.

Pure: reads no clock and no locale. Times come in as unix microseconds and are shown in the zone that is given.
"""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from math import ceil
from unicodedata import category
from zoneinfo import ZoneInfo

#: Between a number and its unit, so that a line never breaks there.
NBSP = "\u00a0"
#: Stands where there is nothing to say, as opposed to a zero that was measured.
NOTHING = "–"

_RATE_UNITS = ((1, "s"), (60, "min"), (3_600, "h"), (86_400, "day"))
_UNIT_WORDS = {"s": "second", "min": "minute", "h": "hour", "day": "day"}
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
#: What makes a cell a formula, or moves it into the next one, when it is the first that counts.
_FORMULA_SIGNS = frozenset("=+-@\t\r\n\uff1d\uff0b\uff0d\uff20")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def count(number: int) -> str:
    """A whole number with its thousands grouped: ``4,812``."""
    return f"{number:,}"


def plural(number: int, one: str, many: str) -> str:
    """A count with the word that fits it: ``1 server``, ``12 servers``."""
    return f"{number:,} {one if number == 1 else many}"


def share(part: int, whole: int) -> str:
    """`part` of `whole` in per cent: one decimal always, and never 0.0 or 100.0 unless it is exactly that.

    ``–`` where there is no whole to be a share of.
    """
    if whole <= 0:
        return NOTHING
    per_cent = 100 * part / whole
    shown = f"{per_cent:.1f}"
    if part and shown == "0.0":
        return f"<{NBSP}0.1{NBSP}%"
    if part != whole and shown == "100.0":
        return f">{NBSP}99.9{NBSP}%"
    return f"{shown}{NBSP}%"


def rate(per_s: float) -> str:
    """A rate in the largest unit of time that keeps it readable: ``100/s``, ``54/min``, ``1/day``.

    Per second where the number is at least one and needs at most one decimal there; otherwise the first unit in
    which it does.
    """
    for seconds, unit in _RATE_UNITS:
        value = per_s * seconds
        if value >= 1 and abs(value * 10 - round(value * 10)) < 1e-6:
            return f"{_decimal(value)}/{unit}"
    for seconds, unit in _RATE_UNITS:
        if per_s * seconds >= 1:
            return f"{_decimal(per_s * seconds)}/{unit}"
    return f"{per_s * 86_400:.3g}/day"


def plan_figures(rate_per_s: float, burst: int) -> str:
    """What was sold, as it stands in a sentence: ``100 per second with bursts of 200``."""
    number, _, unit = rate(rate_per_s).partition("/")
    return f"{number} per {_UNIT_WORDS[unit]} with bursts of {count(burst)}"


def plan_terms(name: str, rate_per_s: float, burst: int) -> str:
    """What was sold, in a few words: ``standard (100/s, bursts of 200)``."""
    return f"{name} ({rate(rate_per_s)}, bursts of {count(burst)})"


def limit_terms(rate_per_s: float, burst: int, per: str) -> str:
    """What a limit is held to: ``100/s, bursts of 200``, or for a quota ``10 per day``, with its zone if not UTC."""
    if not per:
        return f"{rate(rate_per_s)}, bursts of {count(burst)}"
    period, _, zone = per.partition(" ")
    return f"{count(burst)} per {period}{f' in {zone}' if zone else ''}"


def limit(requests: float) -> str:
    """What a plan sustains in some stretch of time: whole where it is large, two digits where it is small."""
    return count(round(requests)) if requests >= 10 else _trim(f"{requests:.2f}")


def local(at_us: int, zone: ZoneInfo) -> datetime:
    """Unix microseconds as a date and time of `zone`."""
    return (_EPOCH + timedelta(microseconds=at_us)).astimezone(zone)


def clock(at_us: int, zone: ZoneInfo) -> str:
    """Hour, minute and second: ``21:59:31``."""
    return f"{local(at_us, zone):%H:%M:%S}"


def clock_ms(at_us: int, zone: ZoneInfo) -> str:
    """To the millisecond: ``22:00:03.412``."""
    moment = local(at_us, zone)
    return f"{moment:%H:%M:%S}.{moment.microsecond // 1000:03d}"


def day(moment: date) -> str:
    """Day and month: ``28 Nov``. Written out here because ``strftime`` follows the process's locale."""
    return f"{moment.day} {_MONTHS[moment.month - 1]}"


def moment(at_us: int, zone: ZoneInfo, *, now_us: int) -> str:
    """``21:59:31``, with its day unless that is today: ``21:59:31 on 28 Nov``, and with its year unless this one."""
    return clock(at_us, zone) + _on_day(at_us, zone, now_us)


def moment_ms(at_us: int, zone: ZoneInfo, *, now_us: int) -> str:
    """As `moment`, to the millisecond."""
    return clock_ms(at_us, zone) + _on_day(at_us, zone, now_us)


def minute_of(at_us: int, zone: ZoneInfo, *, now_us: int) -> str:
    """As `moment`, to the minute: ``21:59``."""
    return f"{local(at_us, zone):%H:%M}" + _on_day(at_us, zone, now_us)


def full(at_us: int, zone: ZoneInfo) -> str:
    """Date, time and offset from UTC: ``28 Nov 2025, 21:59:31 (+01:00)``."""
    then = local(at_us, zone)
    return f"{day(then)} {then.year}, {then:%H:%M:%S} ({then.isoformat()[-6:]})"


def ends(from_us: int, to_us: int, zone: ZoneInfo) -> tuple[str, str]:
    """Both ends of a span; a date, a year and an offset that they share is said once.

    ``28 Nov 2025, 20:59:31`` and ``21:59:31 (+01:00)``.
    """
    first, last = local(from_us, zone), local(to_us, zone)
    begin, end = full(from_us, zone), full(to_us, zone)
    if first.utcoffset() != last.utcoffset():
        return begin, end
    begin = begin.rpartition(" (")[0]
    if first.date() == last.date():
        return begin, end.partition(", ")[2]
    if first.year == last.year:
        begin = f"{day(first)}, {first:%H:%M:%S}"
    return begin, end


def iso(at_us: int, zone: ZoneInfo) -> str:
    """ISO 8601 to the millisecond, for files and programs."""
    return local(at_us, zone).isoformat(timespec="milliseconds")


def duration(seconds: float) -> str:
    """A length of time in at most two units: ``8 s``, ``3 min 20 s``, ``2 h``, ``1 day 4 h``."""
    rest = max(0, round(seconds))
    parts: list[str] = []
    for size, unit in ((86_400, "day"), (3_600, "h"), (60, "min"), (1, "s")):
        number, rest = divmod(rest, size)
        if number:
            parts.append(f"{number}{NBSP}{unit}{'s' if unit == 'day' and number != 1 else ''}")
    return " ".join(parts[:2]) or f"0{NBSP}s"


def milliseconds(length_ms: int) -> str:
    """A wait, as the refusal's sentence says it: ``0.04 s``, ``12.5 s``, ``3 min``; never shorter than true."""
    seconds = length_ms / 1_000
    if seconds < 120:
        return f"{_trim(f'{seconds:.3f}')}{NBSP}s"
    size, unit = (60, "min") if seconds < 7_200 else (3_600, "h")
    return f"{count(ceil(seconds / size))}{NBSP}{unit}"


def cell(text: str) -> str:
    """A text for a spreadsheet: one that would be read as a formula is quoted.

    Spreadsheets look past blanks and characters without a width, and take the wide forms of East Asian keyboards too.
    """
    for character in text:
        if character in _FORMULA_SIGNS:
            return f"'{text}"
        if not (character.isspace() or category(character) in ("Cc", "Cf")):
            return text
    return text


def _on_day(at_us: int, zone: ZoneInfo, now_us: int) -> str:
    then, today = local(at_us, zone).date(), local(now_us, zone).date()
    if then == today:
        return ""
    return f" on {day(then)}" if then.year == today.year else f" on {day(then)} {then.year}"


def _decimal(value: float) -> str:
    return _trim(f"{value:,.1f}")


def _trim(text: str) -> str:
    return text.rstrip("0").rstrip(".") if "." in text else text
