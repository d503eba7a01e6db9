"""Which decisions concern which bucket: rows of the record, sorted out for the replay.

A caller's `rate` has every decision that names it: all that were admitted, and what it refused itself. A further limit
of the caller's own has what it refused, and the admitted that were charged to it. What cannot be judged is counted
apart. Pure; asks no database.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np

from aggregator.core.fairness.layout import MINUTE_US, Decided, Doubles, Int64s, UInt32s
from aggregator.core.fairness.rows import Rows, names_at, runs, translated
from aggregator.core.record.acceptance import MAX_RATE_PER_S, MIN_RATE_PER_S
from enforcer.core.resolution import LIMIT_RATE

#: Whose bucket: (caller, limit).
Key = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Held:
    """What a limit was held to: tokens per second, tokens, and the calendar of a quota."""

    rate_per_s: float
    burst: int
    per: str

    @property
    def is_bucket(self) -> bool:
        """Whether it is a token bucket that can be replayed: no quota, and of a rate as policies have them."""
        return not self.per and MIN_RATE_PER_S <= self.rate_per_s <= MAX_RATE_PER_S


class TermsBook:
    """What each caller's limits were held to, by policy version."""

    def __init__(self) -> None:
        self._exact: dict[tuple[str, str, int, str], Held] = {}
        self._by_version: dict[Key, dict[int, Held]] = {}

    def add(self, caller: str, limit: str, version: int, plan: str, held: Held) -> None:
        """Learn one; the same again changes nothing."""
        self._exact[caller, limit, version, plan] = held
        self._by_version.setdefault((caller, limit), {})[version] = held

    def find(self, caller: str, limit: str, version: int, plan: str | None) -> Held | None:
        """What was in force: under this plan, or under any in this version, or in the version before it, or after."""
        if plan is not None and (found := self._exact.get((caller, limit, version, plan))) is not None:
            return found
        versions = self._by_version.get((caller, limit))
        if not versions:
            return None
        before = [known for known in versions if known <= version]
        return versions[max(before) if before else min(versions)]


@dataclass(frozen=True, slots=True)
class Unjudged:
    """Decisions of a limit whose bucket cannot be replayed, in one minute."""

    caller: str
    limit: str
    minute: int
    admitted: int
    refused: int

    @property
    def offered(self) -> int:
        """All of them."""
        return self.admitted + self.refused


@dataclass(frozen=True, slots=True)
class Buckets:
    """The buckets of some rows.

    Attributes:
        keys: whose each bucket is, in the order of the groups of `decided`.
        decided: for the replay.
        row: [n], of which row each decision of `decided` is.
        unjudged: what could not be judged.
    """

    keys: list[Key]
    decided: Decided
    row: Int64s
    unjudged: list[Unjudged] = field(default_factory=list)

    def fills_in_s(self, place: int) -> float:
        """How long the bucket at a place of `keys` takes to fill, in seconds, by the terms of its first decision."""
        decided = self.decided
        terms = int(decided.terms[int(decided.starts[place])])
        return float(decided.bursts[terms] / decided.rates[terms])


class _Groups:
    """Groups on their way into one `Decided`."""

    def __init__(self, rows: Rows) -> None:
        self.rows = rows
        self.keys: list[Key] = []
        self.sizes: list[int] = []
        self.row: list[Int64s] = []
        self.terms: list[Int64s] = []
        self._numbers: dict[Held, int] = {}

    def number(self, held: Held) -> int:
        return self._numbers.setdefault(held, len(self._numbers))

    def decided(self) -> tuple[Decided, Int64s]:
        rows, row = self.rows, _joined(self.row)
        terms = list(self._numbers)
        columns = Decided(
            starts=np.cumsum([0, *self.sizes], dtype=np.int64),
            at_us=_picked(rows.at_us, row),
            cost=_picked(rows.cost, row),
            code=_picked(rows.code, row),
            retry_after_ms=_picked(rows.retry_after_ms, row),
            copy=_picked(rows.copy.numbers.view(np.uint32), row),
            terms=_joined(self.terms).astype(np.uint32),
            rates=_doubles(held.rate_per_s for held in terms),
            bursts=_doubles(held.burst for held in terms),
            copies=max(1, len(rows.copy.names)),
        )
        return columns, row


def buckets_of(rows: Rows, book: TermsBook, known: AbstractSet[Key] = frozenset()) -> Buckets:
    """Sort decisions into buckets.

    Args:
        rows: decisions.
        book: terms; a bucket of which it knows none cannot be judged.
        known: further limits that are known to be the callers' own, from earlier minutes.
    """
    groups = _Groups(rows)
    is_rate = rows.limit.numbers == rows.limit.number_of(LIMIT_RATE)
    unknown = _rate_groups(groups, book, np.flatnonzero(is_rate))
    foreign = _own_groups(groups, book, np.flatnonzero(~is_rate), known)
    decided, row = groups.decided()
    return Buckets(groups.keys, decided, row, _count_unjudged(rows, np.concatenate([unknown, foreign])))


def _rate_groups(groups: _Groups, book: TermsBook, rate: Int64s) -> Int64s:
    """One bucket a caller; returns the rows of callers whose terms are not on record."""
    rows = groups.rows
    caller, plan, version = rows.caller.numbers[rate], rows.plan.numbers[rate], rows.policy_version[rate]
    heads = runs(caller, plan, version)
    numbers = np.full(len(heads), -1, np.int64)
    callers, plans = names_at(rows.caller, rate[heads]), names_at(rows.plan, rate[heads])
    for place, key in enumerate(zip(callers, version[heads].tolist(), plans, strict=True)):
        held = book.find(key[0], LIMIT_RATE, key[1], key[2])
        if held is not None and held.is_bucket:
            numbers[place] = groups.number(held)
    terms = np.repeat(numbers, np.diff(np.append(heads, len(rate))))
    unknown = np.zeros(len(rate), bool)
    if (numbers < 0).any():
        unknown = np.isin(caller, caller[terms < 0])
    kept = ~unknown
    starts = runs(caller[kept])
    groups.keys += [(name, LIMIT_RATE) for name in names_at(rows.caller, rate[kept][starts])]
    groups.sizes += np.diff(np.append(starts, int(kept.sum()))).tolist()
    groups.row.append(rate[kept])
    groups.terms.append(terms[kept])
    return rate[unknown]


def _own_groups(groups: _Groups, book: TermsBook, others: Int64s, known: AbstractSet[Key]) -> Int64s:
    """One bucket a further limit of a caller's own that is a token bucket; returns the rows of all others' refusals."""
    rows = groups.rows
    limits = sorted({*rows.limit.names, *rows.charges.limit.names})
    charged, charged_limit = _own_charges(rows, limits)
    row = np.concatenate([charged, others])
    limit = np.concatenate([charged_limit, translated(rows.limit.names, limits)[rows.limit.numbers[others]]])
    is_charge = np.arange(len(row)) < len(charged)
    key = rows.caller.numbers[row].astype(np.int64) * len(limits) + limit
    order = np.lexsort((row, key))
    row, key, is_charge = row[order], key[order], is_charge[order]
    heads = runs(key)
    foreign: list[Int64s] = [np.zeros(0, np.int64)]
    for begin, end in pairwise([*heads.tolist(), len(row)]):
        places, of_own = row[begin:end], is_charge[begin:end]
        name = (rows.caller.names[rows.caller.numbers[places[0]]], limits[int(key[begin] % len(limits))])
        terms = _terms_of(groups, book, name, rows.policy_version[places])
        if terms is None or not (name in known or bool(of_own.any())):
            foreign.append(places[~of_own])
            continue
        groups.keys.append(name)
        groups.sizes.append(len(places))
        groups.row.append(places)
        groups.terms.append(terms)
    return np.concatenate(foreign)


def _own_charges(rows: Rows, limits: Sequence[str]) -> tuple[Int64s, Int64s]:
    """The rows that were charged to a further limit of their caller's own, and which of `limits` that was."""
    charges = rows.charges
    subject = translated(charges.subject.names, rows.caller.names)[charges.subject.numbers]
    own = subject == rows.caller.numbers[charges.row]
    return charges.row[own], translated(charges.limit.names, limits)[charges.limit.numbers[own]]


def _terms_of(groups: _Groups, book: TermsBook, key: Key, version: UInt32s) -> Int64s | None:
    """The number of the terms at each decision; None if any are unknown, or no bucket's."""
    versions, place = np.unique(version, return_inverse=True)
    held = [book.find(*key, one, None) for one in versions.tolist()]
    if any(one is None or not one.is_bucket for one in held):
        return None
    return np.array([groups.number(one) for one in held if one is not None], np.int64)[place]


def _count_unjudged(rows: Rows, places: Int64s) -> list[Unjudged]:
    caller, limit = rows.caller.numbers[places], rows.limit.numbers[places]
    minute = rows.at_us[places] // MINUTE_US
    order = np.lexsort((minute, limit, caller))
    heads = runs(caller[order], limit[order], minute[order])
    refused = ((rows.code[places] & 15) != 0)[order].astype(np.int64)
    offered = np.diff(np.append(heads, len(order))).tolist()
    refusals = np.add.reduceat(refused, heads).tolist() if len(heads) else []
    at = places[order][heads]
    names = zip(names_at(rows.caller, at), names_at(rows.limit, at), minute[order][heads].tolist(), strict=True)
    return [
        Unjudged(*name, admitted=all_of - no, refused=no)
        for name, all_of, no in zip(names, offered, refusals, strict=True)
    ]


def _joined(parts: Sequence[Int64s]) -> Int64s:
    return np.concatenate([np.zeros(0, np.int64), *parts])


def _picked(column: Any, row: Int64s) -> Any:
    """Those rows of a column; the column itself where they are all of it, as nearly always."""
    if len(row) == len(column) and bool((row[1:] > row[:-1]).all()):
        return column
    return column[row]


def _doubles(values: Iterable[float]) -> Doubles:
    return np.array([float(value) for value in values], np.float64)
