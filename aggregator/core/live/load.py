"""Stored rows of the `live` table back into a shard's state.

A shard loads a minute or a copy the first time it touches it. What it reads must not be newer than itself: then
another writer has gone on from the same log, and `Moved` says that the shard has to be opened anew.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeAlias, TypeVar

import numpy as np

from aggregator.core.live.callers import NO_PLAN
from aggregator.core.live.shard import CopyKey, CopyMark, Minute, Shard, fleet_key

#: (log_id, version, base)
ProgressRow: TypeAlias = tuple[str, int, int]
#: (version, unix minute, caller, scope, the counts in the order of USAGE_COUNTS, when and until when told, as unix µs)
UsageRow: TypeAlias = tuple[int, int, str, str, Sequence[int], Sequence[int]]
#: (version, unix minute, scope, policy_version, code, the counts)
FleetRow: TypeAlias = tuple[int, int, str, int, int, Sequence[int]]
#: (version, unix minute, caller, plan, rate_per_s, burst, k_counted, copies)
CallerRow: TypeAlias = tuple[int, int, str, str, float, int, int, Sequence[str]]
#: (version, copy_id, epoch, next_seq, sealed_at_us, shift_us)
CopyRow: TypeAlias = tuple[int, str, int, int, int, int]


R = TypeVar("R", UsageRow, FleetRow)


class Moved(Exception):
    """The table holds rows beyond this shard's position: another worker wrote them. Drop the shard, open it anew."""


def open_shard(partition: int, log_id: str, rows: Iterable[ProgressRow]) -> Shard:
    """A shard at the position up to which the table covers this log; at its beginning if it never has.

    A topic that was deleted and made anew starts at offset 0 again, under another `log_id`. Its versions go on above
    everything that was written before, so that totals of a minute that both logs share add up.
    """
    base = 0
    for stored_log, version, stored_base in rows:
        if stored_log == log_id:
            return Shard(partition, log_id, stored_base, version - stored_base)
        base = max(base, version)
    return Shard(partition, log_id, base, 0)


def put_minutes(
    shard: Shard,
    minutes: Iterable[int],
    *,
    usage: Sequence[UsageRow],
    fleet: Sequence[FleetRow],
    callers: Sequence[CallerRow],
) -> None:
    """Give the shard these minutes as they are stored; a minute without rows is empty.

    Raises:
        Moved: a row is newer than the shard; nothing was changed.
    """
    _check_versions(shard, (row[0] for rows in (usage, fleet, callers) for row in rows))
    loaded = {number: Minute(shard.next_offset) for number in minutes}
    for number, totals in _by_minute(usage).items():
        _put_usage(shard, loaded[number], totals)
    for number, fleet_totals in _by_minute(fleet).items():
        _put_fleet(shard, loaded[number], fleet_totals)
    for _, number, caller, plan, rate_per_s, burst, k, copies in callers:
        plan_id = shard.plans.id_of((plan, rate_per_s, burst)) if plan else NO_PLAN
        loaded[number].callers.put(shard.callers.id_of(caller), plan_id, k, copies)
    shard.minutes.update(loaded)
    shard.loaded_rows += sum(minute.rows for minute in loaded.values())


def put_blank(shard: Shard, asked: Iterable[int], stored: Iterable[int]) -> None:
    """Note which of the minutes asked for the table holds nothing of, so that they need not be loaded.

    It has to be asked after the shard was opened. Whoever wrote the progress that the shard stands on wrote everything
    that lies before it, so what the table does not hold by then has nothing that this shard does not count itself.
    """
    shard.blank = set(asked) - set(stored) - shard.minutes.keys()


def put_copies(shard: Shard, keys: Iterable[CopyKey], rows: Sequence[CopyRow]) -> None:
    """Give the shard these copies as they are stored, and the `keys` that have no row as new ones.

    Raises:
        Moved: a row is newer than the shard; nothing was changed.
    """
    _check_versions(shard, (row[0] for row in rows))
    for _, copy_id, epoch, next_seq, sealed_at_us, shift_us in rows:
        shard.copies.setdefault((copy_id, epoch), CopyMark(next_seq, sealed_at_us, shift_us))
    for key in keys:
        shard.copies.setdefault(key, CopyMark())


def _put_usage(shard: Shard, minute: Minute, rows: Sequence[UsageRow]) -> None:
    callers = shard.callers.ids_of([row[2] for row in rows])
    scopes = shard.scopes.ids_of([row[3] for row in rows])
    counts, told = (np.array([row[place] for row in rows], np.int64) for place in (4, 5))
    minute.usage.restore(shard.cells.ids_of(callers, scopes), callers, counts, told)
    minute.callers.put_counts(callers, counts)


def _put_fleet(shard: Shard, minute: Minute, rows: Sequence[FleetRow]) -> None:
    keys = [fleet_key(shard.scopes.id_of(row[2]), row[3], row[4]) for row in rows]
    minute.fleet.put(shard.fleet_cells.ids_of(keys), np.array([row[5] for row in rows], np.int64))


def _by_minute(rows: Sequence[R]) -> dict[int, list[R]]:
    grouped: dict[int, list[R]] = {}
    for row in rows:
        grouped.setdefault(row[1], []).append(row)
    return grouped


def _check_versions(shard: Shard, versions: Iterable[int]) -> None:
    newest = max(versions, default=0)
    if newest > shard.version:
        raise Moved(f"partition {shard.partition}: the table is at version {newest}, this shard at {shard.version}")
