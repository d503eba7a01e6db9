"""Rows of the record back to the blocks that they came from, whose hashes they must give.

Works on whole columns. Pure: reads no clock and talks to no database.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, pairwise, product
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from aggregator.core.proof.chain import BlockRow
from aggregator.core.proof.holes import Numbers
from stream.contract.block import Bases, BlockPlan, DecisionBlock, Int64s, OtherCharge
from stream.contract.canonical import unequal_rows
from stream.contract.codec import UnencodableBlock, encode_columns, hash_block

#: Terms that a block may have had are tried one after the other, up to so many ways.
_MOST_WAYS = 64


class TermsKey(NamedTuple):
    """What a row says of its terms: their figures stand in table `terms`."""

    caller: str
    limit: str
    policy_version: int
    plan: str


@dataclass(frozen=True, slots=True)
class Figures:
    """What terms came to.

    Attributes:
        shared: by (limit, policy version, plan), where all callers have the same.
        own: by caller as well, where they have not; more than one where a policy was changed without a new version.
    """

    shared: Mapping[tuple[str, int, str], BlockPlan]
    own: Mapping[TermsKey, Sequence[BlockPlan]]

    def of(self, key: TermsKey) -> Sequence[BlockPlan]:
        """What is known of one caller's terms; nothing may be."""
        shared = self.shared.get(key[1:])
        return [shared] if shared is not None else self.own.get(key, ())


@dataclass(frozen=True, slots=True)
class TextColumn:
    """A column of texts: the distinct ones, and each row's place among them."""

    words: list[str]
    index: Int64s


@dataclass(frozen=True, slots=True)
class RecordedRows:
    """Decisions of the record, by copy, epoch and seq: columns of texts and of numbers, and their further charges."""

    names: dict[str, TextColumn]
    numbers: dict[str, npt.NDArray[Any]]
    charges: pa.Array

    def between(self, block: BlockRow) -> slice:
        """The places of the rows that have a block's numbers."""
        copies, epoch, seq = self.names["copy_id"], self.numbers["epoch"], self.numbers["seq"]
        try:
            copy = copies.words.index(block.copy_id)
        except ValueError:
            return slice(0, 0)
        start, end = np.searchsorted(copies.index, [copy, copy + 1])
        # By both sides of one number: the last epoch that there can be has no next one to look for.
        wanted = np.uint64(block.epoch)
        low, high = (start + int(np.searchsorted(epoch[start:end], wanted, side)) for side in ("left", "right"))
        first, last = low + np.searchsorted(seq[low:high], [block.first_seq, block.end])
        return slice(int(first), int(last))

    def part(self, where: slice) -> RecordedRows:
        """Some of the rows."""
        return RecordedRows(
            {name: TextColumn(one.words, one.index[where]) for name, one in self.names.items()},
            {name: column[where] for name, column in self.numbers.items()},
            self.charges.slice(where.start, where.stop - where.start),
        )


@dataclass(frozen=True, slots=True)
class Checked:
    """What became of a block's decisions.

    Attributes:
        missing: numbers that have no row, in order.
        repeated: rows beyond one a number.
        agrees: the rows give the block's hash.
        block: what the rows say, at the copy's own times; None where some are missing or there are too many.
        misread: what a row says that no block can; empty if nothing.
    """

    missing: list[Numbers]
    repeated: int
    agrees: bool
    block: DecisionBlock | None
    misread: str = ""


_NAMES = ("copy_id", "caller", "scope", "limit", "plan", "per")
_NUMBERS: dict[str, type[np.generic]] = {
    "epoch": np.uint64,
    "seq": np.int64,
    "at_us": np.int64,
    "code": np.uint8,
    "allowed": np.bool_,
    "cost_tokens": np.uint32,
    "remaining_tokens": np.int64,
    "retry_after_ms": np.int32,
    "policy_version": np.int64,
    "grant_id": np.uint64,
    "k": np.uint32,
    "burst": np.int64,
    "rate_per_s": np.float64,
}


def rows_of(table: pa.Table) -> RecordedRows:
    """Rows as the query `decisions_of` gives them: in order of copy (by its bytes), epoch and seq."""
    names = {name: _names(table, name) for name in _NAMES}
    copies = names["copy_id"]
    order = sorted(range(len(copies.words)), key=lambda at: copies.words[at].encode())
    rank = np.empty(len(order) + 1, np.int64)
    rank[order] = np.arange(len(order))
    names["copy_id"] = TextColumn([copies.words[at] for at in order], rank.take(copies.index))
    numbers = {name: np.ascontiguousarray(table.column(name).to_numpy(), kind) for name, kind in _NUMBERS.items()}
    charges = table.column("charges").combine_chunks()
    if isinstance(charges, pa.ChunkedArray):
        charges = pa.concat_arrays(charges.chunks) if charges.num_chunks else pa.array([], charges.type)
    return RecordedRows(names, numbers, charges)


def check_block(block: BlockRow, rows: RecordedRows, figures: Figures) -> Checked:
    """Write a block again from its rows and compare the hash.

    Args:
        block: of the layout whose bytes follow from what it says (`stream.contract.codec.VERSION`).
        rows: with at least all those of the block.
        figures: of the terms that its rows name.
    """
    where = rows.between(block)
    seq = rows.numbers["seq"][where]
    if len(seq) != block.decisions or not np.array_equal(seq, np.arange(block.first_seq, block.end)):
        present = np.unique(seq)
        return Checked(_missing(present, block), len(seq) - len(present), False, None)
    part = rows.part(where)
    misread = _why_impossible(part)
    last: DecisionBlock | None = None
    for plans, plan in _ways(part, figures):
        last = _rebuilt(block, part, plans, plan)
        try:
            if not misread and hash_block(encode_columns(last)) == block.block_hash:
                return Checked([], 0, True, last)
        except UnencodableBlock as error:
            misread = str(error)
    if last is None:
        misread = misread or "the terms that a decision names are in no row of table terms"
    return Checked([], 0, False, last, misread)


def keys_of(rows: RecordedRows) -> set[TermsKey]:
    """The terms whose figures do not stand in the rows themselves."""
    at = np.flatnonzero(rows.numbers["burst"] == 0)
    if not len(at):
        return set()
    caller, limit, plan = (rows.names[name] for name in ("caller", "limit", "plan"))
    columns = [caller.index[at], limit.index[at], rows.numbers["policy_version"][at], plan.index[at]]
    alike = unequal_rows(columns)
    first = np.arange(len(at)) if alike is None else alike[0]
    return {
        TermsKey(caller.words[a], limit.words[b], c, plan.words[d])
        for a, b, c, d in zip(*(column.take(first).tolist() for column in columns), strict=True)
    }


def _rebuilt(block: BlockRow, part: RecordedRows, plans: list[BlockPlan], plan: Int64s) -> DecisionBlock:
    """What the rows say, one basis a decision: writing finds those that are alike."""
    caller, scope, limit = (part.names[name] for name in ("caller", "scope", "limit"))
    numbers = part.numbers
    return DecisionBlock(
        copy_id=block.copy_id,
        epoch=block.epoch,
        first_seq=block.first_seq,
        count=block.decisions,
        sealed_at_us=block.sealed_at_us - block.shift_us,
        prev_hash=block.prev_hash,
        block_hash=block.block_hash,
        bases=Bases(
            callers=caller.words,
            scopes=scope.words,
            limits=limit.words,
            plans=plans,
            caller=caller.index.astype(np.uint32),
            scope=scope.index.astype(np.uint32),
            limit=limit.index.astype(np.uint32),
            plan=plan.astype(np.uint32),
            policy_version=numbers["policy_version"].astype(np.uint32),
            grant_id=numbers["grant_id"],
            k=numbers["k"],
            also=list(_charges(part)),
        ),
        basis=np.arange(block.decisions, dtype=np.uint32),
        at_us=numbers["at_us"] - block.shift_us,
        code=numbers["code"],
        cost=numbers["cost_tokens"],
        remaining=numbers["remaining_tokens"],
        retry_after_ms=numbers["retry_after_ms"],
        version=block.layout_version,
        clock_offset_ns=block.clock_offset_ns,
        owner_offset_us=block.owner_offset_us,
        admitted_total=block.admitted_total,
        refused_total=block.refused_total,
        cost_total=block.cost_total,
    )


def _ways(part: RecordedRows, figures: Figures) -> Iterator[tuple[list[BlockPlan], Int64s]]:
    """The plans that the rows may have been held to, and which row to which: one way, or nearly always one."""
    count = len(part.numbers["seq"])
    if not count:
        yield [], np.empty(0, np.int64)
        return
    # Callers are told apart only where it matters: there are many.
    names = [part.names[name] for name in ("limit", "plan", "per", *(("caller",) if figures.own else ()))]
    version, burst, rate = (part.numbers[name] for name in ("policy_version", "burst", "rate_per_s"))
    columns = [*(one.index for one in names), version, burst, np.ascontiguousarray(rate).view(np.int64)]
    first, number = unequal_rows(columns) or (np.arange(count), np.arange(count))
    choices: list[Sequence[BlockPlan]] = []
    for at in first.tolist():
        limit, plan, per, caller, *_ = (*(one.words[one.index[at]] for one in names), "")
        if burst[at]:
            choices.append([BlockPlan(plan, float(rate[at]), int(burst[at]), per)])
        else:
            choices.append(figures.of(TermsKey(caller, limit, int(version[at]), plan)))
    for way in islice(product(*choices), _MOST_WAYS):
        yield list(way), number


def _why_impossible(part: RecordedRows) -> str:
    """What a row says twice and differently, or that no decision can say; empty if nothing."""
    allowed = part.numbers["allowed"]
    if not np.array_equal(allowed, (part.numbers["code"] & 15) == 0):
        return "a decision is allowed and has a reason, or neither"
    if part.numbers["retry_after_ms"][allowed].any():
        return "a decision is allowed and has a wait"
    return ""


def _charges(part: RecordedRows) -> Iterator[OtherCharge]:
    if not len(part.charges.flatten()):
        return
    for basis, row in enumerate(part.charges.to_pylist()):
        for charge in row:
            yield OtherCharge(basis, charge["subject"], charge["limit"], int(charge["grant_id"]))


def _missing(present: npt.NDArray[Any], block: BlockRow) -> list[Numbers]:
    edges = [block.first_seq - 1, *present.tolist(), block.end]
    return [Numbers(before + 1, after) for before, after in pairwise(edges) if after > before + 1]


def _names(table: pa.Table, column: str) -> TextColumn:
    values = table.column(column)
    encoded = values if pa.types.is_dictionary(values.type) else values.dictionary_encode()
    combined = encoded.unify_dictionaries().combine_chunks()
    if isinstance(combined, pa.ChunkedArray):
        combined = combined.chunk(0) if combined.num_chunks else pa.array([], pa.string()).dictionary_encode()
    return TextColumn(combined.dictionary.to_pylist(), combined.indices.to_numpy(zero_copy_only=False).astype(np.int64))
