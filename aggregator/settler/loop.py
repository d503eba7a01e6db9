"""The settler: reads the journal, recounts the minutes that are due, then writes down how far it has come.

Ended at any point, it repeats work and never skips any: the progress is written after everything that it claims. Never
needed twice; two at once, or a frozen one that wakes up, write the same totals or older versions, which lose.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from datetime import UTC, datetime

from aggregator.config import AggregatorConfig
from aggregator.core.settled.settling import DAY_US, MINUTE_US, Backlog, Log, Progress, by_day
from aggregator.outage import Outage
from aggregator.retention.kept import kept
from aggregator.settler.comparing import LiveComparison
from aggregator.settler.erasures import Erasures
from aggregator.settler.passes.due import Due, Pass
from aggregator.settler.passes.totals import DayTotals
from aggregator.settler.quarters import QuarterTotals
from aggregator.settler.table import SettlingTables
from aggregator.store import ColumnStore, StoreUnavailable

_CONSEQUENCE = "minutes wait to be settled meanwhile, and none is forgotten"
#: Logs and partitions that the journal has named for the first time are looked for this often.
_LOGS_US = 30_000_000
#: Minutes in one round at most; fewer where a round takes long, so that a stop or a fresh minute never waits for a day.
_MOST_MINUTES = 240
_SHORT_US, _LONG_US = 2_000_000, 10_000_000
#: A settler that is later than the first is late, and says so as often as the second.
_LATE_US, _SAY_LATE_US = 60_000_000, 60_000_000
#: A backlog of so many closed minutes is worth a line when it begins and when it is gone.
_BACKLOG = 60


class Settler:
    """Moves closed minutes from the record into the settled totals.

    Args:
        config: grace, how far back raw decisions are kept, the pause between rounds.
        open_store: makes a store; called again after an outage at start.
        passes: what is computed of each closed minute, in this order.
        log: where outages, backlogs and findings are told.
        unix_us: wall time; an argument of every rule here.
        from_us: minutes before are let go, and none after, however long it takes; None: as the settings say. A replay
            gives it, which takes over what is older.
    """

    def __init__(
        self,
        config: AggregatorConfig,
        open_store: Callable[[], ColumnStore],
        passes: Sequence[Pass],
        log: logging.Logger,
        *,
        unix_us: Callable[[], int],
        from_us: int | None = None,
    ) -> None:
        self._config = config
        self._open_store = open_store
        self._passes = passes
        self._days = DayTotals()
        self._quarters = QuarterTotals()
        self._comparison = LiveComparison(log)
        self._erasures = Erasures(log)
        self._database = Outage(_CONSEQUENCE, log)
        self._log = log
        self._unix_us = unix_us
        self._from_us = from_us
        self._tables: SettlingTables | None = None
        self._backlog: Backlog | None = None
        self._written = Progress()
        self._logs: set[Log] = set()
        self._logs_us = -_LOGS_US
        self._most = 4
        self._behind = False
        self._late_us: int | None = None
        self.settled_minutes = 0

    def run(self, stop: threading.Event) -> None:
        """Settle until told to stop; a round that is under way is finished first.

        Raises:
            StoreRefused: the database will never run some statement.
        """
        while not stop.is_set():
            try:
                more = self.round()
            except StoreUnavailable as fault:
                stop.wait(self._database.failed(fault))
            else:
                self._database.worked("ClickHouse answers")
                if not more:
                    stop.wait(self._config.settle_round_ms / 1000)

    def round(self) -> bool:
        """Read the journal and settle what is due, within bounds; whether more is due already.

        Raises:
            StoreUnavailable: the round is to be repeated; what it had stored stays, and is found unchanged.
            StoreRefused: see `run`.
        """
        tables, backlog = self._opened()
        started_us = self._unix_us()
        erased = self._erasures.known(tables.store, started_us)
        self._read_journal(tables, backlog, started_us)
        self._let_go(tables, backlog, started_us)
        minutes = backlog.due(started_us, self._most)
        version = backlog.version
        for group in by_day(minutes):
            self._settle(tables, backlog, Due(group, version, self._unix_us(), erased))
        for day, since in backlog.days_due(started_us):
            self._days.settle(tables.store, day, since=since, version=version, at_us=self._unix_us())
            backlog.day_settled(day)
        self._quarters.settle(tables, backlog, minutes, self._unix_us())
        self._comparison.check(tables, backlog, self._unix_us())
        self._write_progress(tables, backlog)
        self._heed_erasures(tables, backlog)
        self._adapt(len(minutes), self._unix_us() - started_us)
        self._tell_late(backlog)
        return self._remaining(backlog)

    def _opened(self) -> tuple[SettlingTables, Backlog]:
        if self._tables is None:
            self._tables = SettlingTables(self._open_store())
        if self._backlog is None:
            self._written = self._tables.progress()
            self._backlog = Backlog(self._written, grace_us=self._config.settle_grace_s * 1_000_000)
            self._logs.update(self._written.positions)
        return self._tables, self._backlog

    def _read_journal(self, tables: SettlingTables, backlog: Backlog, now_us: int) -> None:
        if not 0 <= now_us - self._logs_us < _LOGS_US:
            self._logs.update(tables.logs(self._logs))
            self._logs_us = now_us
        for log in sorted(self._logs):
            news = tables.news(log, backlog.positions.get(log, 0))
            if news is not None:
                backlog.note(log, *news)

    def _let_go(self, tables: SettlingTables, backlog: Backlog, now_us: int) -> None:
        from_us, dropped = self._whole(tables, backlog, now_us)
        gone = backlog.too_late(from_us, dropped)
        if gone:
            tables.write_too_late(gone, backlog.version, now_us)
            self._quarters.reopen(tables.store, gone, backlog.version, now_us)
            backlog.let_go(gone)
            self._log.warning(
                "%d minutes changed that began before %s or whose raw decisions were dropped, %s first: some of theirs "
                "may be gone, so they are not recounted, and keep the totals that they had (TALLYGATE_SETTLE_DAYS, "
                "TALLYGATE_KEEP_…)", len(gone), _minute_words(from_us // MINUTE_US), _minute_words(gone[0]),
            )  # fmt: skip

    def _whole(self, tables: SettlingTables, backlog: Backlog, now_us: int) -> tuple[int, Sequence[tuple[int, int]]]:
        """Since when minutes are recounted, and the spans that were dropped since; only days that are over can be.

        A database in which no retention was ever in force has all of its raw decisions: these are settled first, as far
        back as their totals are kept.
        """
        if self._from_us is not None:
            return self._from_us, ()
        if min(backlog.dirty, default=now_us) * MINUTE_US >= now_us // DAY_US * DAY_US:
            return 0, ()
        record = kept(tables.store)
        days = self._config.recounted_days if record.limited else self._config.keep.minutes_days
        return max(record.admitted_from_us, now_us - days * DAY_US), record.dropped

    def _settle(self, tables: SettlingTables, backlog: Backlog, due: Due) -> None:
        for one in self._passes:
            one.settle(tables.store, due)
        backlog.settled(due.minutes, due.version, due.at_us)
        self.settled_minutes += len(due.minutes)

    def _heed_erasures(self, tables: SettlingTables, backlog: Backlog) -> None:
        """Delete what was written too late, and count the minutes again in which erasures that are done end."""
        now_us = self._unix_us()
        for one in self._erasures.look(tables.store, now_us):
            minute = one.erased_before_us // MINUTE_US
            start_us, end_us = minute * MINUTE_US, (minute + 1) * MINUTE_US
            is_ours = backlog.version and (self._from_us or 0) <= start_us and end_us <= now_us
            if is_ours and kept(tables.store).whole(start_us, end_us):
                self._quarters.reopen(tables.store, [minute], backlog.version, now_us)
                backlog.again(minute)

    def _write_progress(self, tables: SettlingTables, backlog: Backlog) -> None:
        progress = backlog.progress
        if progress != self._written:
            tables.write_progress(progress, self._unix_us())
            self._written = progress

    def _adapt(self, minutes: int, took_us: int) -> None:
        """Take as many minutes into the next round as this one shows to be a matter of seconds."""
        if took_us > _LONG_US:
            self._most = max(1, self._most // 2)
        elif took_us < _SHORT_US and minutes == self._most:
            self._most = min(_MOST_MINUTES, self._most * 2)

    def _tell_late(self, backlog: Backlog) -> None:
        """How far it is behind, once it has been late for a while, and until it is not."""
        now_us = self._unix_us()
        behind_us = backlog.behind_us(now_us)
        if behind_us <= _LATE_US or self._late_us is None:
            self._late_us = now_us
        elif now_us - self._late_us >= _SAY_LATE_US:
            self._late_us = now_us
            self._log.info(
                "%d minutes wait to be settled, the first since %d s; up to %d are taken in a round",
                len(backlog.dirty), behind_us // 1_000_000, self._most,
            )  # fmt: skip

    def _remaining(self, backlog: Backlog) -> bool:
        left = len(backlog.due(self._unix_us(), _BACKLOG))
        if (left >= _BACKLOG) != self._behind and (left >= _BACKLOG or not left):
            self._behind = not self._behind
            if self._behind:
                self._log.info("a backlog of %d minutes: the newest first, then the oldest", len(backlog.dirty))
            else:
                self._log.info("no backlog any more")
        return bool(left)


def _minute_words(minute: int) -> str:
    return f"{datetime.fromtimestamp(minute * MINUTE_US / 1e6, UTC):%Y-%m-%dT%H:%MZ}"
