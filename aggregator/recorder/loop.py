"""The recorder: reads the log and writes the exact record, and nothing else. The dullest code in the house.

Never computes a total, and never commits an offset before the rows below it are stored. Ended at any point, it reads
again from the last commit, and rows that were stored already are the same rows.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence

from aggregator.config import AggregatorConfig
from aggregator.core.record.letters import DeadLetter
from aggregator.core.record.pending import Pending
from aggregator.recorder.log_reader import LogReader
from aggregator.recorder.standing import standpoint
from aggregator.recorder.writer import Writer
from stream.contract.topics import CONTROL, DECISIONS, GRANTS

TOPICS_READ = (DECISIONS.name, GRANTS.name, CONTROL.name)
#: Messages fetched at a time: few enough that one fetch cannot pass the bound on what is held by much.
_MESSAGES = 64
_POLL_S = 0.02
#: With both buffers full for so long the database is slow or away, and reading stops.
_STUCK_S = 0.5
#: So often it is asked, when nothing comes, whether the topics are still the same logs.
_ASK_S = 5.0
#: How long a stop may take, from when it is noticed (two seconds at most). Supervisors often give fifteen seconds.
_STOP_S = 12.0
#: Of these, what is kept for the last commit; and how long a recorder that fails waits for it.
_LEAVE_S = 3.0


class Recorder:
    """Moves the log into the record, one flush behind the other.

    At any time at most two flushes are held: one that is being written, one that is being filled.

    Args:
        config: broker, group, sizes.
        writer: where flushes go.
        log: where it says what it does.
        unix_us: wall time, for the date on dead letters.
    """

    def __init__(
        self, config: AggregatorConfig, writer: Writer, log: logging.Logger, *, unix_us: Callable[[], int]
    ) -> None:
        self._flush_s = config.flush_ms / 1000
        self._flush_decisions = config.flush_decisions
        self._flush_bytes = config.flush_bytes
        self._writer = writer
        self._log = log
        self._unix_us = unix_us
        self._pending = Pending()
        self._first_at_s = 0.0
        self._full_since_s: float | None = None
        self._asked_at_s = time.monotonic()
        #: Whether another log was found under a topic's name: what was read is stored, then it begins anew.
        self._turning = False
        #: What is recorded and can be committed, of the partitions that are this recorder's now.
        self._recorded: dict[tuple[str, int], int] = {}
        self._reader = LogReader(
            config.kafka,
            config.recorder_group,
            TOPICS_READ,
            session_timeout_ms=config.session_timeout_ms,
            find_standing=standpoint(config.kafka, config.clickhouse, TOPICS_READ).find,
            on_revoked=self._revoked,
            log=log,
        )
        self.recorded_decisions = 0

    def run(self, stop: threading.Event) -> None:
        """Record until told to stop; then store and commit what was read.

        Raises:
            StoreRefused: the database will never take some rows.
            LogUnavailable: the broker refuses this reader for good.
        """
        until_s: float | None = None
        try:
            while not stop.is_set():
                self.step()
            until_s = time.monotonic() + _STOP_S
            self._finish(until_s - _LEAVE_S)
        finally:
            self._writer.abandon()
            within_s = _LEAVE_S if until_s is None else until_s - time.monotonic()
            self._reader.leave(self._recorded, within_s=max(within_s, _LEAVE_S))

    def step(self) -> None:
        """Read what is there, and hand on what is due. Takes a few hundredths of a second when there is nothing."""
        if self._turning:
            self._turn()
            return
        now_s = time.monotonic()
        if not self._full():
            self._full_since_s = None
            self._reader.resume()
            self._read(_MESSAGES, _POLL_S)
        else:
            self._hold(now_s)
        self._commit_written()
        if self._due(time.monotonic()) and not self._writer.busy:
            self._hand_on()

    def _full(self) -> bool:
        return self._pending.decisions >= self._flush_decisions or self._pending.held_bytes >= self._flush_bytes

    def _read(self, most: int, timeout_s: float) -> None:
        messages = self._reader.read(most, timeout_s)
        # Only now: what is pending may have been given up inside `read`.
        was_empty, dead_before = self._pending.empty, len(self._pending.dead_letters)
        if was_empty:
            self._pending = Pending(self._reader.log_ids)
        for message in messages:
            self._pending.take(
                *message.place,
                key=message.key,
                value=message.value,
                seen_at_us=self._unix_us(),
                appended_us=message.appended_us,
            )
        self._say_dead(self._pending.dead_letters[dead_before:])
        self._turning = self._reader.went_back
        if was_empty and not self._pending.empty:
            self._first_at_s = time.monotonic()

    def _say_dead(self, letters: Sequence[DeadLetter]) -> None:
        """One line, however many came at once: the table has each of them."""
        if letters:
            first, more = letters[0], f" (and {len(letters) - 1} more)" if len(letters) > 1 else ""
            place = (first.topic, first.log_partition, first.log_offset)
            self._log.warning("dead letter %s[%d]@%d: %s%s", *place, first.reason, more)

    def _hold(self, now_s: float) -> None:
        """Both buffers are full: wait for the writer, and stay in the group meanwhile."""
        if self._full_since_s is None:
            self._full_since_s = now_s
        if now_s - self._full_since_s < _STUCK_S:
            self._writer.wait(_POLL_S)
            return
        self._reader.pause()
        # What was on its way already may still come; it is taken, and nothing more follows.
        self._read(_MESSAGES, 10 * _POLL_S)

    def _due(self, now_s: float) -> bool:
        if self._pending.empty:
            return now_s - self._asked_at_s >= _ASK_S
        return self._full() or now_s - self._first_at_s >= self._flush_s

    def _hand_on(self) -> None:
        flush, self._pending = self._pending, Pending(self._reader.log_ids)
        self._asked_at_s = time.monotonic()
        self._writer.start(flush)

    def _commit_written(self) -> None:
        written = self._writer.take_written()
        if written is None:
            return
        self.recorded_decisions += written.decisions
        if written.replaced:
            self._log.warning("%s was made anew: reading it from its beginning", written.replaced)
            self._turning = True
        else:
            self._recorded.update(written.next_offsets)
            self._reader.commit(written.next_offsets)

    def _turn(self) -> None:
        """Store what was read of the logs as they were, which nobody can read again; then begin with what is there."""
        if self._writer.busy:
            self._writer.wait(_POLL_S)
            self._commit_written()
        elif not self._pending.empty:
            self._hand_on()
        else:
            self._turning = False
            self._recorded.clear()
            self._reader.start_over()

    def _finish(self, until_s: float) -> None:
        """Store what was read, as far as the database allows until then."""
        while (self._writer.busy or not self._pending.empty) and time.monotonic() < until_s:
            if self._writer.busy:
                self._writer.wait(_POLL_S)
                self._commit_written()
            else:
                self._hand_on()
        if self._writer.busy or not self._pending.empty:
            self._log.warning(
                "stopped before everything that was read was stored: it is not acknowledged, and the "
                "next start reads it again"
            )

    def _revoked(self) -> None:
        """Partitions went to another member: what is not committed is its to record."""
        self._pending = Pending()
        self._recorded.clear()
        self._writer.abandon()
