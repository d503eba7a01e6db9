"""Rows of the table `fairness`: what a replay and its causes say, as one Arrow table, and which of it is new.

Asks no database, and reads no clock.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa

from aggregator.core.fairness.buckets import Buckets, Key, Unjudged
from aggregator.core.fairness.causes import Cause
from aggregator.core.fairness.layout import CARRIED_LEVELS, CARRIED_MARKS, Counts, Int64s, Levels, Replayed
from aggregator.core.fairness.replay import epsilon_tokens, excess_tokens
from aggregator.core.record.batches import times
from enforcer.core.sizing import MICRO

_S_PER_MINUTE: Final = 60
_US_PER_S: Final = 1_000_000
#: Columns of counts, and where a replay has them.
_COUNTED: Final = {
    "offered": Counts.OFFERED,
    "admitted": Counts.ADMITTED,
    "refused": Counts.REFUSED,
    "wrongful": Counts.WRONGFUL,
    "over_admitted": Counts.OVER_ADMITTED,
    "early_returns": Counts.EARLY_RETURNS,
    "busiest_second": Counts.BUSIEST,
    "k": Counts.K,
    "cost_admitted": Counts.COST_ADMITTED,
}
_NAMED: Final = (
    "caller", "limit", "minute", "judged", "rate_per_s", "burst", *_COUNTED,
    *(f"wrongful_{cause.name.lower()}" for cause in Cause),
    "excess_tokens", "epsilon_tokens", "busiest_at", "full_at", "levels", "marks",
)  # fmt: skip


def fairness_rows(buckets: Buckets, replayed: Replayed, causes: Int64s) -> pa.Table:
    """One row for each of the replay's, then one for each that was not judged; columns of the table but `version`."""
    counts, levels = replayed.counts, replayed.levels
    keys = [buckets.keys[group] for group in counts[:, Counts.GROUP].tolist()]
    unjudged = buckets.unjudged
    columns: dict[str, Any] = {
        "caller": pa.array([*(key[0] for key in keys), *(one.caller for one in unjudged)], pa.string()),
        "limit": pa.array([*(key[1] for key in keys), *(one.limit for one in unjudged)], pa.string()),
        "minute": _seconds(np.append(counts[:, Counts.MINUTE], [one.minute for one in unjudged]) * _S_PER_MINUTE),
        "judged": pa.array(np.arange(len(keys) + len(unjudged)) < len(keys)),
        "rate_per_s": _doubles(levels[:, Levels.RATE], unjudged),
        "burst": pa.array(_filled(np.rint(levels[:, Levels.BURST] / MICRO), unjudged).astype(np.uint32)),
    }
    for name, place in _COUNTED.items():
        known = [getattr(one, name, 0) for one in unjudged]
        columns[name] = pa.array(np.append(counts[:, place], known).astype(np.uint64))
    for cause in Cause:
        columns[f"wrongful_{cause.name.lower()}"] = pa.array(_filled(causes[:, cause], unjudged).astype(np.uint64))
    columns["excess_tokens"] = _doubles(excess_tokens(levels), unjudged)
    columns["epsilon_tokens"] = _doubles(epsilon_tokens(levels), unjudged)
    columns["busiest_at"] = _seconds(_filled(counts[:, Counts.BUSIEST_AT_S], unjudged))
    columns["full_at"] = times(_filled(counts[:, Counts.FULL_AT], unjudged))
    columns["levels"] = _states(levels[:, :CARRIED_LEVELS], len(unjudged))
    columns["marks"] = _states(counts[:, :CARRIED_MARKS], len(unjudged))
    return pa.table({name: columns[name] for name in _NAMED})


def changed_rows(rows: pa.Table, stored: pa.Table) -> tuple[pa.Table, set[Key]]:
    """What is to be written, and whose last state in these rows is another than was stored, or new.

    `full_at` never falls: see the query `fairness_carried`.
    """
    if not stored.num_rows:
        return rows, _last_keys(rows, np.ones(rows.num_rows, bool))
    before = {(row["caller"], row["limit"], row["minute"]): row for row in _alike(stored, rows.schema).to_pylist()}
    kept, moved = np.zeros(rows.num_rows, bool), np.zeros(rows.num_rows, bool)
    full_at = []
    for place, row in enumerate(rows.to_pylist()):
        old = before.get((row["caller"], row["limit"], row["minute"]))
        moved[place] = old is None or old["levels"] != row["levels"] or old["marks"] != row["marks"]
        if old is not None:
            row["full_at"] = max(row["full_at"], old["full_at"])
        kept[place] = old != row
        full_at.append(row["full_at"])
    place_of = rows.schema.get_field_index("full_at")
    rows = rows.set_column(place_of, "full_at", pa.array(full_at, rows.schema.field(place_of).type))
    return rows.filter(pa.array(kept)), _last_keys(rows, moved)


def _last_keys(rows: pa.Table, moved: Any) -> set[Key]:
    """Keys whose last row (rows of one key stand in order of time) is among those that moved, and is judged."""
    last: dict[Key, int] = {}
    names = zip(rows["caller"].to_pylist(), rows["limit"].to_pylist(), rows["judged"].to_pylist(), strict=True)
    for place, (caller, limit, judged) in enumerate(names):
        if judged:
            last[caller, limit] = place
    return {key for key, place in last.items() if moved[place]}


def _alike(stored: pa.Table, schema: pa.Schema) -> pa.Table:
    """The same columns in the types of ours: the engine gives a DateTime as its number of seconds."""
    columns = []
    for name in _NAMED:
        column = stored[name]
        if pa.types.is_unsigned_integer(column.type) and pa.types.is_timestamp(schema.field(name).type):
            column = column.cast(pa.int64())
        columns.append(column.cast(schema.field(name).type))
    return pa.table(columns, schema=schema)


def _filled(column: Any, unjudged: list[Unjudged]) -> Any:
    return np.append(column, np.zeros(len(unjudged), column.dtype))


def _doubles(column: Any, unjudged: list[Unjudged]) -> pa.Array:
    return pa.array(_filled(column, unjudged), pa.float64())


def _seconds(unix_s: Int64s) -> pa.Array:
    return pa.array(unix_s.astype(np.int64), pa.int64()).cast(pa.timestamp("s", "UTC"))


def _states(state: Any, none: int) -> pa.Array:
    """A list a row; empty for rows without a state."""
    offsets = np.append(np.arange(len(state) + 1), [len(state)] * none) * state.shape[1]
    return pa.ListArray.from_arrays(
        pa.array(offsets.astype(np.int32)), pa.array(np.ascontiguousarray(state).reshape(-1))
    )
