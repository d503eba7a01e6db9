"""What the limits that decisions name were held to, table `terms`: each distinct row once, when it is first shown.

Works on the blocks' dictionaries, never on single decisions. Reads no clock and does no I/O.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

import numpy as np
import pyarrow as pa

from aggregator.core.record.batches import Batch, Gathered, PlacedBlock, cut
from stream.contract.block import BlockPlan, Int64s, UInt32s

#: Callers that are remembered, at least: about 100 bytes each, and twice as many at most.
_REMEMBERED = 250_000
#: Up to so large a value numbers are told apart by marking them: 32 MiB.
_MARKED = 4_194_304
_CLOSE = 16
#: So many combinations can be numbered.
_COUNTABLE = 2**62
Word = TypeVar("Word", bound=Hashable)


class Held(NamedTuple):
    """The terms that a limit was held to, for whomever."""

    limit: str
    policy_version: int
    plan: BlockPlan


@dataclass(frozen=True, slots=True)
class Shown:
    """Who was held to some terms in a flush, and the block that shows it first."""

    callers: list[str]
    placed: list[PlacedBlock]


class TermsWritten:
    """Which rows of `terms` this process has written. Bounded: what it has forgotten is written again, as it was."""

    def __init__(self, *, remembered: int = _REMEMBERED) -> None:
        self._remembered = remembered
        self._size = 0
        self._lately: dict[Held, set[str]] = {}
        self._before: dict[Held, set[str]] = {}

    def unwritten(self, shown: dict[Held, Shown]) -> list[Batch]:
        """The rows that are to be written of what a flush shows."""
        rows = [(held, caller, placed) for held, one in shown.items() for caller, placed in self._unknown(held, one)]
        if not rows:
            return []
        table = pa.table(
            {
                "caller": pa.array([caller for _, caller, _ in rows], pa.string()),
                "limit": pa.array([held.limit for held, _, _ in rows], pa.string()),
                "policy_version": pa.array([held.policy_version for held, _, _ in rows], pa.uint32()),
                "plan": pa.array([held.plan.name for held, _, _ in rows], pa.string()),
                "rate_per_s": pa.array([held.plan.rate_per_s for held, _, _ in rows], pa.float64()),
                "burst": pa.array([held.plan.burst for held, _, _ in rows], pa.uint32()),
                "per": pa.array([held.plan.per for held, _, _ in rows], pa.string()),
                "log_partition": pa.array([placed.log_partition for _, _, placed in rows], pa.uint16()),
                "log_offset": pa.array([placed.log_offset for _, _, placed in rows], pa.uint64()),
            }
        )
        return [Batch("terms", part) for part in cut(table, np.zeros(len(rows), np.int64))]

    def learn(self, shown: dict[Held, Shown]) -> None:
        """All of these are stored now."""
        for held, one in shown.items():
            lately = self._lately.setdefault(held, set())
            before = len(lately)
            lately.update(one.callers)
            self._size += len(lately) - before
        if self._size > self._remembered:
            self._before, self._lately, self._size = self._lately, {}, 0

    def _unknown(self, held: Held, shown: Shown) -> list[tuple[str, PlacedBlock]]:
        unknown = set(shown.callers) - self._lately.get(held, set()) - self._before.get(held, set())
        if not unknown:
            return []
        return [pair for pair in zip(shown.callers, shown.placed, strict=True) if pair[0] in unknown]


def terms_shown(gathered: Gathered) -> dict[Held, Shown]:
    """Every distinct (caller, terms) of these blocks, each with the block that shows it first."""
    if not gathered.placed:
        return {}
    bases = [one.block.bases for one in gathered.placed]
    limits, limit = _numbered([(one.limits, one.limit) for one in bases])
    plans, plan = _numbered([(one.plans, one.plan) for one in bases])
    versions, version = _versions(np.concatenate([one.policy_version for one in bases]))
    if len(limits) * len(plans) * len(versions) * len(gathered.callers.words) >= _COUNTABLE:
        return _shown_one_by_one(gathered)
    held = (limit * len(plans) + plan) * len(versions) + version
    pairs, first = _distinct(held * len(gathered.callers.words) + gathered.caller_numbers)
    blocks = np.searchsorted(np.cumsum([len(one.caller) for one in bases]), first, side="right")
    number, caller = np.divmod(pairs, len(gathered.callers.words))
    shown: dict[Held, Shown] = {}
    for its in np.unique(number).tolist():
        of_limit, its_version = divmod(its, len(versions))
        its_limit, its_plan = divmod(of_limit, len(plans))
        held_to = Held(limits[its_limit], versions[its_version], plans[its_plan])
        shown[held_to] = _shown(gathered, caller[number == its], blocks[number == its])
    return shown


def _shown_one_by_one(gathered: Gathered) -> dict[Held, Shown]:
    """The same, slowly: for blocks that nobody but a forger writes, whose combinations are beyond counting."""
    first: dict[Held, dict[str, PlacedBlock]] = {}
    for placed in gathered.placed:
        bases = placed.block.bases
        columns = (bases.caller, bases.limit, bases.policy_version, bases.plan)
        for caller, limit, version, plan in zip(*(column.tolist() for column in columns), strict=True):
            held = Held(bases.limits[limit], version, bases.plans[plan])
            first.setdefault(held, {}).setdefault(bases.callers[caller], placed)
    return {held: Shown(list(callers), list(callers.values())) for held, callers in first.items()}


def _shown(gathered: Gathered, callers: Int64s, blocks: Int64s) -> Shown:
    words: list[str] = gathered.callers.words.take(pa.array(callers)).to_pylist()
    return Shown(words, [gathered.placed[number] for number in blocks.tolist()])


def _numbered(lists: Sequence[tuple[Sequence[Word], UInt32s]]) -> tuple[list[Word], Int64s]:
    """Words of many short lists, each once, and the number of the one that each index points to in its own list."""
    numbers: dict[Word, int] = {}
    parts = []
    for words, index in lists:
        own = np.array([numbers.setdefault(word, len(numbers)) for word in words], np.int64)
        parts.append(own[index])
    return list(numbers), np.concatenate(parts)


def _versions(policy_version: UInt32s) -> tuple[Sequence[int], Int64s]:
    """Numbers for policy versions, and the one of each basis: as they are, if they lie close together."""
    low, high = int(policy_version.min()), int(policy_version.max())
    if high - low < _CLOSE:
        return range(low, high + 1), policy_version.astype(np.int64) - low
    versions, places = np.unique(policy_version, return_inverse=True)
    return versions.tolist(), places


def _distinct(values: Int64s) -> tuple[Int64s, Int64s]:
    """Each value once, ascending, and where it stands first."""
    bound = int(values.max()) + 1
    if bound > _MARKED:
        return np.unique(values, return_index=True)
    # Marking costs a tenth of sorting.
    first = np.full(bound, -1, np.int64)
    first[values[::-1]] = np.arange(len(values) - 1, -1, -1)
    found = np.flatnonzero(first >= 0)
    return found, first[found]
