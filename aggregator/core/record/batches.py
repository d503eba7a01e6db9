"""Blocks of decisions as Arrow columns for the exact record, cut so that each INSERT is one part.

Works on whole columns: nothing here loops over decisions, reads a clock or talks to a database.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from enforcer.core.resolution import LIMIT_RATE
from enforcer.types import Reason
from stream.contract.block import DecisionBlock, Int64s, UInt32s

#: An INSERT of more rows would not be one part.
MAX_ROWS = 1_000_000
#: The column of when a row was stored, which only the moment of storing knows.
STORED_AT = "stored_at"
_TIME = pa.timestamp("us", "UTC")
_DAY_US = 86_400_000_000
_CHARGES = pa.list_(pa.struct({"subject": pa.string(), "limit": pa.string(), "grant_id": pa.uint64()}))


@dataclass(frozen=True, slots=True)
class Batch:
    """Rows for one INSERT: at most 1,000,000, all of one partition of the table."""

    table: str
    rows: pa.Table

    def stamped(self, unix_us: int) -> pa.Table:
        """The rows with this time wherever `stored_at` is not known yet."""
        place = self.rows.column_names.index(STORED_AT) if STORED_AT in self.rows.column_names else -1
        if place < 0:
            return self.rows
        now = pa.scalar(unix_us, _TIME)
        return self.rows.set_column(place, STORED_AT, pc.fill_null(self.rows.column(place), now))


@dataclass(frozen=True, slots=True)
class PlacedBlock:
    """A block and where in the log it stands.

    Attributes:
        block: at the times that count.
        log_partition, log_offset: its position in the topic.
        log_id: the topic's own id; empty where nobody asked for it.
        shift_us: what its times were moved by, microseconds.
    """

    block: DecisionBlock
    log_partition: int
    log_offset: int
    log_id: str = ""
    shift_us: int = 0


def decision_batches(placed: Sequence[PlacedBlock]) -> list[Batch]:
    """All decisions of the blocks as rows of `decisions`, one batch a UTC day (or several of 1,000,000 rows)."""
    return Gathered(placed).decision_batches()


class Gathered:
    """Blocks that are written together: what several tables read of them is put together once."""

    def __init__(self, placed: Sequence[PlacedBlock]) -> None:
        """Take all blocks of a flush that are new; empty ones are of no account here."""
        self.placed = [one for one in placed if one.block.count]

    @cached_property
    def callers(self) -> Names:
        """The callers of all blocks."""
        return Names([one.block.bases.callers for one in self.placed])

    @cached_property
    def caller_numbers(self) -> npt.NDArray[Any]:
        """The number of each basis' caller in `callers`, over all blocks."""
        return self.callers.pick([one.block.bases.caller for one in self.placed])

    def decision_batches(self) -> list[Batch]:
        """See the function of this name."""
        if not self.placed:
            return []
        rows = pa.table(_decision_columns(self))
        at_us = np.concatenate([one.block.at_us for one in self.placed])
        return [Batch("decisions", part) for part in cut(rows, at_us // _DAY_US)]


def times(unix_us: Int64s) -> pa.Array:
    """Unix microseconds as a column of UTC times."""
    return pa.array(unix_us, _TIME)


def months(unix_us: Int64s) -> Int64s:
    """The calendar month (UTC) of each time, counted from 1970."""
    return unix_us.astype("datetime64[us]").astype("datetime64[M]").astype(np.int64)


def cut(rows: pa.Table, key: Int64s) -> Iterator[pa.Table]:
    """Rows of equal key together, keys ascending, in pieces of at most 1,000,000; the order of rows stays."""
    if int(key.min()) == int(key.max()):
        pieces = [rows]
    else:
        pieces = [rows.take(pa.array(np.flatnonzero(key == value))) for value in np.unique(key)]
    for piece in pieces:
        for start in range(0, piece.num_rows, MAX_ROWS):
            yield piece.slice(start, MAX_ROWS)


class Names:
    """A column of names in the making: each name once, and its number wherever it stands."""

    def __init__(self, lists: Sequence[Sequence[str]]) -> None:
        """Take one list of names per block; a name may stand in many of them."""
        encoded = pa.array(list(chain.from_iterable(lists)), pa.string()).dictionary_encode()
        width = (
            np.int8 if len(encoded.dictionary) <= 127 else np.int16 if len(encoded.dictionary) <= 32_767 else np.int32
        )
        self._numbers = encoded.indices.to_numpy().astype(width)
        self._dictionary = encoded.dictionary
        sizes = [len(names) for names in lists]
        self._starts = np.cumsum([0, *sizes[:-1]])

    @property
    def words(self) -> pa.Array:
        """Each name once, at its number."""
        return self._dictionary

    def pick(self, indexes: Sequence[UInt32s]) -> npt.NDArray[Any]:
        """The numbers of the names that each block's index points to in the block's own list."""
        places = np.concatenate([index + start for index, start in zip(indexes, self._starts, strict=True)])
        numbers: npt.NDArray[Any] = self._numbers[places]
        return numbers

    def column(self, numbers: npt.NDArray[Any]) -> pa.DictionaryArray:
        """A column with these numbers."""
        return pa.DictionaryArray.from_arrays(pa.array(numbers), self._dictionary)

    def repeated(self, counts: Int64s) -> pa.DictionaryArray:
        """A column with the one name of each block as often as the block has rows."""
        return self.column(np.repeat(self._numbers, counts))


def _decision_columns(gathered: Gathered) -> dict[str, Any]:
    placed = gathered.placed
    blocks = [one.block for one in placed]
    counts = np.array([block.count for block in blocks], dtype=np.int64)
    sizes = np.array([len(block.bases.caller) for block in blocks], dtype=np.int64)
    basis = np.concatenate([block.basis for block in blocks]) + np.repeat(np.cumsum(sizes) - sizes, counts)
    code = np.concatenate([block.code for block in blocks])
    return {
        **_named_columns(gathered, basis),
        "at": times(np.concatenate([block.at_us for block in blocks])),
        **_identity_columns(placed, counts),
        "allowed": pa.array((code & 15) == Reason.NONE),
        "source": pa.array(code >> 4),
        "reason": pa.array(code & 15),
        "cost_tokens": pa.array(np.concatenate([block.cost for block in blocks])),
        "remaining_tokens": pa.array(np.concatenate([block.remaining for block in blocks])),
        "retry_after_ms": pa.array(np.concatenate([block.retry_after_ms for block in blocks])),
        "policy_version": pa.array(np.concatenate([block.bases.policy_version for block in blocks])[basis]),
        "grant_id": pa.array(np.concatenate([block.bases.grant_id for block in blocks])[basis]),
        "k": pa.array(np.concatenate([block.bases.k for block in blocks])[basis]),
        **_terms_columns(blocks, basis),
        **_charge_column(blocks, basis),
    }


def _terms_columns(blocks: Sequence[DecisionBlock], basis: Int64s) -> dict[str, Any]:
    """What each limit was held to; left out where all name their plan's own, whose figures the live totals have."""
    bases = [block.bases for block in blocks]
    if all(limit == LIMIT_RATE for base in bases for limit in base.limits):
        return {}
    rates = [np.array([plan.rate_per_s for plan in base.plans], np.float64)[base.plan] for base in bases]
    bursts = [np.array([plan.burst for plan in base.plans], np.uint32)[base.plan] for base in bases]
    calendars = Names([[plan.per for plan in base.plans] for base in bases])
    return {
        "rate_per_s": pa.array(np.concatenate(rates)[basis]),
        "burst": pa.array(np.concatenate(bursts)[basis]),
        "per": calendars.column(calendars.pick([base.plan for base in bases])[basis]),
    }


def _charge_column(blocks: Sequence[DecisionBlock], basis: Int64s) -> dict[str, Any]:
    """Further grants that paid; left out where there are none, as in nearly every batch: the table then says so."""
    if not any(block.bases.also for block in blocks):
        return {}
    of_bases: list[list[dict[str, Any]]] = []
    for block in blocks:
        first = len(of_bases)
        of_bases += [[] for _ in block.bases.caller]
        for other in block.bases.also:
            charge = {"subject": other.subject, "limit": other.limit, "grant_id": other.grant_id}
            of_bases[first + other.basis].append(charge)
    return {"charges": pa.array(of_bases, _CHARGES).take(pa.array(basis))}


def _named_columns(gathered: Gathered, basis: Int64s) -> dict[str, Any]:
    """The columns of names."""
    bases = [one.block.bases for one in gathered.placed]
    names = {
        "scope": (Names([base.scopes for base in bases]), [base.scope for base in bases]),
        "limit": (Names([base.limits for base in bases]), [base.limit for base in bases]),
        "plan": (Names([[plan.name for plan in base.plans] for base in bases]), [base.plan for base in bases]),
    }
    return {
        "caller": gathered.callers.column(gathered.caller_numbers[basis]),
        **{column: book.column(book.pick(indexes)[basis]) for column, (book, indexes) in names.items()},
    }


def _identity_columns(placed: Sequence[PlacedBlock], counts: Int64s) -> dict[str, Any]:
    """Who decided, under which number, and where in the log it stands."""
    epoch = np.array([one.block.epoch for one in placed], dtype=np.uint64)
    first_seq = np.array([one.block.first_seq for one in placed], dtype=np.uint64)
    starts = (np.cumsum(counts) - counts).astype(np.uint64)
    partition = np.array([one.log_partition for one in placed], dtype=np.uint16)
    offset = np.array([one.log_offset for one in placed], dtype=np.uint64)
    total = int(counts.sum())
    return {
        "copy_id": Names([[one.block.copy_id] for one in placed]).repeated(counts),
        "epoch": pa.array(np.repeat(epoch, counts)),
        # Wraps where the block's start in the batch is above its first number, and wraps back with the row's.
        "seq": pa.array(np.arange(total, dtype=np.uint64) + np.repeat(first_seq - starts, counts)),
        "log_partition": pa.array(np.repeat(partition, counts)),
        "log_offset": pa.array(np.repeat(offset, counts)),
    }
