"""``tallygate audit gaps``: which decisions the record does not hold, of each life of each copy, and who says so.

A life is one epoch of a copy; its decisions are numbered from 0 without a gap, so what is missing shows. Reads page by
page, and names at most so many places; all are counted. Never asks a copy, the log or the clock.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from aggregator.core.proof.holes import Numbers, parts_of
from aggregator.retention.begins import Begins, begins
from aggregator.sql import load_queries
from aggregator.store import Store
from aggregator.words import Answer, Finding, Span, add_json, add_span, moment, plural, span_of

HELP = "name the decisions that are not on record, and whether their copies said that they were lost"
#: Places that are named; those beyond are counted only.
MOST_NAMED = 1_000
#: A copy speaks every few seconds. One that has been silent for this long, by the record's newest block, has ended.
SILENT_US = 600_000_000

_LIVES, _HOLES = 500, 5_000
_SAYS = {
    "copy_stopped": "the copy said when it stopped",
    "anchor": "the copy said once a minute",
    "copy_found": "its successor found",
    "decisions_lost": "its last loss record says",
}


@dataclass(frozen=True, slots=True)
class Life:
    """One epoch of one copy, and what is known of its end.

    Attributes:
        recorded_to: one past its last decision on record.
        stated_to: one past the last decision that anybody spoke of; `stated_by` is the kind of that event.
        facts_lost: grants and settlements that it says it lost.
        end_known: it stopped, or a successor found what it left.
        last_at_us: when it was last heard.
        has_blocks: whether any block of it is on record.
    """

    copy_id: str
    epoch: int
    recorded_to: int
    stated_to: int
    stated_by: str
    facts_lost: int
    end_known: bool
    last_at_us: int
    has_blocks: bool

    @property
    def name(self) -> str:
        """As a finding begins."""
        return f"copy {self.copy_id}, epoch {self.epoch}"


class Hole(NamedTuple):
    """Numbers that no block holds, the time of the block behind them, and whether they are from before the record."""

    numbers: Numbers
    before_us: int
    is_older: bool


@dataclass(slots=True)
class Found:
    """What was found so far; the named places are bounded, the counts are not.

    Attributes:
        missing: decisions that are missing and that nobody said were lost.
        lost: decisions that copies said they lost.
        before: decisions of lives that are older than the record, from before it begins.
        unsaid: lives that fell silent without a word.
    """

    lives: int = 0
    missing: int = 0
    lost: int = 0
    before: int = 0
    unsaid: int = 0
    facts_lost: int = 0
    places: int = 0
    faults: list[Finding] = field(default_factory=list)
    notes: list[Finding] = field(default_factory=list)

    def name(self, life: Life, line: str, kind: str, *, fault: bool = False, **facts: object) -> None:
        """Name a place of a life, unless so many were named already."""
        self.places += 1
        if len(self.faults) + len(self.notes) < MOST_NAMED:
            whose = {"copy_id": life.copy_id, "epoch": life.epoch}
            finding = Finding(f"{life.name}: {line}", {"kind": kind, "fault": fault, **whose, **facts})
            (self.faults if fault else self.notes).append(finding)

    def answer(self, span: Span) -> Answer:
        """Agrees if nothing is missing that nobody spoke of; cannot say where no copy recorded anything."""
        counts = {
            "lives": self.lives,
            "missing": self.missing,
            "lost": self.lost,
            "before_record": self.before,
            "facts_lost": self.facts_lost,
            "ended_unsaid": self.unsaid,
            "not_named": self.places - len(self.faults) - len(self.notes),
        }
        missing = f"{plural(self.missing, 'decision')} missing without a loss record" if self.missing else "no gap"
        lives = plural(self.lives, "life of a copy", "lives of copies")
        summary = f"{missing}, {self.lost:,} lost by the copies' own records; {lives}, {span.words}"
        if not self.lives:
            summary = f"no copy has recorded anything, {span.words}"
        if self.before:
            older = plural(self.before, "decision")
            summary += f"; {older} from before this record begins"
        if self.unsaid:
            silent = plural(self.unsaid, "life that ended without a last word", "lives that ended without a last word")
            summary += f"; what {silent} had in memory is unknown"
        if counts["not_named"]:
            summary += f"; {plural(counts['not_named'], 'further place')} not named"
        verdict = not self.missing if self.lives else None
        return Answer(verdict, summary, [*self.faults, *self.notes], {**counts, "span": span.words})


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Take a span, and the form of the answer."""
    add_span(parser)
    add_json(parser)


def run(options: argparse.Namespace, store: Store) -> int:
    """Say what is missing; see `find`."""
    return find(store, span_of(options)).tell(options)


def find(store: Store, span: Span) -> Answer:
    """What is not on record of the lives that a span touches: holes before its blocks, and cut ends.

    Raises:
        StoreUnavailable, StoreRefused: the database could not be asked.
    """
    queries = load_queries("aggregator.sql", "audit_gaps.sql")
    newest_us = int(store.rows(queries["record_until"].sql)[0][0])
    record = begins(store)
    found = Found()
    for lives in _lives(store, span):
        keys = [(life.copy_id, life.epoch) for life in lives]
        said = losses_of(store, keys)
        holes = holes_of(store, span, keys, record)
        for life in lives:
            found.lives += 1
            key = (life.copy_id, life.epoch)
            lost = said.get(key, [])
            for hole in holes.pop(key, ()):
                where = f"before the block of {moment(hole.before_us)}"
                _judge(found, life, hole.numbers, lost, where, older=hole.is_older)
            if life.stated_to > life.recorded_to:
                cut = Numbers(life.recorded_to, life.stated_to)
                end = f"at its end: {_SAYS[life.stated_by]} that it went to {life.stated_to - 1}"
                older = not life.has_blocks and record.is_before(life.epoch) and life.last_at_us < record.first_us
                _judge(found, life, cut, lost, end, older=older)
            _judge_end(found, life, newest_us)
    return found.answer(span)


def _judge(
    found: Found, life: Life, hole: Numbers, lost: Sequence[Numbers], where: str, *, older: bool = False
) -> None:
    declared, silent = parts_of(hole, lost)
    for part in silent if older else ():
        found.before += part.count
        line = f"{part.count:,} from before this record begins: {part.words}, {where}"
        found.name(life, line, "before_record", first_seq=part.first, last_seq=part.end - 1)
    for part in () if older else silent:
        found.missing += part.count
        line = f"{part.count:,} missing without a loss record: {part.words}, {where}"
        found.name(life, line, "missing", fault=True, first_seq=part.first, last_seq=part.end - 1)
    for part in declared:
        found.lost += part.count
        line = f"{part.count:,} lost by its own record: {part.words}, {where}"
        found.name(life, line, "lost", first_seq=part.first, last_seq=part.end - 1)


def _judge_end(found: Found, life: Life, newest_us: int) -> None:
    if life.facts_lost:
        found.facts_lost += life.facts_lost
        line = f"{life.facts_lost:,} grants or settlements lost by its own record"
        found.name(life, line, "facts_lost", total=life.facts_lost)
    if not life.end_known and life.last_at_us < newest_us - SILENT_US:
        found.unsaid += 1
        line = f"ended without saying so, last heard at {moment(life.last_at_us)}, recorded up to {life.recorded_to}; "
        line += "what it had not shipped nobody knows"
        found.name(life, line, "ended_unsaid", next_seq=life.recorded_to, last_at_us=life.last_at_us)


def _lives(store: Store, span: Span) -> Iterator[list[Life]]:
    sql = load_queries("aggregator.sql", "audit_gaps.sql")["lives_in_span"].sql
    after: tuple[str, int] = ("", 0)
    while True:
        rows = store.rows(sql, {**span.parameters, "after_copy": after[0], "after_epoch": after[1], "lives": _LIVES})
        lives = [Life(*row) for row in rows]
        yield lives
        if len(lives) < _LIVES:
            return
        after = (lives[-1].copy_id, lives[-1].epoch)


def losses_of(store: Store, lives: Sequence[tuple[str, int]]) -> dict[tuple[str, int], list[Numbers]]:
    """The numbers that copies say they lost, by (copy, epoch); lives that lost nothing are left out."""
    sql = load_queries("aggregator.sql", "audit_gaps.sql")["losses_of"].sql
    losses: dict[tuple[str, int], list[Numbers]] = {}
    for copy_id, epoch, first, end in store.rows(sql, {"lives": list(lives)}):
        losses.setdefault((copy_id, epoch), []).append(Numbers(first, end))
    return losses


def holes_of(
    store: Store, span: Span, lives: Sequence[tuple[str, int]], record: Begins
) -> dict[tuple[str, int], list[Hole]]:
    """The numbers that no block holds before blocks of a span, by (copy, epoch), in a record that begins there."""
    sql = load_queries("aggregator.sql", "audit_gaps.sql")["holes_in_span"].sql
    holes: dict[tuple[str, int], list[Hole]] = {}
    after: tuple[str, int, int] = ("", 0, 0)
    while True:
        place = dict(zip(("after_copy", "after_epoch", "after_seq"), after, strict=True))
        rows = store.rows(sql, {**span.parameters, **record.parameters, **place, "lives": list(lives), "holes": _HOLES})
        for copy_id, epoch, first, end, before_us, is_older in rows:
            hole = Hole(Numbers(first, end), int(before_us), bool(is_older))
            holes.setdefault((copy_id, epoch), []).append(hole)
        if len(rows) < _HOLES:
            return holes
        after = (rows[-1][0], rows[-1][1], rows[-1][3])
