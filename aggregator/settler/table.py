"""The settler's side of the journal, of its own progress, and of what it finds, on top of `Store`.

Blocking, for one thread. Holds no state, and decides nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import pyarrow as pa

from aggregator.core.settled.agreement import Difference, Disagreement
from aggregator.core.settled.settling import MINUTE_US, Log, Progress
from aggregator.settler.naming import in_groups
from aggregator.sql import load_queries
from aggregator.store import ColumnStore, values_of
from stream.contract.topics import DECISIONS

_NAME = "settler"
_POSITIONS = pa.list_(
    pa.struct([("log_id", pa.string()), ("log_partition", pa.uint16()), ("next_offset", pa.uint64())])
)
_DAYS = pa.list_(pa.struct([("day", pa.uint32()), ("since", pa.uint64())]))
_MINUTES = pa.list_(pa.uint32())
_TIME = pa.timestamp("us", "UTC")
#: Minutes in one INSERT: two months.
_MOST_ROWS = 90_000


class SettlingTables:
    """The named queries of `settle.sql` that read, and the rows that are not recounts."""

    def __init__(self, store: ColumnStore) -> None:
        self.store = store
        self._queries = load_queries("aggregator.sql", "settle.sql")

    def progress(self) -> Progress:
        """Where the settlers stand; at the beginning if none ever wrote it."""
        rows = self._rows("settle_progress", settler=_NAME)
        if not rows:
            return Progress()
        _, positions, minutes, days, unchecked = rows[0]
        return Progress(
            {(str(log_id), int(partition)): int(offset) for log_id, partition, offset in map(values_of, positions)},
            [int(minute) for minute in minutes],
            {int(day): int(since) for day, since in map(values_of, days)},
            [int(minute) for minute in unchecked],
        )

    def write_progress(self, progress: Progress, at_us: int) -> None:
        """Store it; afterwards a settler that starts goes on from there."""
        positions = [
            {"log_id": log_id, "log_partition": partition, "next_offset": offset}
            for (log_id, partition), offset in progress.positions.items()
        ]
        days = [{"day": day, "since": since} for day, since in progress.days.items()]
        row = {
            "name": pa.array([_NAME]),
            "version": pa.array([progress.version], pa.uint64()),
            "stored_at": pa.array([at_us], _TIME),
            "positions": pa.array([positions], _POSITIONS),
            "minutes": pa.array([list(progress.minutes)], _MINUTES),
            "days": pa.array([days], _DAYS),
            "unchecked": pa.array([list(progress.unchecked)], _MINUTES),
        }
        self.store.insert("settled_progress", pa.table(row))

    def logs(self, known: Collection[Log] = ()) -> list[Log]:
        """The logs and partitions of decisions that the journal knows, but those that are known."""
        places = [(partition, log_id) for log_id, partition in sorted(known)]
        rows = self._rows("settle_logs", topic=DECISIONS.name, known=places)
        return [(str(log_id), int(partition)) for log_id, partition in rows]

    def news(self, log: Log, position: int) -> tuple[int, list[int]] | None:
        """How far the journal of one log reaches, and which minutes it dirtied beyond a position; None if nothing."""
        log_id, partition = log
        rows = self._rows("settle_news", topic=DECISIONS.name, log_id=log_id, partition=partition, position=position)
        return (int(rows[0][0]), [int(minute) for minute in rows[0][1]]) if rows else None

    def live_progress(self) -> dict[Log, tuple[int, int]]:
        """Of each log and partition how far the live totals cover it: the next offset, and the version."""
        return {
            (str(log_id), int(partition)): (int(next_offset), int(version))
            for log_id, partition, next_offset, version in self._rows("settle_live_progress")
        }

    def differences(self, minutes: Collection[int], most: int) -> list[Difference]:
        """Callers whose live totals of these minutes are not the settled ones, at most so many."""
        low, high = min(minutes), max(minutes) + 1
        rows = self._rows("settle_compare", minutes=sorted(minutes), low_s=low * 60, high_s=high * 60, most=most)
        return [
            Difference(int(minute), str(caller), *(int(number) for number in counts))
            for minute, caller, *counts in rows
        ]

    def open_disagreements(self, most: int) -> list[Disagreement]:
        """What was found before and is not over, newest first."""
        return [
            Disagreement(
                Difference(int(minute), str(who), *(int(n) for n in counts)), int(found), int(version), str(why)
            )
            for minute, who, found, *counts, version, why in self._rows("settle_open_disagreements", most=most)
        ]

    def redriven(self, minutes: Collection[int], callers: Collection[str]) -> dict[tuple[int, str], tuple[int, int]]:
        """(minute, caller) → its decisions that were re-driven, and how many of them were admitted."""
        span = {"low_us": min(minutes) * MINUTE_US, "high_us": (max(minutes) + 1) * MINUTE_US, "topic": DECISIONS.name}
        ((marks,),) = self._rows("settle_redrives", topic=DECISIONS.name, since_us=span["low_us"])
        rows = [
            row
            for group in (in_groups(callers) if marks else ())
            for row in self._rows("settle_redriven", callers=group, **span)
        ]
        return {(int(minute), str(who)): (int(offered), int(admitted)) for minute, who, offered, admitted in rows}

    def write_disagreements(self, found: Sequence[Disagreement], *, gone_us: int = 0) -> None:
        """Store what was found, or, with the time when it was over, that it is."""
        differences = [one.difference for one in found]
        self.store.insert(
            "disagreements",
            pa.table(
                {
                    "kind": pa.array(["live"] * len(found)),
                    "minute": _minute_times([one.minute for one in differences]),
                    "caller": pa.array([one.caller for one in differences]),
                    "found_at": pa.array([one.found_us for one in found], _TIME),
                    "gone_at": pa.array([gone_us] * len(found), _TIME),
                    "live_offered": pa.array([one.live_offered for one in differences], pa.uint64()),
                    "live_admitted": pa.array([one.live_admitted for one in differences], pa.uint64()),
                    "settled_offered": pa.array([one.settled_offered for one in differences], pa.uint64()),
                    "settled_admitted": pa.array([one.settled_admitted for one in differences], pa.uint64()),
                    "version": pa.array([one.version for one in found], pa.uint64()),
                    "cause": pa.array([one.cause for one in found]),
                }
            ),
        )

    def write_too_late(self, minutes: Sequence[int], version: int, at_us: int) -> None:
        """Store that these minutes changed and were not recounted; a record from before the settler may have years."""
        for start in range(0, len(minutes), _MOST_ROWS):
            part = minutes[start : start + _MOST_ROWS]
            none = pa.array([0] * len(part), pa.uint64())
            self.store.insert(
                "disagreements",
                pa.table(
                    {
                        "kind": pa.array(["too_late"] * len(part)),
                        "minute": _minute_times(part),
                        "caller": pa.array([""] * len(part)),
                        "found_at": pa.array([at_us] * len(part), _TIME),
                        "gone_at": pa.array([0] * len(part), _TIME),
                        **dict.fromkeys(("live_offered", "live_admitted", "settled_offered", "settled_admitted"), none),
                        "version": pa.array([version] * len(part), pa.uint64()),
                    }
                ),
            )

    def _rows(self, name: str, **parameters: Any) -> Sequence[tuple[Any, ...]]:
        return self.store.rows(self._queries[name].sql, parameters)


def _minute_times(minutes: Sequence[int]) -> pa.Array:
    return pa.array([minute * MINUTE_US for minute in minutes], _TIME)
