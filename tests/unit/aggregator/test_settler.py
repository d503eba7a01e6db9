"""The settler's loop on a stand-in for the database: outages, what is written and when, how much one round takes."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pytest

from aggregator.config import AggregatorConfig
from aggregator.core.settled.settling import MINUTE_US
from aggregator.settler.loop import Settler
from aggregator.settler.passes.due import Due
from aggregator.store import ColumnStore, StoreUnavailable

_FIRST = 28_333_440
_NOW_US = (_FIRST + 1_440) * MINUTE_US


class Desk:
    """A store whose journal names some minutes, and which is away for a number of calls."""

    def __init__(self, minutes: Sequence[int] = (), *, away: int = 0) -> None:
        self.minutes = list(minutes)
        self.away = away
        self.progress: list[dict[str, Any]] = []

    def insert(self, table: str, batch: pa.Table) -> None:
        self._answer()
        if table == "settled_progress":
            self.progress += batch.to_pylist()

    def rows(self, sql: str, parameters: Mapping[str, Any] | None = None) -> Sequence[tuple[Any, ...]]:
        self._answer()
        values = parameters or {}
        if "SELECT DISTINCT log_id" in sql:
            return [("log-1", 0)]
        if "groupUniqArrayArray(minutes)" in sql and values["position"] < 7:
            return [(7, self.minutes)]
        if "now64" in sql:
            return [(_NOW_US,)]
        if "FROM system.tables" in sql:
            return [([("quarters", "a")],)]
        return []

    def arrow(self, sql: str, parameters: Mapping[str, Any] | None = None) -> pa.Table:
        raise AssertionError("no pass of these tests reads columns")

    def command(self, sql: str, parameters: Mapping[str, Any] | None = None) -> None:
        self._answer()

    def close(self) -> None:
        pass

    def _answer(self) -> None:
        if self.away:
            self.away -= 1
            raise StoreUnavailable("ClickHouse does not answer: refused")


class Recounts:
    """A pass that keeps what it was asked for, and takes its time."""

    def __init__(self, clock: list[int], takes_us: int = 0) -> None:
        self._clock = clock
        self._takes_us = takes_us
        self.due: list[Due] = []

    def settle(self, store: ColumnStore, due: Due) -> None:
        self.due.append(due)
        self._clock[0] += self._takes_us


def _settler(desk: Desk, recounts: Recounts, clock: list[int]) -> Settler:
    config = AggregatorConfig.from_env({"TALLYGATE_SETTLE_ROUND_MS": "50"})
    return Settler(config, lambda: desk, [recounts], logging.getLogger("t.settler"), unix_us=lambda: clock[0])


def test_an_outage_is_waited_out_and_told_once(caplog: pytest.LogCaptureFixture) -> None:
    """The database is restarted now and then: nothing is skipped, and the log is not filled."""
    caplog.set_level(logging.INFO)
    clock = [_NOW_US]
    desk, recounts, stop = Desk([_FIRST], away=3), Recounts(clock), threading.Event()

    class Stopping(Recounts):
        def settle(self, store: ColumnStore, due: Due) -> None:
            super().settle(store, due)
            stop.set()

    recounts = Stopping(clock)
    _settler(desk, recounts, clock).run(stop)
    assert [due.minutes for due in recounts.due] == [[_FIRST]]
    lines = [record.getMessage() for record in caplog.records]
    assert [line.partition(";")[0] for line in lines] == [
        "ClickHouse does not answer: refused",
        next(line for line in lines if "ClickHouse answers again" in line).partition(";")[0],
    ]


def test_progress_is_written_after_the_passes_and_only_if_it_moved() -> None:
    """Written before, a kill would skip what it claims; written always, an idle night would be thousands of rows."""
    clock = [_NOW_US]
    desk = Desk([_FIRST])
    recounts = Recounts(clock)
    settler = _settler(desk, recounts, clock)
    settler.round()
    assert recounts.due[0].version == 7
    assert [(row["version"], row["minutes"]) for row in desk.progress] == [(7, [])]
    clock[0] += 10_000_000
    settler.round()
    assert len(desk.progress) == 1


def test_a_round_takes_more_minutes_as_long_as_it_is_short_and_fewer_when_it_is_long() -> None:
    """A backlog of a day must neither take a day of tiny rounds nor hold up the newest minute for an hour."""
    clock = [_NOW_US]
    quick = Recounts(clock)
    settler = _settler(Desk(range(_FIRST, _FIRST + 1_000)), quick, clock)
    while settler.round():
        pass
    sizes = [len(due.minutes) for due in quick.due]
    assert sizes[:7] == [4, 8, 16, 32, 64, 128, 240]
    assert sum(sizes) == 1_000
    slow = Recounts(clock, takes_us=11_000_000)
    settler = _settler(Desk(range(_FIRST, _FIRST + 20)), slow, clock)
    while settler.round():
        pass
    assert [len(due.minutes) for due in slow.due] == [4, 2, *[1] * 14]


def test_a_backlog_is_told_when_it_begins_and_when_it_is_gone(caplog: pytest.LogCaptureFixture) -> None:
    """Whoever looks at old totals meanwhile should know that they are on their way."""
    caplog.set_level(logging.INFO)
    clock = [_NOW_US]
    settler = _settler(Desk(range(_FIRST, _FIRST + 200)), Recounts(clock), clock)
    while settler.round():
        pass
    assert [record.getMessage().partition(":")[0] for record in caplog.records] == [
        "a backlog of 196 minutes",
        "no backlog any more",
    ]


def test_a_settler_that_stays_late_says_by_how_much_and_one_that_is_not_says_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It gives way to the live path: whoever reads totals must be able to see how old they are."""
    caplog.set_level(logging.INFO)
    clock = [_NOW_US]
    settler = _settler(Desk(range(_FIRST, _FIRST + 14)), Recounts(clock, takes_us=40_000_000), clock)
    while settler.round():
        pass
    lines = [record.getMessage() for record in caplog.records]
    assert [line.partition(",")[0] for line in lines] == [f"{left} minutes wait to be settled" for left in (7, 5, 3, 1)]
    assert "the first since 86010 s; up to 1 are taken in a round" in lines[0]
    clock[0] += 600_000_000
    settler.round()
    assert len(caplog.records) == len(lines)
