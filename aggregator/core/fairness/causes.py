"""Why a refusal that should not have been was made: the first of these rules that the record supports.

Each rule looks at what the record holds and at nothing else; where none applies, the cause is `unknown`. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from aggregator.core.fairness.buckets import Buckets, Key
from aggregator.core.fairness.layout import Counts, Doubles, Flag, Int64s, Replayed
from aggregator.core.fairness.rows import Rows
from enforcer.core.sizing import MICRO
from enforcer.types import Reason, Source


class Cause(IntEnum):
    """Causes of wrongful refusals, in the order in which they are tried."""

    DISPLACED = 0
    """By then the caller had been given all that its plan allows, in other requests: nothing was withheld."""
    CAP = 1
    """The copy was at its in-flight ceiling: the protection refused, not the limit."""
    CLOSED = 2
    """The owner was away, and the route's fail mode is `closed`."""
    CEILING = 3
    """The owner was away, and the copy's share of the fleet's ceiling was used up (`open_capped`)."""
    DEGRADED = 4
    """The owner was away, and the copy's own bucket was empty."""
    POLICY = 5
    """The limit's terms had changed within the time that it takes to fill the bucket."""
    CLOCK = 6
    """The copy's clock was off by more than 50 ms, and no owner's time told by how much: when it was is a guess."""
    DIVIDED = 7
    """No grant stands behind the limit: each copy applied it for itself, so a share was spent and not the whole."""
    STRANDED = 8
    """Enough tokens lay in other copies' grants, unspent."""
    STALE_EMPTY = 9
    """The copy refused from memory ("empty until") while the owner had the tokens."""
    UNKNOWN = 10


@dataclass(frozen=True, slots=True)
class Blind:
    """Spans in which a copy's times were guessed: [n] each, unix microseconds; both ends belong to the span."""

    copies: Sequence[str]
    from_us: Int64s
    to_us: Int64s


@dataclass(frozen=True, slots=True)
class Holding:
    """A grant: by which copy it was held, when, its size, and what was spent of it when."""

    copy: str
    from_us: int
    to_us: int
    size: int
    spent_at_us: Sequence[int]
    spent: Sequence[int]


@dataclass(frozen=True, slots=True)
class Found:
    """Wrongful refusals that are not displaced, with their causes so far; all columns are of equal length.

    Attributes:
        at: which decision of the replay each is.
        row: the replay's row that counts it.
        cause: `Cause`s; `UNKNOWN` where only grants and clocks can tell more.
    """

    at: Int64s
    row: Int64s
    cause: Int64s

    @property
    def open_rows(self) -> Int64s:
        """The replay's rows with refusals that are not explained yet."""
        return np.unique(self.row[self.cause == Cause.UNKNOWN])


def first_causes(buckets: Buckets, replayed: Replayed) -> Found:
    """What the decisions themselves tell."""
    at = replayed.wrong_at
    code = buckets.decided.code[at]
    source, reason = code >> 4, code & 15
    alone = source == Source.DEGRADED
    cause = np.select(
        [
            source == Source.CAP,
            reason == Reason.CLOSED,
            alone & (reason == Reason.CEILING),
            alone,
            (replayed.flags[at] & Flag.POLICY) != 0,
        ],
        [Cause.CAP, Cause.CLOSED, Cause.CEILING, Cause.DEGRADED, Cause.POLICY],
        Cause.UNKNOWN,
    ).astype(np.int64)
    return Found(at, replayed.wrong_row, cause)


def with_clocks(found: Found, rows: Rows, buckets: Buckets, blind: Blind) -> Found:
    """Explain what was decided by copies whose clocks nobody knew."""
    open_ = found.cause == Cause.UNKNOWN
    guessed = np.zeros(len(found.at), bool)
    copy, at_us = buckets.decided.copy[found.at], buckets.decided.at_us[found.at]
    for name, from_us, to_us in zip(blind.copies, blind.from_us.tolist(), blind.to_us.tolist(), strict=True):
        guessed |= (copy == rows.copy.number_of(name)) & (at_us >= from_us) & (at_us <= to_us)
    return Found(found.at, found.row, np.where(open_ & guessed, Cause.CLOCK, found.cause))


def with_grants(
    found: Found, rows: Rows, buckets: Buckets, replayed: Replayed, holdings: Mapping[Key, Sequence[Holding]]
) -> Found:
    """Explain what is left by where the tokens were."""
    cause = found.cause.copy()
    for row in found.open_rows.tolist():
        listed = np.flatnonzero((found.row == row) & (cause == Cause.UNKNOWN))
        key = buckets.keys[int(replayed.counts[row, Counts.GROUP])]
        held = holdings.get(key, ())
        if held:
            cause[listed] = _by_grants(found.at[listed], replayed.wrong_real[listed], rows, buckets, held)
        elif not _names_grants(rows, buckets, int(replayed.counts[row, Counts.GROUP])):
            cause[listed] = Cause.DIVIDED
    return Found(found.at, found.row, cause)


def counted(found: Found, replayed: Replayed) -> Int64s:
    """How many wrongful refusals each row of the replay has by each cause: [r, causes]."""
    counts = np.zeros((len(replayed.counts), len(Cause)), np.int64)
    np.add.at(counts, (found.row, found.cause), 1)
    counts[:, Cause.DISPLACED] = replayed.counts[:, Counts.DISPLACED]
    return counts


def _names_grants(rows: Rows, buckets: Buckets, group: int) -> bool:
    """Whether any decision of the bucket was paid by a grant, on record or not."""
    begin, end = buckets.decided.starts[group : group + 2].tolist()
    return bool(rows.grant_id[buckets.row[begin:end]].any())


def _by_grants(at: Int64s, real: Doubles, rows: Rows, buckets: Buckets, held: Sequence[Holding]) -> Int64s:
    decided = buckets.decided
    at_us, cost, copy = decided.at_us[at], decided.cost[at].astype(np.float64), decided.copy[at]
    total = _outstanding(at_us, held)
    own = np.zeros(len(at))
    for number in np.unique(copy).tolist():
        mine = copy == number
        own[mine] = _outstanding(at_us[mine], [one for one in held if one.copy == rows.copy.names[number]])
    local = decided.code[at] >> 4 == Source.LOCAL
    return np.select(
        [total - own >= cost, local & (real / MICRO - total >= cost)],
        [Cause.STRANDED, Cause.STALE_EMPTY],
        Cause.UNKNOWN,
    ).astype(np.int64)


def _outstanding(at_us: Int64s, held: Sequence[Holding]) -> Doubles:
    """Tokens lent and not spent at some moments."""
    changes: list[tuple[int, float]] = [(0, 0.0)]
    for one in held:
        left = float(one.size)
        changes.append((one.from_us, left))
        for spent_us, spent in zip(one.spent_at_us, one.spent, strict=True):
            if spent_us >= one.to_us or left <= 0:
                break
            part = min(left, float(spent))
            changes.append((max(spent_us, one.from_us), -part))
            left -= part
        changes.append((one.to_us, -left))
    changes.sort(key=lambda change: change[0])
    times = np.array([change[0] for change in changes], np.int64)
    levels: Doubles = np.cumsum([change[1] for change in changes])
    return levels[np.searchsorted(times, at_us, side="right") - 1]
