"""Workers of both stages as processes, and what the `signals` table says, for tests on real engines."""

from __future__ import annotations

from pathlib import Path

from tests.integration.aggregator.counting import Counting, WorkerProcess
from tests.logfill import Fill
from tests.processes import wait_until

_LIMIT_S = 120.0


class Signalling(Counting):
    """A broker with topics, a database with tables, and any number of workers of both stages."""

    def __init__(self, bootstrap: str, dsn: str, folder: Path) -> None:
        super().__init__(bootstrap, dsn, folder)
        self._second = 0

    def second_stage(self, **settings: str) -> WorkerProcess:
        """Start one more worker of the second stage."""
        self._second += 1
        return self.worker(
            module="aggregator.signals",
            TALLYGATE_SIGNALS_FLUSH_MS="100",
            # Every caller has rows of its own.
            TALLYGATE_SIGNALS_FLOOR="1",
            **settings,
        )

    def signalled(self) -> int:
        """Decisions that the callers' rows speak of."""
        return int(self.store.rows("SELECT sum(offered) FROM signals FINAL WHERE kind = 'caller'")[0][0])

    def wait_signalled(self, decisions: int, timeout_s: float = _LIMIT_S) -> None:
        """Return once the second stage speaks of so many decisions, at least."""
        what = f"{decisions:,} decisions in signals"
        wait_until(lambda: self.signalled() >= decisions, timeout_s, what=what, poll_s=0.1)

    def by_kind(self, kind: str) -> int:
        """Decisions that the rows of one kind speak of."""
        return int(self.store.rows(f"SELECT sum(offered) FROM signals FINAL WHERE kind = '{kind}'")[0][0])


def assert_same(made: Signalling, fill: Fill) -> None:
    """`signals` says of every caller and minute what the log says: totals, copies reached, early returns."""
    said = made.store.rows(
        "SELECT caller, sum(offered), sum(admitted), sum(cost_offered), max(k) FROM signals FINAL "
        "WHERE kind = 'caller' GROUP BY caller"
    )
    totals = fill.totals()
    assert {caller: (offered, admitted, cost) for caller, offered, admitted, cost, _ in said} == {
        caller: (sums.offered, sums.admitted, sums.cost) for caller, sums in totals.by_caller.items()
    }
    minutes = made.store.rows(
        "SELECT caller, toUInt32(minute) AS at, k, early_returns, offered FROM signals FINAL WHERE kind = 'caller' "
        "ORDER BY caller, at"
    )
    counted = made.store.rows(
        "SELECT caller, toUInt32(minute) AS at, length(groupUniqArrayArray(copies)), sum(early_returns), sum(offered) "
        "FROM live FINAL WHERE kind IN ('usage', 'caller') GROUP BY caller, at ORDER BY caller, at"
    )
    assert minutes == counted
    assert sum(early for _, _, _, early, _ in minutes) > 0
    assert made.by_kind("fleet") == totals.decisions
