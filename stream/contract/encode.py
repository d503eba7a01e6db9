"""Verdicts to the bytes of a block: the gateway's side of the codec, written to cost little per decision.

Reads no clock and talks to nobody. Not thread-safe: one encoder serves one thread.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from enforcer.types import MAX_RECORDED_MS, NEVER_NS, Verdict
from stream.contract import layout
from stream.contract.block import Totals
from stream.contract.columns import Ints
from stream.contract.layout import UnencodableBlock
from stream.contract.names import name_all
from stream.contract.reading import BEST, Reader
from stream.contract.writing import DecisionColumns, Heading, wall_times_us, write_block, write_heartbeat

NOTHING_YET: Final = Totals()


class BlockEncoder:
    """Encodes the blocks of one copy, one after the other.

    Args:
        reader: how the verdicts are read; the blocks are the same with each.
    """

    def __init__(self, reader: Reader = BEST) -> None:
        self._reader = reader

    def encode(
        self,
        verdicts: list[Verdict],
        *,
        copy_id: str,
        epoch: int,
        first_seq: int,
        sealed_at_us: int,
        clock_offset_ns: int,
        prev_hash: bytes = layout.NO_HASH,
        owner_offset_us: int | None = None,
        before: Totals = NOTHING_YET,
    ) -> bytes:
        """Write one block.

        Args:
            verdicts: decisions ``first_seq, first_seq + 1, …`` in that order, at most `layout.MAX_DECISIONS`;
                an empty list makes a heartbeat.
            copy_id: whose decisions they are.
            epoch: in which life of the copy.
            first_seq: seq of the first verdict; of the next one to come if there is none.
            sealed_at_us: wall time now, unix microseconds.
            clock_offset_ns: wall time minus monotonic clock now, nanoseconds: dates the verdicts' `at_ns`.
            prev_hash: the hash of the epoch's block before this one.
            owner_offset_us: the owner's clock minus the wall clock, microseconds; None while it is unknown.
            before: the copy's own totals over all decisions of the epoch before these; `totals_of` the block has them
                with these.

        Raises:
            UnencodableBlock: the verdicts are not contiguous, too many, or one holds a value that has no room.
        """
        _check_run(verdicts, first_seq)
        heading = Heading(copy_id, epoch, first_seq, sealed_at_us, clock_offset_ns, prev_hash, owner_offset_us)
        if not verdicts:
            return write_heartbeat(heading, before)
        bases, basis = self._reader.distinct(verdicts, Verdict.basis)
        decisions = self._decisions(verdicts, basis, clock_offset_ns)
        after = before + totals_of_columns(decisions.cost, decisions.refused)
        return write_block(heading, decisions, name_all(bases, self._reader), after)

    def _decisions(self, verdicts: list[Verdict], basis: Ints, clock_offset_ns: int) -> DecisionColumns:
        reader = self._reader
        at_ns = reader.integers(verdicts, Verdict.at_ns)
        code = reader.integers(verdicts, Verdict.code)
        refused = (code & 15).nonzero()[0]
        return DecisionColumns(
            basis=basis,
            at_us=wall_times_us(at_ns, clock_offset_ns),
            code=code,
            cost=reader.integers(verdicts, Verdict.cost),
            remaining=reader.integers(verdicts, Verdict.remaining),
            refused=refused,
            wait_ms=self._waits_ms([verdicts[place] for place in refused.tolist()], at_ns.take(refused)),
        )

    def _waits_ms(self, refused: list[Verdict], at_ns: Ints) -> Ints:
        """`Verdict.retry_after_ms` of these, which were decided at these times; at most what the record can carry."""
        ready_at_ns = self._reader.integers(refused, Verdict.ready_at_ns)
        waits_ms: Ints = -((at_ns - ready_at_ns) // 1_000_000)
        np.clip(waits_ms, 1, MAX_RECORDED_MS, out=waits_ms)
        waits_ms[ready_at_ns == NEVER_NS] = -1
        return waits_ms


def totals_of_verdicts(verdicts: list[Verdict], reader: Reader = BEST) -> Totals:
    """What verdicts come to that no block will hold; a cost that the log has no room for counts as the nearest."""
    try:
        cost, code = reader.integers(verdicts, Verdict.cost), reader.integers(verdicts, Verdict.code)
    except UnencodableBlock:
        return sum((_totals_of_one(one) for one in verdicts), NOTHING_YET)
    return totals_of_columns(cost.clip(0, layout.U32_MAX), (code & 15).nonzero()[0])


def totals_of_columns(cost: Ints, refused: Ints) -> Totals:
    """What decisions come to whose costs these are, refused at these places."""
    paid = int(cost.sum()) - int(cost.take(refused).sum())
    return Totals(len(cost) - len(refused), len(refused), max(paid, 0))


def _totals_of_one(verdict: Verdict) -> Totals:
    cost: object = verdict.cost
    tokens = min(max(cost, 0), layout.U32_MAX) if isinstance(cost, int) else 0
    return Totals(1, 0, tokens) if verdict.allowed else Totals(0, 1, 0)


def _check_run(verdicts: list[Verdict], first_seq: int) -> None:
    if len(verdicts) > layout.MAX_DECISIONS:
        raise UnencodableBlock(f"{len(verdicts)} decisions in one block; allowed: up to {layout.MAX_DECISIONS}")
    if verdicts and (verdicts[0].seq != first_seq or verdicts[-1].seq != first_seq + len(verdicts) - 1):
        raise UnencodableBlock(
            f"{len(verdicts)} decisions from seq {verdicts[0].seq} to {verdicts[-1].seq};"
            f" allowed: a run without gaps from first_seq {first_seq}"
        )
