"""One copy's record on its way: takes what was captured, cuts, seals, and fills the outbox. Sends nothing itself.

The request path and the asker append to three lists from any thread; everything else belongs to the one thread that
calls `step`. Time is an argument.
"""

from __future__ import annotations

import logging
from typing import Final

from enforcer.identity import CopyIdentity
from enforcer.sink import CostChanged, Event, OwnerClock
from enforcer.types import Verdict
from stream.buffer import (
    DROPPED,
    REFUSED,
    UNACKNOWLEDGED,
    UNENCODABLE,
    UNREADABLE,
    UNSENT,
    DecisionBuffer,
    Loss,
    Run,
    adjoin,
    take_head,
)
from stream.config import StreamConfig
from stream.contract.layout import AT_US_MAX
from stream.contract.mapping import Change
from stream.fault_log import FaultLog
from stream.outbox import Letter, Outbox
from stream.sealing import Fact, Sealer
from stream.telling import Teller

log = logging.getLogger("tallygate.stream")

#: Grants and settlements that wait for the broker at most.
MAX_FACTS: Final = 200_000
#: Changes that wait at most; the newest are dropped beyond it.
_MAX_CHANGES: Final = 10_000


class Shipper:
    """The state behind a sink.

    Attributes:
        captured: verdicts; the request path appends.
        facts: grants and settlements; the asker appends.
        changes: what the copy tells of itself; the asker appends.
        outbox: what is sealed and not delivered.
    """

    def __init__(self, config: StreamConfig, identity: CopyIdentity, *, now_s: float, unix_us: int) -> None:
        self.captured: list[Verdict] = []
        self.facts: list[Fact] = []
        self.changes: list[Change] = []
        self.outbox = Outbox()
        self.delivered = 0
        """Decisions that the broker has acknowledged."""
        self.inherited = 0
        """Decisions of dead copies that the broker has acknowledged."""
        self.facts_delivered = 0
        self.facts_lost = 0
        self._config = config
        self._buffer = DecisionBuffer(config.buffer_limits, now_s=now_s)
        self._faults = FaultLog()
        self._sealer = Sealer(identity, max_message_bytes=config.max_message_bytes, faults=self._faults)
        self._unix_us = unix_us
        self._facts_flushed_s = now_s
        self._teller = Teller(identity, self._sealer, self.outbox, now_s=now_s)
        self._teller.started(at_us=unix_us)

    @property
    def taken(self) -> int:
        """Verdicts that were captured so far."""
        return self._buffer.taken + len(self.captured)

    @property
    def lost(self) -> int:
        """Decisions that will never be on the log; each is named in a loss record."""
        return self._buffer.lost

    @property
    def late(self) -> int:
        """Verdicts that came twice, or after they had been counted as lost."""
        return self._buffer.late

    @property
    def queued(self) -> int:
        """Decisions that wait, here or for the broker; those that are on disk as well are left out."""
        return len(self.captured) + self._buffer.held + self.outbox.decisions

    def step(
        self,
        *,
        now_ns: int,
        unix_us: int,
        partitions: int | None,
        everything: bool = False,
        to_disk: bool = False,
    ) -> None:
        """Move what is due into the outbox.

        Args:
            now_ns: the monotonic clock that dates the verdicts.
            unix_us: the wall clock at the same moment.
            partitions: of the grants topic; None while nobody has said, then facts wait.
            everything: the copy ends: nothing may stay behind.
            to_disk: facts need not wait: they are spooled, and find their partition when it is known.
        """
        now_s = now_ns / 1e9
        self._unix_us = unix_us
        is_full = self._is_full()
        held_elsewhere = self._config.max_held if is_full else self.outbox.decisions
        strange = self._buffer.strange
        self._buffer.add(take_head(self.captured), now_s=now_s, held_elsewhere=held_elsewhere)
        if self._buffer.strange > strange:
            self._faults.note("objects", "the sink takes verdicts only", self._buffer.strange - strange)
        runs = self._buffer.cut(now_s=now_s, everything=everything, heartbeat=not len(self.outbox))
        for run in runs:
            self._seal(run, unix_us, now_ns)
        self._bound_facts()
        if partitions is not None or to_disk:
            self._move_facts(now_s, partitions, everything=everything)
        self._move_changes()
        self._faults.flush()
        if everything or not self._is_full():
            self._tell_losses(unix_us, everything=everything)
        self._teller.anchor(now_s=now_s, at_us=unix_us, ends=everything)
        if everything:
            self._teller.stopped(next_seq=self._buffer.next_seq, at_us=unix_us)

    def settle(self, letter: Letter) -> None:
        """The broker has the letter."""
        if letter.heir_of is not None:
            self.inherited += letter.decisions
            return
        self.delivered += letter.decisions
        self.facts_delivered += letter.facts

    def refuse(self, letter: Letter) -> None:
        """The broker will never take the letter: what it carries is lost, and the record will say so."""
        if letter.heir_of is not None:
            self._teller.refused_for(letter.heir_of, letter, at_us=self._unix_us)
            return
        self.facts_lost += letter.facts
        if letter.decisions:
            self._buffer.lose(Loss(letter.first_seq, letter.decisions, REFUSED))

    def unreadable(self, seqs: list[tuple[int, int]], facts: int) -> None:
        """The disk has lost what only it had: decisions, as first seq and how many, and facts."""
        self.facts_lost += facts
        for first_seq, count in seqs:
            self._buffer.lose(Loss(first_seq, count, UNREADABLE))

    def found(self, dead: CopyIdentity, next_seq: int | None) -> Letter:
        """The message that says that a copy ended without saying so, and that this one ships what it left."""
        return self._teller.found(dead, next_seq=next_seq, at_us=self._unix_us)

    def give_up(self, *, unix_us: int) -> None:
        """The copy ends and time is short: name as lost what is certainly not on the log, while that can be said."""
        for number, letter in self.outbox.unsent():
            if letter.decisions or letter.facts:
                self.outbox.remove(number)
                self.facts_lost += letter.facts
                if letter.decisions:
                    self._buffer.lose(Loss(letter.first_seq, letter.decisions, UNSENT))
        self.facts_lost += len(self.facts)
        self.facts.clear()
        self._tell_losses(unix_us, everything=True)

    def abandon(self, *, now_s: float) -> list[Loss]:
        """The copy ends: count what is left as lost and forget it.

        Returns:
            Every loss that no message on the log names, in order of seq: only the caller can tell anyone.
        """
        self._buffer.add(take_head(self.captured), now_s=now_s)
        for run in self._buffer.cut(now_s=now_s, everything=True, heartbeat=False):
            self._buffer.lose(Loss(run.first_seq, len(run.verdicts), UNSENT))
        untold: list[Loss] = []
        for number, letter in self.outbox.bare():
            if letter.decisions:
                cause = UNACKNOWLEDGED if self.outbox.was_handed_over(number) else UNSENT
                self._buffer.lose(Loss(letter.first_seq, letter.decisions, cause))
            if letter.loss is not None:
                untold.append(letter.loss)
        untold += self._buffer.take_losses()
        self.facts_lost += self.outbox.facts + len(self.facts)
        self.outbox.clear()
        self.facts.clear()
        return adjoin(untold)

    def drop_captured(self, *, now_s: float) -> int:
        """Forget what was captured, because it cannot be shipped; returns how many decisions are lost by that."""
        lost = self._buffer.lost
        self._buffer.add(
            take_head(self.captured), now_s=now_s, held_elsewhere=self._config.max_held, no_room_cause=DROPPED
        )
        return self._buffer.lost - lost

    def _seal(self, run: Run, unix_us: int, now_ns: int) -> None:
        chain = self._sealer.chain
        try:
            letters, losses = self._sealer.seal(
                run,
                sealed_at_us=unix_us,
                clock_offset_ns=unix_us * 1000 - now_ns,
                owner_offset_us=self._sealer.owner_offset_us,
            )
        except Exception as error:  # noqa: BLE001  # a fault of ours must not take the other decisions with it
            self._sealer.skip(run, chain)
            self._faults.note("decisions", error, len(run.verdicts))
            letters, losses = [], [Loss(run.first_seq, len(run.verdicts), UNENCODABLE)] if run.verdicts else []
        for letter in letters:
            self.outbox.put(letter)
        for loss in losses:
            self._buffer.lose(loss)

    def _is_full(self) -> bool:
        config, outbox = self._config, self.outbox
        return outbox.bytes >= config.max_held_bytes or self._buffer.held + outbox.decisions >= config.max_held

    def _bound_facts(self) -> None:
        count = len(self.facts)
        if count > MAX_FACTS:
            del self.facts[MAX_FACTS:count]
            self.facts_lost += count - MAX_FACTS

    def _move_facts(self, now_s: float, partitions: int | None, *, everything: bool) -> None:
        is_due = everything or now_s - self._facts_flushed_s >= self._config.flush_s
        if not self.facts or not is_due or self.outbox.bytes >= self._config.max_held_bytes:
            return
        count = len(self.facts)
        facts = self.facts[:count]
        del self.facts[:count]
        letters, lost = self._sealer.facts(facts, partitions=partitions)
        self.facts_lost += lost
        self._facts_flushed_s = now_s
        if partitions is None:
            # Nobody could say where they go: they wait behind until somebody can.
            self.outbox.divert()
        for letter in letters:
            self.outbox.put(letter)

    def take_event(self, fact: Event) -> None:
        """Take one of the rarer facts of the enforcer, from any thread."""
        if isinstance(fact, OwnerClock):
            # One that no block can say is a clock before 1970 or after 2255, or none: what was known before stands.
            if abs(fact.offset_us) <= AT_US_MAX:
                self._sealer.owner_offset_us = fact.offset_us
        elif isinstance(fact, CostChanged):
            self.facts.append(fact)
        else:
            self.changes.append(fact)

    def _move_changes(self) -> None:
        count = len(self.changes)
        changes = self.changes[:count]
        del self.changes[:count]
        if changes and (self.outbox.bytes >= self._config.max_held_bytes or len(self.outbox) > _MAX_CHANGES):
            log.warning("dropped %d control events: the memory for the record is full", len(changes))
            return
        self._teller.changes(changes)

    def _tell_losses(self, unix_us: int, *, everything: bool) -> None:
        self._teller.lost(self._buffer.take_losses(), at_us=unix_us)
        self._teller.facts_lost(self.facts_lost, at_us=unix_us, ends=everything)
