"""Words that the actions of ``tallygate audit`` share: a span of time, a caller, and an answer for people or programs.

Asks no database, and reads no clock: an answer that is asked for twice must be the same, so a span without an end has
none, instead of one that moves.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TextIO

#: Ends of a span that names none: wider than any time that the record can hold (years 1970 to 2255), and narrow enough
#: for ClickHouse's DateTime64(6).
EARLIEST_US = 0
LATEST_US = 9_000_000_000_000_000

_MOMENT = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}"
    r"(?:[Tt ][0-9]{2}:[0-9]{2}(?::[0-9]{2}(?:\.[0-9]{1,6})?)?(?:[Zz]|[+-][0-9]{2}:[0-9]{2})?)?"
)
_ALLOWED = "a time such as 2026-11-30T12:00:00Z or +01:00 for Z, or in UTC 2026-11-30T12:00 or 2026-11-30"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class Span:
    """Times from `from_us` up to, and without, `to_us`, in unix microseconds."""

    from_us: int = EARLIEST_US
    to_us: int = LATEST_US

    def __post_init__(self) -> None:
        """Raise ValueError for a span that holds no time."""
        if not self.from_us < self.to_us:
            raise ValueError(f"--from {moment(self.from_us)} is not before --to {moment(self.to_us)}")

    @property
    def parameters(self) -> dict[str, int]:
        """As queries bind it: ``from_us`` and ``to_us``, both Int64."""
        return {"from_us": self.from_us, "to_us": self.to_us}

    @property
    def words(self) -> str:
        """As it stands in a sentence: ``from … to …``; ``all that is recorded`` where neither end was named."""
        ends = []
        if self.from_us > EARLIEST_US:
            ends.append(f"from {moment(self.from_us)}")
        if self.to_us < LATEST_US:
            ends.append(f"to {moment(self.to_us)}")
        return " ".join(ends) or "all that is recorded"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was found: a line for people, and the same facts for programs (values that JSON has)."""

    line: str
    facts: Mapping[str, object]


_VERDICTS = {True: "agrees", False: "does not agree", None: "cannot say"}
#: Exit code where there is nothing to judge.
CANNOT_SAY = 3


@dataclass(frozen=True, slots=True)
class Answer:
    """What an action found.

    Attributes:
        agrees: the verdict; None where there is nothing to judge. What is merely worth knowing may be among the
            findings of an answer that agrees.
        summary: what follows the verdict in the first line: how much was looked at, or how much does not agree.
        findings: one line each.
        facts: further facts for programs, such as the counts that were compared.
    """

    agrees: bool | None
    summary: str
    findings: Sequence[Finding] = ()
    facts: Mapping[str, object] = field(default_factory=dict)

    def text(self) -> str:
        """For people: the verdict, then one finding a line; ends with a line break."""
        return text_of((f"{_VERDICTS[self.agrees]}: {self.summary}", *(one.line for one in self.findings)))

    def json(self) -> str:
        """For programs: one object on one line, its keys sorted, with `agrees`, `summary`, `findings` and the facts."""
        whole = {
            **self.facts,
            "agrees": self.agrees,
            "summary": self.summary,
            "findings": [one.facts for one in self.findings],
        }
        return json.dumps(whole, sort_keys=True, ensure_ascii=False, separators=(",", ":"), allow_nan=False) + "\n"

    def tell(self, options: argparse.Namespace, *, to: TextIO | None = None) -> int:
        """Print it as ``--json`` asks, and return the exit code: 0 agrees, 1 does not, 3 cannot say."""
        (to or sys.stdout).write(self.json() if options.json else self.text())
        return CANNOT_SAY if self.agrees is None else int(not self.agrees)


def printable(text: str) -> str:
    """A text on one line: what cannot be printed stands as its escape, as Python writes it.

    Names are the requests' own: one with a line break in it could write a line of the answer, or move the cursor.
    """
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in text)


def text_of(lines: Iterable[str]) -> str:
    """Lines of an answer for people, each on one line, whatever names are in it."""
    return "".join(f"{printable(line)}\n" for line in lines)


def add_span(parser: argparse.ArgumentParser) -> None:
    """Take ``--from`` and ``--to``; `span_of` reads them."""
    parser.add_argument(
        "--from", dest="from_us", type=moment_us, default=EARLIEST_US, metavar="TIME", help=f"{_ALLOWED} (no bound)"
    )
    parser.add_argument(
        "--to", dest="to_us", type=moment_us, default=LATEST_US, metavar="TIME", help="up to, and without (no bound)"
    )


def span_of(options: argparse.Namespace) -> Span:
    """The span that was asked for; one that holds no time ends the command with 2, as every wrong call does."""
    try:
        return Span(options.from_us, options.to_us)
    except ValueError as fault:
        sys.stderr.write(f"tallygate audit: {fault}\n")
        raise SystemExit(2) from fault


def add_caller(parser: argparse.ArgumentParser, *, required: bool = False) -> None:
    """Take ``--caller NAME`` or ``--caller-json STRING``: `options.caller`, None if neither was said.

    Any text that the record takes. Where a caller need not be named, an empty one is refused: it would mean everybody.
    """
    help_text = "whose record" if required else "whose record (everybody's)"
    either = parser.add_mutually_exclusive_group(required=required)
    named = partial(_caller, empty=required)
    either.add_argument("--caller", type=named, metavar="NAME", help=help_text)
    either.add_argument(
        "--caller-json", dest="caller", type=partial(_caller_json, empty=required), metavar="STRING",
        help="the same as a JSON string, for names that cannot be typed",
    )  # fmt: skip


def add_json(parser: argparse.ArgumentParser) -> None:
    """Take ``--json``: `options.json`."""
    parser.add_argument("--json", action="store_true", help="one JSON object instead of text")


def moment_us(text: str) -> int:
    """A time as people write it, in unix microseconds: RFC 3339, or in UTC without seconds or without a time of day.

    Raises:
        argparse.ArgumentTypeError: it is no such time; names it and what is allowed.
    """
    refused = argparse.ArgumentTypeError(f"{text!r} is not a time; allowed: {_ALLOWED}")
    if _MOMENT.fullmatch(text) is None:
        raise refused
    try:
        read = datetime.fromisoformat(text.upper())
        at_us = ((read if read.tzinfo else read.replace(tzinfo=UTC)) - _EPOCH) // _MICROSECOND
    except ValueError as fault:
        raise refused from fault
    if not EARLIEST_US <= at_us <= LATEST_US:
        raise argparse.ArgumentTypeError(f"{text!r} is out of range; allowed: years 1970 to 2255")
    return at_us


def moment(at_us: int) -> str:
    """Unix microseconds as RFC 3339 in UTC, always with six digits: ``2026-11-30T12:00:00.000000Z``."""
    return (_EPOCH + timedelta(microseconds=at_us)).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def plural(number: int, one: str, many: str = "") -> str:
    """A count with the word that fits it: ``1 grant``, ``1,200 grants``; `many` where it is not `one` with an s."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def _caller(text: str, *, empty: bool) -> str:
    try:
        text.encode()
    except UnicodeEncodeError as fault:
        raise argparse.ArgumentTypeError(f"{text[:80]!r} is no caller; allowed: text in UTF-8") from fault
    if not text and not empty:
        raise argparse.ArgumentTypeError("'' is no caller here; allowed: a name, or no --caller for everybody")
    return text


def _caller_json(text: str, *, empty: bool) -> str:
    try:
        name = json.loads(text)
    except ValueError:
        name = None
    if not isinstance(name, str):
        raise argparse.ArgumentTypeError(f"{text[:80]!r} is no caller; allowed: a JSON string, in double quotes")
    return _caller(name, empty=empty)
