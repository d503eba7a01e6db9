"""Writes what was read into ClickHouse, in a thread of its own, until all of it is stored.

Never gives up by itself, never commits an offset, and never writes a flush's part twice unless the database left open
whether it has it (then the identity in every row makes the second time harmless).
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

from aggregator.broker import LogUnavailable
from aggregator.core.fact_batches import DeadLetter
from aggregator.core.pending import Pending
from aggregator.core.record_batches import Batch
from aggregator.outage import Outage
from aggregator.recorder.dead_letters import MAX_LETTERS, DeadLetterTopic
from aggregator.recorder.repeats import Repeats
from aggregator.store import Store, StoreUnavailable

_CONSEQUENCE = "nothing is acknowledged meanwhile, and the log keeps what comes"
_Outcome = TypeVar("_Outcome")


class _AbandonedError(Exception):
    """The flush is nobody's any more."""


class Writer:
    """Writes one flush at a time.

    Args:
        open_store: makes a store; called in the writing thread, and again after an outage at start.
        dead_letters: where unreadable messages go besides their table.
        log: where outages are told.
    """

    def __init__(self, open_store: Callable[[], Store], dead_letters: DeadLetterTopic, log: logging.Logger) -> None:
        self._open_store = open_store
        self._store: Store | None = None
        self._dead_letters = dead_letters
        self._database = Outage(_CONSEQUENCE, log)
        self._broker = Outage(_CONSEQUENCE, log)
        self._repeats = Repeats()
        #: Whether others may have recorded something since, of which `_repeats` knows nothing.
        self._stale = False
        self._abandon = threading.Event()
        self._done = threading.Event()
        self._fault: BaseException | None = None
        self._flush: Pending | None = None

    @property
    def busy(self) -> bool:
        """Whether a flush was given and not yet fetched by `take_written`."""
        return self._flush is not None

    def start(self, flush: Pending) -> None:
        """Begin to write a flush; there must be none under way."""
        if self._flush is not None:
            raise RuntimeError("a flush is under way")
        if self._stale:
            self._repeats.forget()
            self._stale = False
        self._flush, self._fault = flush, None
        self._abandon.clear()
        self._done.clear()
        # Not joined at exit: a database that hangs must not keep the process from ending.
        threading.Thread(target=self._run, args=(flush,), name="record-writer", daemon=True).start()

    def wait(self, timeout_s: float) -> bool:
        """Wait for the flush under way; whether it is finished."""
        return self._done.wait(timeout_s)

    def take_written(self) -> Pending | None:
        """The flush whose rows are all stored, once; None while there is none, or if it was abandoned.

        Raises:
            StoreRefused: the database will never take these rows.
        """
        if self._flush is None or not self._done.is_set():
            return None
        flush, self._flush = self._flush, None
        if isinstance(self._fault, _AbandonedError) or self._abandon.is_set():
            return None
        if self._fault is not None:
            raise self._fault
        return flush

    def abandon(self) -> None:
        """Partitions moved: try no more for a flush under way, never report it, and trust no memory of the record."""
        self._stale = True
        self._abandon.set()

    def _run(self, flush: Pending) -> None:
        try:
            self._write(flush)
        except BaseException as fault:  # noqa: BLE001  (handed to the thread that asks, which raises it)
            self._fault = fault
        finally:
            self._done.set()

    def _write(self, flush: Pending) -> None:
        divided = self._until_stored(lambda store: self._repeats.sort_out(store, flush.blocks))
        for batch in flush.batches(divided.new, divided.conflicting):
            self._until_stored(partial(_insert, batch))
        for start in range(0, len(flush.dead_letters), MAX_LETTERS):
            self._until_sent(flush.dead_letters[start : start + MAX_LETTERS])

    def _until_stored(self, act: Callable[[Store], _Outcome]) -> _Outcome:
        while True:
            try:
                if self._store is None:
                    self._store = self._open_store()
                outcome = act(self._store)
            except StoreUnavailable as fault:
                self._pause(self._database.failed(fault))
            else:
                self._database.worked("ClickHouse takes rows")
                return outcome

    def _until_sent(self, letters: Sequence[DeadLetter]) -> None:
        while True:
            try:
                self._dead_letters.send(letters)
            except LogUnavailable as fault:
                self._pause(self._broker.failed(fault))
            else:
                self._broker.worked("Kafka takes dead letters")
                return

    def _pause(self, delay_s: float) -> None:
        if self._abandon.wait(delay_s):
            raise _AbandonedError


def _insert(batch: Batch, store: Store) -> None:
    store.insert(batch.table, batch.rows)
