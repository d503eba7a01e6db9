"""The decisions of one copy between the request path and the log: which may be sealed now, and which are lost.

Pure bookkeeping over (state, verdicts, time): no thread, no clock, no Kafka. Whatever comes in, each seq from 0 on
comes out exactly once, either in a run or in a loss.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from operator import attrgetter
from typing import Final

import numpy as np

from enforcer.types import Verdict
from stream.contract.block import Totals
from stream.contract.codec import NOTHING_YET, totals_of_verdicts
from stream.contract.layout import UnencodableBlock
from stream.contract.reading import BEST

_seq_of = attrgetter("seq")

#: Causes of a loss, as they stand in the record.
OVERFLOW: Final = "the log was away and the copy's memory for decisions was full"
HOLE: Final = "the decision was numbered but never handed over"
UNENCODABLE: Final = "the decision holds a value that the log has no room for"
REFUSED: Final = "the broker refused the block"
DROPPED: Final = "the copy could not ship its record and dropped what it had not looked at"
UNREADABLE: Final = "the copy kept the block on disk, and the disk lost it"
UNSENT: Final = "the copy ended before the block could be sent"
UNACKNOWLEDGED: Final = "the copy ended before the broker acknowledged the block: it may be on the log all the same"


@dataclass(frozen=True, slots=True)
class Loss:
    """Decisions ``first_seq … first_seq + count - 1`` will never be on the log."""

    first_seq: int
    count: int
    cause: str


@dataclass(frozen=True, slots=True)
class Run:
    """Decisions of one block to be, without gaps; an empty one is a heartbeat that stands before `first_seq`.

    Attributes:
        first_seq: seq of the first one.
        verdicts: the decisions.
        lost_before: what the decisions came to that were lost between the run before it and this one.
    """

    first_seq: int
    verdicts: list[Verdict]
    lost_before: Totals = NOTHING_YET


@dataclass(frozen=True, slots=True)
class BufferLimits:
    """When a block is cut, and how long and how much is held back.

    Attributes:
        block_decisions: a block is cut as soon as it has so many decisions.
        flush_s: a smaller one is cut once its first decision has waited so long.
        heartbeat_s: an idle copy says so in an empty block after so long.
        hold_back_s: how long later decisions wait for a missing one before it counts as lost.
        max_held: most decisions that may wait, here and for the broker together; the newest are dropped beyond it.
    """

    block_decisions: int
    flush_s: float
    heartbeat_s: float
    hold_back_s: float
    max_held: int


def take_head(captured: list[Verdict]) -> list[Verdict]:
    """Take what has been captured so far, while other threads go on appending.

    Each of the two statements is one step under the GIL, and appends only ever touch the end.
    """
    count = len(captured)
    batch = captured[:count]
    del captured[:count]
    return batch


class DecisionBuffer:
    """Puts verdicts in order of seq and cuts them into runs. Not thread-safe: the shipping thread owns it."""

    def __init__(self, limits: BufferLimits, *, now_s: float) -> None:
        self._limits = limits
        self._next_seq = 0
        self._runs: deque[Run] = deque()
        self._ahead: list[Verdict] = []
        self._hole_since_s: float | None = None
        self._oldest_s: float | None = None
        self._last_cut_s = now_s
        self._losses: list[Loss] = []
        self._waiting = 0
        self._no_room_cause = OVERFLOW
        self._lost_since = NOTHING_YET
        self.taken = 0
        """Verdicts that came in."""
        self.lost = 0
        """Decisions that are named in losses."""
        self.late = 0
        """Verdicts that came twice, or after they had been counted as lost: dropped, the record has its answer."""
        self.strange = 0
        """Objects that came in and are no numbered verdicts: dropped, and not counted in `taken`."""

    @property
    def next_seq(self) -> int:
        """One past the last decision that is settled: in a run or in a loss."""
        return self._next_seq

    @property
    def held(self) -> int:
        """Decisions that wait here."""
        return self._waiting + len(self._ahead)

    def add(
        self, batch: list[Verdict], *, now_s: float, held_elsewhere: int = 0, no_room_cause: str = OVERFLOW
    ) -> None:
        """Take verdicts, in whatever order several threads left them.

        Args:
            batch: what was captured since the last call.
            now_s: monotonic time.
            held_elsewhere: sealed decisions that the broker has not acknowledged.
            no_room_cause: what the record says of decisions for which there is no room.
        """
        self._no_room_cause = no_room_cause
        is_run = _is_run(batch, self._next_seq)
        if not is_run:
            numbered = [one for one in batch if _is_numbered(one)]
            self.strange += len(batch) - len(numbered)
            batch = numbered
        self.taken += len(batch)
        if batch:
            if self._ahead or not is_run:
                batch = self._ahead + batch
                batch.sort(key=_seq_of)
                batch, self._ahead = self._split(batch)
            self._append(batch, now_s, held_elsewhere)
        self._watch_hole(now_s, held_elsewhere)

    def cut(self, *, now_s: float, everything: bool = False, heartbeat: bool = True) -> list[Run]:
        """Take the runs that are due: full ones, and a part-filled one that has waited.

        Args:
            now_s: monotonic time.
            everything: take all that is here; a hole that is still open counts as lost.
            heartbeat: whether an idle copy may say so now.
        """
        if everything and self._ahead:
            self._give_up_hole(now_s, 0)
        due = everything or (self._oldest_s is not None and now_s - self._oldest_s >= self._limits.flush_s)
        runs: list[Run] = []
        while self._runs and (due or len(self._runs) > 1 or self._is_full(self._runs[0])):
            runs.append(self._runs.popleft())
        if heartbeat and not runs and not self._runs and now_s - self._last_cut_s >= self._limits.heartbeat_s:
            runs.append(Run(self._next_seq, [], self._take_lost()))
        if runs:
            self._last_cut_s = now_s
            self._waiting -= sum(len(run.verdicts) for run in runs)
            self._oldest_s = now_s if self._runs else None
        return runs

    def lose(self, loss: Loss) -> None:
        """Name decisions as lost that had already left in a run."""
        self._note(loss)

    def take_losses(self) -> list[Loss]:
        """Take the losses since the last call; adjacent ones of one cause are one."""
        losses, self._losses = self._losses, []
        return losses

    def _is_full(self, run: Run) -> bool:
        return len(run.verdicts) >= self._limits.block_decisions

    def _split(self, batch: list[Verdict]) -> tuple[list[Verdict], list[Verdict]]:
        """Split sorted verdicts into the run that continues the record and what lies beyond a hole."""
        expected = self._next_seq
        run: list[Verdict] = []
        ahead: list[Verdict] = []
        beyond = -1
        for verdict in batch:
            if verdict.seq == expected:
                run.append(verdict)
                expected += 1
            elif verdict.seq < expected or verdict.seq == beyond:
                self.late += 1
            else:
                ahead.append(verdict)
                beyond = verdict.seq
        return run, ahead

    def _append(self, run: list[Verdict], now_s: float, held_elsewhere: int) -> None:
        """Settle a run that begins at `next_seq`: keep what there is room for, lose the rest."""
        if not run:
            return
        first_seq = self._next_seq
        self._next_seq += len(run)
        room = max(self._limits.max_held - held_elsewhere - self._waiting, 0)
        if room < len(run):
            self._note(Loss(first_seq + room, len(run) - room, self._no_room_cause))
            run, lost = run[:room], run[room:]
            if run:
                self._hold(first_seq, run, now_s)
            # Whoever comes next begins a run of its own: what was lost here is before that one.
            self._lost_since += totals_of_verdicts(lost)
        else:
            self._hold(first_seq, run, now_s)

    def _hold(self, first_seq: int, run: list[Verdict], now_s: float) -> None:
        self._keep(first_seq, run)
        self._waiting += len(run)
        if self._oldest_s is None:
            self._oldest_s = now_s

    def _keep(self, first_seq: int, verdicts: list[Verdict]) -> None:
        """Fill the last run up to a block and begin others: each verdict is copied once, however many there are."""
        size = self._limits.block_decisions
        at = 0
        last = self._runs[-1] if self._runs else None
        if last is not None and last.first_seq + len(last.verdicts) == first_seq:
            at = size - len(last.verdicts)
            last.verdicts.extend(verdicts[:at])
        for start in range(at, len(verdicts), size):
            self._runs.append(Run(first_seq + start, verdicts[start : start + size], self._take_lost()))

    def _take_lost(self) -> Totals:
        lost, self._lost_since = self._lost_since, NOTHING_YET
        return lost

    def _watch_hole(self, now_s: float, held_elsewhere: int) -> None:
        if not self._ahead:
            self._hole_since_s = None
            return
        if self._hole_since_s is None:
            self._hole_since_s = now_s
        is_old = now_s - self._hole_since_s >= self._limits.hold_back_s
        if is_old or self.held + held_elsewhere > self._limits.max_held:
            self._give_up_hole(now_s, held_elsewhere)

    def _give_up_hole(self, now_s: float, held_elsewhere: int) -> None:
        ahead, self._ahead = self._ahead, []
        start = 0
        for end in range(1, len(ahead) + 1):
            if end < len(ahead) and ahead[end].seq == ahead[end - 1].seq + 1:
                continue
            first_seq = ahead[start].seq
            self._note(Loss(self._next_seq, first_seq - self._next_seq, HOLE))
            self._next_seq = first_seq
            self._append(ahead[start:end], now_s, held_elsewhere)
            start = end
        self._hole_since_s = None

    def _note(self, loss: Loss) -> None:
        self.lost += loss.count
        _join(self._losses, loss)


def adjoin(losses: Iterable[Loss]) -> list[Loss]:
    """The losses in order of seq; adjacent ones of one cause are one."""
    joined: list[Loss] = []
    for loss in sorted(losses, key=lambda loss: loss.first_seq):
        _join(joined, loss)
    return joined


def _join(losses: list[Loss], loss: Loss) -> None:
    last = losses[-1] if losses else None
    if last is not None and last.cause == loss.cause and last.first_seq + last.count == loss.first_seq:
        losses[-1] = Loss(last.first_seq, last.count + loss.count, loss.cause)
    else:
        losses.append(loss)


def _is_numbered(one: object) -> bool:
    """Whether it is a verdict with a seq: whoever calls the sink may hand over anything."""
    seq: object = one.seq if isinstance(one, Verdict) else None
    return isinstance(seq, int) and seq >= 0


def _is_run(batch: list[Verdict], first_seq: int) -> bool:
    """Whether these are verdicts numbered ``first_seq, first_seq + 1, …`` as they stand."""
    try:
        seqs = BEST.integers(batch, Verdict.seq)
    except (AttributeError, TypeError, UnencodableBlock):
        return False
    return bool((seqs == np.arange(first_seq, first_seq + len(batch))).all())
