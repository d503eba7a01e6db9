"""What the second stage's state says, as rows of the `signals` table: noteworthy callers, hot keys, the fleet.

Every row is a function of the state alone, and its version is the sum of the versions that stand behind it: of two
writers the one that knows more wins, whoever writes last. Never writes, and never reads a clock.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from aggregator.core.live.tables import Rows
from aggregator.core.signals.state import ADMITTED, BASE_MINUTES, OFFERED, FleetMinute, SignalShard
from enforcer.core.anonymous import is_shared
from stream.contract.block import Int64s
from stream.contract.usage import USAGE_COUNTS

#: How many hot keys of a partition and minute are told.
HOT = 10
_EARLY = USAGE_COUNTS.index("early_returns")
_KINDS = ("caller", "hot", "fleet")
_CALLER, _HOT, _FLEET = range(len(_KINDS))
_SECONDS_PER_MINUTE = 60
_NUMBERS = (
    "place",
    "log_partition",
    "version",
    *USAGE_COUNTS,
    "k",
    "k_counted",
    "base_minutes",
    "base_offered",
    "base_refused",
    "callers",
    "callers_refused",
    "anonymous_offered",
    "anonymous_refused",
)
#: Octets to how many of their bits are set.
_BITS = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1).sum(axis=1).astype(np.int64)


@dataclass(frozen=True, slots=True)
class Noteworthy:
    """Which callers get rows of their own: with a refusal or an early return, or from `floor` requests a minute on.

    `anonymous` is how the policy calls the callers that nobody named.
    """

    floor: int
    anonymous: str


@dataclass(frozen=True, slots=True)
class SignalRows:
    """Rows of one kind and minute."""

    kind: int
    minute: int
    callers: Sequence[str]
    names: Sequence[str]
    numbers: dict[str, npt.NDArray[Any] | int]


def cut_signals(shard: SignalShard, noteworthy: Noteworthy) -> list[SignalRows]:
    """Rows of everything that changed since the last cut; the shard forgets that it changed."""
    rows: list[SignalRows] = []
    for number, minute in shard.minutes.items():
        if minute.touched:
            rows.append(_callers(shard, number, minute, noteworthy))
            rows.append(_hot(shard, number, minute))
            rows.append(_fleet(shard, number, minute, noteworthy))
            minute.dirty[:] = False
            minute.touched = False
    return rows


def _callers(shard: SignalShard, number: int, minute: FleetMinute, noteworthy: Noteworthy) -> SignalRows:
    rows = np.flatnonzero(minute.dirty[: minute.index.count])
    counts = minute.counts[rows]
    refused = counts[:, OFFERED] > counts[:, ADMITTED]
    rows = rows[refused | (counts[:, _EARLY] > 0) | (counts[:, OFFERED] >= noteworthy.floor)]
    counts, ids = minute.counts[rows], minute.index.ids[rows]
    versions, base = minute.versions[rows], _base(shard, number, ids)
    numbers: dict[str, npt.NDArray[Any] | int] = {
        "log_partition": shard.partition,
        "version": versions + base.versions,
        "k": _BITS[minute.reached[rows]].sum(axis=1),
        "k_counted": minute.k_counted[rows],
        "base_minutes": base.minutes,
        "base_offered": base.offered,
        "base_refused": base.refused,
        **_counts(counts),
    }
    names = shard.callers.keys
    return SignalRows(_CALLER, number, [names[caller] for caller in ids.tolist()], [""] * ids.size, numbers)


@dataclass(frozen=True, slots=True)
class _Base:
    """What some callers did in the minutes before one, as sums; `minutes` is in how many of them they did anything."""

    versions: Int64s
    minutes: Int64s
    offered: Int64s
    refused: Int64s


def _base(shard: SignalShard, number: int, ids: Int64s) -> _Base:
    versions, minutes, offered, refused = (np.zeros(ids.size, np.int64) for _ in range(4))
    for earlier in range(number - BASE_MINUTES, number):
        minute = shard.minutes.get(earlier)
        if minute is not None:
            rows, known = minute.known_rows(ids)
            counts = minute.counts[rows]
            versions[known] += minute.versions[rows]
            minutes[known] += 1
            offered[known] += counts[:, OFFERED]
            refused[known] += counts[:, OFFERED] - counts[:, ADMITTED]
    return _Base(versions, minutes, offered, refused)


def _hot(shard: SignalShard, number: int, minute: FleetMinute) -> SignalRows:
    """The callers with most requests; of equal ones those whose names come first."""
    count = minute.index.count
    offered = minute.counts[:count, OFFERED]
    least = np.partition(offered, count - HOT)[count - HOT] if count > HOT else 0
    names = shard.callers.keys
    ids = minute.index.ids
    near = sorted((-int(offered[row]), names[ids[row]], row) for row in np.flatnonzero(offered >= least).tolist())
    top = near[:HOT]
    rows: Rows = np.array([row for _, _, row in top], np.intp)
    numbers: dict[str, npt.NDArray[Any] | int] = {
        "place": np.arange(1, len(top) + 1),
        "log_partition": shard.partition,
        "version": int(minute.versions[:count].sum()),
        "k": _BITS[minute.reached[rows]].sum(axis=1),
        "k_counted": minute.k_counted[rows],
        **_counts(minute.counts[rows]),
    }
    return SignalRows(_HOT, number, [""] * len(top), [name for _, name, _ in top], numbers)


def _fleet(shard: SignalShard, number: int, minute: FleetMinute, noteworthy: Noteworthy) -> SignalRows:
    count = minute.index.count
    counts = minute.counts[:count]
    refused = counts[:, OFFERED] - counts[:, ADMITTED]
    anonymous = _anonymous(shard, noteworthy.anonymous)[minute.index.ids]
    numbers: dict[str, npt.NDArray[Any] | int] = {
        "log_partition": shard.partition,
        "version": int(minute.versions[:count].sum()),
        "callers": count,
        "callers_refused": int(np.count_nonzero(refused)),
        "anonymous_offered": int(counts[anonymous, OFFERED].sum()),
        "anonymous_refused": int(refused[anonymous].sum()),
        **_counts(counts.sum(axis=0, keepdims=True)),
    }
    return SignalRows(_FLEET, number, [""], [""], numbers)


def _anonymous(shard: SignalShard, name: str) -> npt.NDArray[np.bool_]:
    """By caller id: whether nobody named it."""
    known = shard.anonymous.size
    if known < len(shard.callers):
        fresh = [is_shared(caller, name) for caller in shard.callers.keys[known:]]
        shard.anonymous = np.concatenate([shard.anonymous, np.array(fresh, np.bool_)])
    return shard.anonymous


def _counts(counts: Int64s) -> dict[str, npt.NDArray[Any] | int]:
    return {name: counts[:, column] for column, name in enumerate(USAGE_COUNTS)}


def signals_table(parts: Iterable[SignalRows]) -> pa.Table:
    """These rows as one Arrow table with the columns of `signals`."""
    parts = list(parts)
    sizes = [len(part.callers) for part in parts]

    def column(name: str) -> npt.NDArray[np.int64]:
        values = np.zeros(sum(sizes), np.int64)
        at = 0
        for size, part in zip(sizes, parts, strict=True):
            values[at : at + size] = part.numbers.get(name, 0)
            at += size
        return values

    def repeated(values: Iterable[int]) -> npt.NDArray[np.int64]:
        return np.repeat(np.fromiter(values, np.int64, len(parts)), sizes)

    kinds = pa.array(repeated(part.kind for part in parts).astype(np.int8))
    minutes = pa.array(repeated(part.minute * _SECONDS_PER_MINUTE for part in parts))
    return pa.table(
        {
            "kind": pa.DictionaryArray.from_arrays(kinds, pa.array(_KINDS)),
            "minute": minutes.cast(pa.timestamp("s", "UTC")),
            "caller": pa.array([caller for part in parts for caller in part.callers], pa.string()),
            "name": pa.array([name for part in parts for name in part.names], pa.string()),
            **{name: pa.array(column(name)) for name in _NUMBERS},
        }
    )
