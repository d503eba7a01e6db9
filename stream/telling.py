"""What a copy says on the control topic: that it began or ended, where its chain stood, what is lost or inherited.

Each thing is said once. Times are arguments; what is said goes into the outbox, and nothing is sent here.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from enforcer.identity import CopyIdentity
from stream.buffer import REFUSED, Loss
from stream.contract import control
from stream.contract.mapping import Change, control_event
from stream.outbox import Letter, Outbox
from stream.sealing import Sealer

#: How often the end of the chain is told, while it grows.
_ANCHOR_S: Final = 60.0


class Teller:
    """The control events of one copy in one life. Not thread-safe.

    Args:
        identity: of the copy.
        sealer: makes the messages, and knows the chain.
        outbox: takes them.
        now_s: monotonic time.
    """

    def __init__(self, identity: CopyIdentity, sealer: Sealer, outbox: Outbox, *, now_s: float) -> None:
        self._identity = identity
        self._sealer = sealer
        self._outbox = outbox
        self._anchored_s = now_s
        self._anchored_blocks = 0
        self._facts_lost = 0
        self._facts_lost_letter = -1

    def started(self, *, at_us: int) -> None:
        """The copy begins to record."""
        self._say(control.CopyStarted(copy_id=self._identity.copy_id, epoch=self._identity.epoch, at_us=at_us))

    def stopped(self, *, next_seq: int, at_us: int) -> None:
        """The copy ends in order."""
        copy_id, epoch = self._identity.copy_id, self._identity.epoch
        self._say(control.CopyStopped(copy_id=copy_id, epoch=epoch, at_us=at_us, next_seq=next_seq))

    def changes(self, changes: Iterable[Change]) -> None:
        """What the enforcer told of the copy."""
        for change in changes:
            self._say(control_event(change, self._identity))

    def anchor(self, *, now_s: float, at_us: int, ends: bool = False) -> None:
        """Where the chain ends, if it is time for that, unless it was told."""
        if not ends and now_s - self._anchored_s < _ANCHOR_S:
            return
        chain = self._sealer.chain
        self._anchored_s = now_s
        if chain.blocks > self._anchored_blocks:
            self._anchored_blocks = chain.blocks
            self._say(
                control.Anchor(
                    copy_id=self._identity.copy_id,
                    epoch=self._identity.epoch,
                    at_us=at_us,
                    next_seq=chain.next_seq,
                    head=chain.head.hex(),
                    blocks=chain.blocks,
                )
            )

    def lost(self, losses: Iterable[Loss], *, at_us: int) -> None:
        """Decisions will never be on the log."""
        for loss in losses:
            self._outbox.put(replace(self._sealer.control(_lost(self._identity, loss, at_us)), loss=loss))

    def facts_lost(self, total: int, *, at_us: int, ends: bool) -> None:
        """So many facts will never be on the log."""
        # It states a total, so one that still waits is followed by the next only when it has gone.
        is_waiting = self._outbox.letter(self._facts_lost_letter) is not None
        if total > self._facts_lost and (ends or not is_waiting):
            self._facts_lost = total
            copy_id, epoch = self._identity.copy_id, self._identity.epoch
            told = control.FactsLost(copy_id=copy_id, epoch=epoch, at_us=at_us, total=total)
            self._facts_lost_letter = self._say(told)

    def found(self, dead: CopyIdentity, *, next_seq: int | None, at_us: int) -> Letter:
        """The message that says that a copy ended without saying so, and that this one ships what it left."""
        event = control.CopyFound(
            copy_id=dead.copy_id, epoch=dead.epoch, at_us=at_us, by=self._identity.epoch, next_seq=next_seq
        )
        return replace(self._sealer.control(event), heir_of=dead)

    def refused_for(self, dead: CopyIdentity, letter: Letter, *, at_us: int) -> None:
        """The broker will never take a letter of a dead copy: only its heir can still say so."""
        if letter.decisions:
            self._say(_lost(dead, Loss(letter.first_seq, letter.decisions, REFUSED), at_us))

    def _say(self, event: control.AnyControlEvent) -> int:
        return self._outbox.put(self._sealer.control(event))


def _lost(whose: CopyIdentity, loss: Loss, at_us: int) -> control.DecisionsLost:
    return control.DecisionsLost(
        copy_id=whose.copy_id,
        epoch=whose.epoch,
        at_us=at_us,
        first_seq=loss.first_seq,
        count=loss.count,
        cause=loss.cause,
    )
