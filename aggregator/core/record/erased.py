"""Callers that were erased: whose decisions must not come back, and which numbers of which block are gone.

Knows no names, only their hashes, and remembers of the names that it is asked for whether they were erased. Reads no
clock and talks to no database.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from aggregator.core.record.batches import Batch, PlacedBlock
from aggregator.core.record.facts import PlacedControl, PlacedFacts
from aggregator.core.record.repeats import slice_of

HASH_BYTES = 16
#: How the mark begins that stands in place of an erased name; the erasure's id follows.
MARK = "erased:"
#: Names remembered; beyond, all are asked again.
_MOST_NAMES = 200_000
_SCHEMA = pa.schema(
    {
        "copy_id": pa.string(),
        "epoch": pa.uint64(),
        "first_seq": pa.uint64(),
        "log_partition": pa.uint16(),
        "log_offset": pa.uint64(),
        "erasure_id": pa.uint64(),
        "decisions": pa.uint32(),
        "firsts": pa.list_(pa.uint64()),
        "counts": pa.list_(pa.uint32()),
    }
)


@dataclass(frozen=True, slots=True)
class Erasure:
    """One erasure: everything of one caller before a time (unix microseconds). The name is not in it."""

    erasure_id: int
    erased_before_us: int
    salt: bytes
    who_hash: bytes

    def is_of(self, caller: str) -> bool:
        """Whether this caller was erased."""
        return self.who_hash == who_hash(self.salt, caller)


def who_hash(salt: bytes, caller: str) -> bytes:
    """BLAKE2b-128 of a caller's name under a salt of 16 bytes."""
    return hashlib.blake2b(caller.encode(), digest_size=HASH_BYTES, salt=salt).digest()


def mark_of(erasure_id: int) -> str:
    """What stands in place of an erased name in decisions of others, which stay."""
    return f"{MARK}{erasure_id:016x}"


@dataclass(frozen=True, slots=True)
class ErasedPart:
    """Decisions of one block that are gone: their numbers, ascending, each once."""

    copy_id: str
    epoch: int
    log_partition: int
    log_offset: int
    erasure_id: int
    seqs: npt.NDArray[np.uint64]


class Erased:
    """Keeps what was erased from being recorded again. Used by one thread."""

    def __init__(self, erasures: Iterable[Erasure] = ()) -> None:
        self.erasures = frozenset(erasures)
        self._known: dict[str, Erasure | None] = {}

    def of(self, caller: str) -> Erasure | None:
        """The latest erasure of a caller; None if it was never erased."""
        if not self.erasures:
            return None
        if caller not in self._known:
            if len(self._known) >= _MOST_NAMES:
                self._known.clear()
            found = [one for one in self.erasures if one.is_of(caller)]
            self._known[caller] = max(found, key=lambda one: one.erased_before_us, default=None)
        return self._known[caller]

    def holds(self, caller: str, at_us: int, appended_us: int | None = None) -> bool:
        """Whether what happened to a caller at a time was erased.

        `at_us` may be by the clock of a copy that is ahead; what the broker had appended by then had happened.
        """
        found = self.of(caller)
        known_us = at_us if appended_us is None else min(at_us, appended_us)
        return found is not None and known_us < found.erased_before_us

    def since(self, from_us: int) -> Erased:
        """Only the erasures that reach beyond a time (unix microseconds): no other matters to what is from then on."""
        return Erased(one for one in self.erasures if one.erased_before_us > from_us)

    def gone(self, names: Sequence[str], whose: Any, at_us: Any) -> Any:
        """Which rows were erased, [rows] of bool: each is of the name at a number, and of a time (unix µs)."""
        before = [0 if (found := self.of(name)) is None else found.erased_before_us for name in names]
        return at_us < np.array([*before, 0], np.int64)[whose]

    def sift(self, placed: Sequence[PlacedBlock]) -> tuple[list[PlacedBlock], list[ErasedPart]]:
        """Blocks without the decisions that were erased, which keep their numbers; and what was left out."""
        if not self.erasures:
            return list(placed), []
        kept: list[PlacedBlock] = []
        parts: list[ErasedPart] = []
        for one in map(self._marked, placed):
            found = self._erased_in(one)
            gone = np.zeros(one.block.count, np.bool_)
            for erasure, places in found:
                gone[places] = True
                seqs = places.astype(np.uint64) + np.uint64(one.block.first_seq)
                where = (one.block.copy_id, one.block.epoch, one.log_partition, one.log_offset)
                parts.append(ErasedPart(*where, erasure.erasure_id, seqs))
            left = _left(one, gone) if found else [one]
            # Its dictionary may name the caller where no decision does any more: `terms` are read from that.
            kept += [_pruned(it) for it in left] if any(map(self.of, one.block.bases.callers)) else left
        return kept, parts

    def sift_facts(self, placed: Sequence[PlacedFacts]) -> list[PlacedFacts]:
        """Grants, settlements and costs without those that were erased."""
        if not self.erasures:
            return list(placed)
        return [
            replace(
                one,
                facts=replace(
                    one.facts,
                    grants=[
                        it
                        for it in one.facts.grants
                        if not self.holds(it.caller, it.grant.issued_at_us, one.appended_us)
                    ],
                    # By the grant's own time, which its id carries: the owner's clock, as in the table.
                    settlements=[
                        it
                        for it in one.facts.settlements
                        if not self.holds(it.caller, it.settlement.grant_id, one.appended_us)
                    ],
                    costs=[it for it in one.facts.costs if not self.holds(it.caller, it.at_us, one.appended_us)],
                ),
            )
            for one in placed
        ]

    def sift_controls(self, placed: Sequence[PlacedControl]) -> list[PlacedControl]:
        """Control events without those that name an erased caller."""
        if not self.erasures:
            return list(placed)
        return [
            one
            for one in placed
            if not any(self.holds(name, one.at_us, one.appended_us) for name in callers_in(one.body))
        ]

    def _marked(self, one: PlacedBlock) -> PlacedBlock:
        """The block with a mark for each erased name whose bucket paid for decisions of others before."""
        block, also = one.block, list(one.block.bases.also)
        for number, other in enumerate(also):
            erasure = self.of(other.subject)
            if erasure is not None and ((block.basis == other.basis) & (block.at_us < erasure.erased_before_us)).any():
                also[number] = replace(other, subject=mark_of(erasure.erasure_id))
        if also == list(block.bases.also):
            return one
        return replace(one, block=replace(block, bases=replace(block.bases, also=also)))

    def _erased_in(self, one: PlacedBlock) -> list[tuple[Erasure, npt.NDArray[np.int64]]]:
        block, found = one.block, []
        for number, name in enumerate(block.bases.callers):
            erasure = self.of(name)
            if erasure is not None:
                is_its = (block.bases.caller == number)[block.basis] & (block.at_us < erasure.erased_before_us)
                places = np.flatnonzero(is_its)
                if len(places):
                    found.append((erasure, places))
        return found


class _Names(msgspec.Struct):
    caller: str | None = None
    subject: str | None = None


def callers_in(body: str | bytes) -> set[str]:
    """The callers that a control event may name: whose request it was, and whose bucket."""
    try:
        names = msgspec.json.decode(body, type=_Names)
    except msgspec.MsgspecError:
        return set()
    return {name for name in (names.caller, names.subject) if name is not None}


def _left(one: PlacedBlock, gone: npt.NDArray[np.bool_]) -> list[PlacedBlock]:
    """The runs of decisions that stay, each as a block of its own with the numbers that they have."""
    edges = np.flatnonzero(np.diff(np.concatenate(([True], gone, [True])).astype(np.int8)))
    return [slice_of(one, int(start), int(end)) for start, end in zip(edges[::2], edges[1::2], strict=True)]


def _pruned(one: PlacedBlock) -> PlacedBlock:
    """The block with those bases only that a decision points to, and their callers."""
    bases = one.block.bases
    used, basis = np.unique(one.block.basis, return_inverse=True)
    named, caller = np.unique(bases.caller[used], return_inverse=True)
    places = {int(number): place for place, number in enumerate(used)}
    pruned = replace(
        bases,
        callers=[bases.callers[number] for number in named.tolist()],
        caller=caller.astype(np.uint32),
        scope=bases.scope[used],
        limit=bases.limit[used],
        plan=bases.plan[used],
        policy_version=bases.policy_version[used],
        grant_id=bases.grant_id[used],
        k=bases.k[used],
        also=[replace(other, basis=places[other.basis]) for other in bases.also if other.basis in places],
    )
    return replace(one, block=replace(one.block, bases=pruned, basis=basis.astype(np.uint32)))


def erased_batches(parts: Sequence[ErasedPart]) -> list[Batch]:
    """One row of `erased_blocks` for each part, in batches that can be inserted."""
    rows = []
    for one in parts:
        firsts, counts = ranges_of(one.seqs)
        where = (one.copy_id, one.epoch, firsts[0], one.log_partition, one.log_offset, one.erasure_id)
        rows.append((*where, len(one.seqs), firsts, counts))
    if not rows:
        return []
    columns = [pa.array(values, field.type) for values, field in zip(zip(*rows, strict=True), _SCHEMA, strict=True)]
    return [Batch("erased_blocks", pa.Table.from_arrays(columns, schema=_SCHEMA))]


def ranges_of(seqs: npt.NDArray[np.uint64]) -> tuple[list[int], list[int]]:
    """Ascending numbers as ranges: the first of each, and how many follow each other from there."""
    starts = np.flatnonzero(np.concatenate(([True], np.diff(seqs) != 1)))
    firsts: list[int] = seqs[starts].tolist()
    counts: list[int] = np.diff(np.append(starts, len(seqs))).tolist()
    return firsts, counts
