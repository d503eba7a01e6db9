"""Brings the tables to TALLYGATE_KEEP_… when a recorder starts, and later where a part of it has to wait.

Never holds up the record: what waits is tried again beside it, every minute, until it is in force or the recorder ends.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from contextlib import closing

from aggregator.config import AggregatorConfig
from aggregator.retention.apply import apply
from aggregator.store import Store, StoreRefused, StoreUnavailable
from aggregator.store_clickhouse import ClickHouseStore

_AGAIN_S = 60.0


class Keeping:
    """Applies the retention of one recorder.

    Args:
        config: the settings.
        log: where is told what changed, and why something waits.
        open_store: makes a store; None for that of the settings.
        again_s: how long to wait before what waits is tried again.
    """

    def __init__(
        self,
        config: AggregatorConfig,
        log: logging.Logger,
        *,
        open_store: Callable[[], Store] | None = None,
        again_s: float = _AGAIN_S,
    ) -> None:
        self._config = config
        self._log = log
        self._open_store = open_store or (lambda: ClickHouseStore.open(config.clickhouse))
        self._again_s = again_s
        self._said = ""

    def begin(self, stop: threading.Event) -> threading.Thread | None:
        """Apply it now; what has to wait is applied by the thread that is returned, unless `stop` is set before.

        Raises:
            StoreUnavailable, StoreRefused: the database does not answer, or will never take it.
        """
        if self._applied():
            return None
        # Not joined at exit: a database that hangs must not keep the process from ending.
        thread = threading.Thread(target=self._go_on, args=(stop,), name="retention", daemon=True)
        thread.start()
        return thread

    def _applied(self) -> bool:
        """Apply what can be; whether nothing waits."""
        with closing(self._open_store()) as store:
            applied = apply(store, self._config.keep, recounted_days=self._config.recounted_days)
        for one in applied.changed:
            self._log.info("table %s keeps its rows until %s", one.table, one.to_be)
        if applied.put_off is None:
            return True
        waiting = ", ".join(one.table for one in applied.left)
        if waiting != self._said:
            self._log.warning("%s; kept as they are until then: %s", applied.put_off, waiting)
            self._said = waiting
        return False

    def _go_on(self, stop: threading.Event) -> None:
        while not stop.wait(self._again_s):
            try:
                if self._applied():
                    return
            except StoreUnavailable as fault:
                self._log.info("the retention of the raw record still waits: %s", fault)
            except StoreRefused as fault:
                self._log.error("the retention of the raw record is not in force: %s", fault)
                return
