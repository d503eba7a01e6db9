"""One line in the log every ten seconds that says how the live totals are doing.

Reads counters; changes nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

import faust
from faust.types import TP

from aggregator.worker.job import LiveJob
from stream.contract.topics import DECISIONS

log = logging.getLogger("tallygate.worker")

_EVERY_S = 10.0


class StatusLine:
    """Says it when it is due."""

    def __init__(self, app: faust.App, job: LiveJob, *, now_s: Callable[[], float]) -> None:
        self._app = app
        self._job = job
        self._now_s = now_s
        self._said_s = now_s()
        self._decisions = 0

    def say_if_due(self) -> None:
        """Write the line if ten seconds have passed since the last."""
        now_s = self._now_s()
        if now_s - self._said_s < _EVERY_S:
            return
        stats = self._job.stats
        rate = (stats.decisions - self._decisions) / (now_s - self._said_s)
        self._said_s, self._decisions = now_s, stats.decisions
        log.info(
            "%s decisions (%s/s) in %s blocks, %d partitions, %d messages behind, last flush %.0f ms, %s rows written; "
            "duplicates %d, missing %d, corrupt %d, replayed %d, reopened %d, outgrown %d, "
            "lost offsets %d",
            f"{stats.decisions:,}",
            f"{rate:,.0f}",
            f"{stats.blocks:,}",
            len(self._job.positions),
            self.lag(),
            stats.flush_s * 1000,
            f"{stats.rows:,}",
            stats.duplicates,
            stats.missing_seqs,
            stats.corrupt,
            stats.replays,
            stats.reopened,
            stats.outgrown,
            stats.lost_offsets,
        )

    def lag(self) -> int:
        """Messages that the broker has and that are not counted yet, as far as the client has heard."""
        ends = self._app.monitor.tp_end_offsets
        positions = self._job.positions
        return sum(max(ends.get(TP(DECISIONS.name, partition), 0) - due, 0) for partition, due in positions.items())
