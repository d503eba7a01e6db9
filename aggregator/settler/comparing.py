"""Holds the live totals against the settled ones, and keeps the findings: the alarm that one of the two is wrong.

Never changes a total. Where the live totals leave something out for good reason (what arrived behind a gap), the
finding is right too: as long as it stands, pages read the settled totals of that minute instead. It is no alarm where
what they lack are letters that somebody re-drove.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable

from aggregator.core.settled.agreement import REDRIVEN, Difference, Disagreement, Suspicions
from aggregator.core.settled.settling import Backlog, by_day, covers
from aggregator.settler.table import SettlingTables

#: Minutes compared in one check, newest first, and differences that one check takes; what is cut off waits.
_MOST_MINUTES = 60
_MOST_DIFFERENCES = 100_000
_EVERY_US = 10_000_000
_SHOWN = 3


class LiveComparison:
    """Compares settled minutes, each once, and again as long as they differ."""

    def __init__(self, log: logging.Logger) -> None:
        self._log = log
        self._suspicions = Suspicions()
        self._checked_us = -_EVERY_US

    def check(self, tables: SettlingTables, backlog: Backlog, now_us: int) -> None:
        """One check, if it is time for one and the live totals have come as far as the settled ones.

        Raises:
            StoreUnavailable, StoreRefused: see `Store`; a repetition finds the same.
        """
        if 0 <= now_us - self._checked_us < _EVERY_US:
            return
        self._checked_us = now_us
        standing = tables.open_disagreements(_MOST_DIFFERENCES)
        waiting = sorted(backlog.unchecked, reverse=True)[:_MOST_MINUTES]
        again = sorted({one.difference.minute for one in standing} - backlog.dirty)
        self._suspicions.keep(backlog.unchecked)
        if not waiting and not again:
            return
        live = tables.live_progress()
        if not covers(live, backlog.positions):
            return
        differences, compared = self._differences(tables, {*waiting, *again[-_MOST_MINUTES:]})
        counted = {log: next_offset for log, (next_offset, _) in live.items()}
        judged = self._suspicions.judge(
            [minute for minute in waiting if minute in compared],
            differences,
            live=counted,
            recorded=backlog.positions,
        )
        self._tell(tables, standing, judged.found, backlog.version, now_us)
        self._heal(tables, [one for one in standing if one.difference.minute in compared], differences, now_us)
        backlog.checked(judged.checked)

    def _differences(self, tables: SettlingTables, minutes: Iterable[int]) -> tuple[list[Difference], set[int]]:
        """What differs, and the minutes of which that is all."""
        found: list[Difference] = []
        compared = set[int]()
        for group in by_day(sorted(minutes, reverse=True)):
            left = _MOST_DIFFERENCES - len(found)
            rows = tables.differences(group, left)
            if len(rows) == left:
                # In order of minutes: those before the last one are complete, which must not be none at all.
                cut = rows[-1].minute
                compared.update(minute for minute in group if minute < cut or cut == rows[0].minute == minute)
                return [*found, *(row for row in rows if row.minute in compared)], compared
            found += rows
            compared.update(group)
        return found, compared

    def _tell(
        self,
        tables: SettlingTables,
        standing: Iterable[Disagreement],
        found: Iterable[Difference],
        version: int,
        now_us: int,
    ) -> None:
        known = {(one.difference.minute, one.difference.caller) for one in standing}
        new = [one for one in found if (one.minute, one.caller) not in known]
        if not new:
            return
        driven = _redriven(tables, new)
        tables.write_disagreements(
            [Disagreement(one, now_us, version, REDRIVEN if one in driven else "") for one in new]
        )
        if driven:
            self._log.info("live totals of %d callers' minutes lack decisions that were re-driven", len(driven))
        wrong = [one for one in new if one not in driven]
        if wrong:
            shown = "; ".join(one.words for one in wrong[:_SHOWN])
            more = f" (and {len(wrong) - _SHOWN} more)" if len(wrong) > _SHOWN else ""
            self._log.warning("live and settled totals disagree: %s%s", shown, more)

    def _heal(
        self,
        tables: SettlingTables,
        standing: Iterable[Disagreement],
        differences: Iterable[Difference],
        now_us: int,
    ) -> None:
        still = {(one.minute, one.caller) for one in differences}
        gone = [one for one in standing if (one.difference.minute, one.difference.caller) not in still]
        if gone:
            tables.write_disagreements(gone, gone_us=now_us)
            self._log.info("live and settled totals agree again about %d callers' minutes", len(gone))


def _redriven(tables: SettlingTables, found: Collection[Difference]) -> set[Difference]:
    """Those that letters explain which were re-driven: the copy had gone on, and its live totals never look back."""
    explained = set[Difference]()
    for group in by_day({one.minute for one in found}):
        own = [one for one in found if one.minute in group]
        known = tables.redriven(group, {one.caller for one in own})
        explained.update(one for one in own if one.lacks(*known.get((one.minute, one.caller), (-1, -1))))
    return explained
