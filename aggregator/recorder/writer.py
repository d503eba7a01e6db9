"""Writes what was read into ClickHouse, in a thread of its own, until all of it is stored.

Never gives up by itself, never commits an offset, and never writes a flush's part twice unless the database left open
whether it has it (then the identity in every row makes the second time harmless).
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TypeVar

from aggregator.broker import LogUnavailable
from aggregator.core.record.batches import Batch, Gathered
from aggregator.core.record.erased import Erased, erased_batches
from aggregator.core.record.letters import DeadLetter
from aggregator.core.record.pending import Pending
from aggregator.core.record.terms import TermsWritten, terms_shown
from aggregator.outage import Outage
from aggregator.recorder.dead_letters import MAX_LETTERS, DeadLetterTopic
from aggregator.recorder.erasures import Erasures
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
        unix_us: wall time, for when a row was stored.
        erasures: knows which callers were erased, and must not be recorded again; None: nobody was.
        log_ids: asks which logs have the topics' names now, topic → id; None does not ask.
    """

    def __init__(
        self,
        open_store: Callable[[], Store],
        dead_letters: DeadLetterTopic,
        log: logging.Logger,
        *,
        unix_us: Callable[[], int],
        erasures: Erasures | None = None,
        log_ids: Callable[[], Mapping[str, str]] | None = None,
    ) -> None:
        self._open_store = open_store
        self._unix_us = unix_us
        self._erasures = erasures
        self._ask_log_ids = log_ids
        self._store: Store | None = None
        self._dead_letters = dead_letters
        self._database = Outage(_CONSEQUENCE, log)
        self._broker = Outage(_CONSEQUENCE, log)
        self._repeats = Repeats()
        self._terms = TermsWritten()
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
        erased = self._known_erased()
        beside = flush.callers_beside if erased.erasures else set[str]()
        left, gone = erased.sift(divided.new)
        new = Gathered(left)
        flush.leave_out(erased)
        # Before `blocks` claims them.
        for batch in erased_batches(gone):
            self._until_stored(partial(self._insert, batch))
        shown = terms_shown(new)
        for batch in self._terms.unwritten(shown):
            self._until_stored(partial(self._insert, batch))
        self._terms.learn(shown)
        for batch in flush.batches(new, erased.sift(divided.conflicting)[0], divided.stored_us):
            self._until_stored(partial(self._insert, batch))
        if self._erasures is not None:
            left_out = {name for one in divided.new for name in one.block.bases.callers} if gone else set[str]()
            left_out |= beside - flush.callers_beside if beside else beside
            self._until_stored(
                partial(self._erasures.note_late, known=erased, callers=lambda: flush.callers, left_out=left_out)
            )
        for start in range(0, len(flush.dead_letters), MAX_LETTERS):
            self._until_sent(flush.dead_letters[start : start + MAX_LETTERS])
        flush.replaced = self._replaced(flush.log_ids)

    def _known_erased(self) -> Erased:
        return Erased() if self._erasures is None else self._until_stored(self._erasures.known)

    def _replaced(self, read: Mapping[str, str]) -> str:
        """The topic that is another log now than the one that was read; empty if none is, or nobody can say.

        Asked after the flush was read: where the id is still the one from before, all of it is of that log.
        """
        if self._ask_log_ids is None:
            return ""
        try:
            now = self._ask_log_ids()
        except LogUnavailable:
            # Nothing new can be read meanwhile, and the next flush asks again.
            return ""
        return next((topic for topic, log_id in read.items() if now.get(topic, log_id) != log_id), "")

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

    def _insert(self, batch: Batch, store: Store) -> None:
        store.insert(batch.table, batch.stamped(self._unix_us()))
