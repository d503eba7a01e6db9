"""Why rows of a block may be missing without a fault: erased on request, or kept no longer. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from aggregator.core.proof.chain import BlockRow
from aggregator.core.proof.holes import Numbers, parts_of

#: Blocks go by the month: what was sealed up to so long before the first that is left may have gone.
_MONTH_US = 31 * 86_400_000_000


@dataclass(frozen=True, slots=True)
class StillKept:
    """Since when what is kept, in unix microseconds; 0: since ever. `dropped`: spans that were dropped by hand."""

    admitted_from_us: int = 0
    decisions_from_us: int = 0
    blocks_from_us: int = 0
    dropped: tuple[tuple[int, int], ...] = ()

    def has_blocks_before(self, block: BlockRow) -> bool:
        """Whether the block before this one must still be there."""
        return block.sealed_at_us >= self.blocks_from_us + _MONTH_US or not self.blocks_from_us

    def all_may_be_gone(self, block: BlockRow) -> bool:
        """Whether any decision of the block may have gone by its age, or with its month."""
        by_hand = any(block.first_at_us < end and block.last_at_us >= start for start, end in self.dropped)
        return by_hand or block.first_at_us < self.decisions_from_us

    def admitted_may_be_gone(self, block: BlockRow) -> bool:
        """Whether its admitted ones may."""
        return block.first_at_us < self.admitted_from_us


@dataclass(frozen=True, slots=True)
class Excused:
    """Missing rows by their reason; `silent` are those without one."""

    erased: int
    expired: int
    silent: list[Numbers]


def excuse(
    block: BlockRow, missing: Sequence[Numbers], *, refused_left: int, erased: Sequence[Numbers], left: StillKept
) -> Excused:
    """Say why rows of a block are missing.

    Args:
        block: of which block.
        missing: its numbers without a row.
        refused_left: refusals among its rows.
        erased: numbers of its life that were erased on request.
        left: since when what is kept.
    """
    gone = 0
    silent: list[Numbers] = []
    for hole in missing:
        declared, rest = parts_of(hole, erased)
        gone += sum(part.count for part in declared)
        silent += rest
    number = sum(part.count for part in silent)
    refusals_are_there = refused_left + gone >= block.refused
    if silent and (left.all_may_be_gone(block) or (left.admitted_may_be_gone(block) and refusals_are_there)):
        return Excused(gone, number, [])
    return Excused(gone, 0, silent)
