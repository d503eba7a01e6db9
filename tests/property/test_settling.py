"""The settler's bookkeeping under any order of flushes, rounds, kills, second settlers and frozen ones that wake."""

from __future__ import annotations

from dataclasses import dataclass, field

import hypothesis.strategies as st
from hypothesis import given, settings

from aggregator.core.settled.settling import MINUTE_US, Backlog, Progress

_FIRST = 29_833_920
_GRACE_US = 30_000_000
_LOGS = (("a", 0), ("a", 1), ("b", 0))


@dataclass
class Database:
    """What outlives a settler: the journal, raw decisions, every version of the settled totals, the progress rows."""

    journal: list[tuple[tuple[str, int], int, int]] = field(default_factory=list)
    unjournalled: list[tuple[int, int]] = field(default_factory=list)
    ends: dict[tuple[str, int], int] = field(default_factory=dict)
    raw: dict[int, int] = field(default_factory=dict)
    settled: dict[int, tuple[int, int]] = field(default_factory=dict)
    progress: Progress = field(default_factory=Progress)

    def flush(self, log: int, minute: int) -> None:
        """A decision of a minute; its row of the journal comes later."""
        self.raw[minute] = self.raw.get(minute, 0) + 1
        self.unjournalled.append((log, minute))

    def write_journal(self) -> None:
        """The last rows of all flushes under way."""
        for log, minute in self.unjournalled:
            name = _LOGS[log]
            self.ends[name] = self.ends.get(name, 0) + 1
            self.journal.append((name, self.ends[name], minute))
        self.unjournalled.clear()

    def write_totals(self, minute: int, version: int, total: int) -> None:
        """The highest version wins; of equal ones, the last."""
        if version >= self.settled.get(minute, (0, 0))[0]:
            self.settled[minute] = (version, total)

    def write_progress(self, progress: Progress) -> None:
        """The same rule."""
        if progress.version >= self.progress.version:
            self.progress = progress


class OneSettler:
    """A settler's round in steps, each of which may be its last, or may come late."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._backlog = Backlog(database.progress, grace_us=_GRACE_US)
        self._counted: list[tuple[int, int, int]] = []

    def read(self, now_us: int, most: int) -> None:
        """Read the journal and count what is due; write nothing."""
        for log in _LOGS:
            position = self._backlog.positions.get(log, 0)
            news = [(end, minute) for name, end, minute in self._database.journal if name == log and end > position]
            if news:
                self._backlog.note(log, max(end for end, _ in news), [minute for _, minute in news])
        version = self._backlog.version
        due = self._backlog.due(now_us, most)
        self._counted = [(minute, version, self._database.raw.get(minute, 0)) for minute in due]

    def write(self, now_us: int, progress: bool) -> None:
        """Write what was counted; and, unless it is killed before, the progress."""
        for minute, version, total in self._counted:
            self._database.write_totals(minute, version, total)
            self._backlog.settled([minute], version, now_us)
        self._counted = []
        if progress:
            self._database.write_progress(self._backlog.progress)


_STEPS = st.one_of(
    st.tuples(st.just("flush"), st.integers(0, len(_LOGS) - 1), st.integers(0, 5)),
    st.tuples(st.just("journal"), st.just(0), st.just(0)),
    st.tuples(st.just("read"), st.integers(0, 1), st.integers(1, 4)),
    st.tuples(st.just("write"), st.integers(0, 1), st.booleans()),
    st.tuples(st.just("restart"), st.integers(0, 1), st.just(0)),
)


@settings(max_examples=150)
@given(st.lists(_STEPS, min_size=10, max_size=60))
def test_whatever_happens_every_minute_ends_with_all_of_its_decisions(steps: list[tuple[str, int, int]]) -> None:
    """A minute that is skipped once stays wrong for ever, and nobody would see it."""
    database = Database()
    settlers = [OneSettler(database), OneSettler(database)]
    now_us = (_FIRST + 60) * MINUTE_US
    for what, one, two in steps:
        now_us += 11_000_000
        if what == "flush":
            database.flush(one, _FIRST + two)
        elif what == "journal":
            database.write_journal()
        elif what == "read":
            settlers[one].read(now_us, two)
        elif what == "write":
            settlers[one].write(now_us, bool(two))
        else:
            settlers[one] = OneSettler(database)
    # A last one starts from the progress that is stored. The frozen ones write late, and it has one round after them.
    last = OneSettler(database)
    database.write_journal()
    for settler in settlers:
        settler.write(now_us, progress=True)
    for _ in range(3):
        now_us += 11_000_000
        last.read(now_us, 100)
        last.write(now_us, progress=True)
    assert {minute: total for minute, (_, total) in database.settled.items()} == database.raw
    final = OneSettler(database)
    final.read(now_us + 11_000_000, 100)
    assert final._counted == []
