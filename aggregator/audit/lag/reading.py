"""What the record knows of each reader's place, and what the log adds to it. Reads only; judges nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from aggregator.audit.lag.judging import CopyHeard, ReaderLag, Unread
from aggregator.config import AggregatorConfig
from aggregator.core.settled.settling import MINUTE_US, Backlog
from aggregator.log_ends import LogEnds, Partition, Reach
from aggregator.settler.table import SettlingTables
from aggregator.sql import load_queries
from aggregator.store import ColumnStore
from aggregator.topic_ids import TopicIds
from aggregator.words import moment, plural
from stream.contract.topics import CONTROL, DECISIONS, GRANTS, USAGE

_RECORDED = (DECISIONS.name, GRANTS.name, CONTROL.name)
_FILES = ("audit_lag.sql", "signals.sql", "dead_letters.sql", "live.sql")
_US = 1_000_000
#: The second stage keeps so much; what it lacks of earlier minutes nobody will tell it.
_TOLD_S = 14 * 60
#: How long before a minute's last totals have been told, at the latest, where all is well.
_TELLING_US = 15 * _US
#: A copy that is silent for longer is not waited for, as on the pages.
_COPIES_US = 600 * _US
#: As long as a replay's claim holds without a sign of life (`aggregator.replay.claim`).
CLAIM_LAPSES_S = 30
_ANSWER_S = 10.0


@dataclass(frozen=True, slots=True)
class LogView:
    """What the log says.

    Attributes:
        log_ids: topic → its id.
        reaches: where each partition begins and ends.
        committed: what the second stage has acknowledged.
    """

    log_ids: Mapping[str, str]
    reaches: Mapping[Partition, Reach]
    committed: Mapping[Partition, int]


class LagReading:
    """The questions, each asked once. For one answer.

    Args:
        store: the record.
        config: grace of the settler, partitions, where the log is.
        now_us: the time to judge by; the database's clock if None.
    """

    def __init__(self, store: ColumnStore, config: AggregatorConfig, *, now_us: int | None = None) -> None:
        self._store = store
        self._config = config
        self._queries = {name: one for file in _FILES for name, one in load_queries("aggregator.sql", file).items()}
        self._tables = SettlingTables(store)
        self.now_us = int(self._rows("lag_now")[0][0]) if now_us is None else now_us
        self._stored: dict[tuple[str, int, str], tuple[int, int]] = {}
        #: The log that was recorded last, by topic and partition.
        self._newest: dict[Partition, str] = {}
        for topic, partition, log_id, next_offset, stored_us in self._rows("lag_recorded"):
            self._stored[topic, partition, log_id] = (int(next_offset), int(stored_us))
            self._newest.setdefault((topic, partition), log_id)
        self._live = self._tables.live_progress()

    @property
    def newest_us(self) -> int | None:
        """When anything was recorded last; None if never."""
        return max((stored_us for _, stored_us in self._stored.values()), default=None)

    def look(self) -> LogView:
        """Ask the log.

        Raises:
            LogUnavailable: it does not answer, or lacks a topic.
        """
        config = self._config
        places = [(topic, part) for topic in (*_RECORDED, USAGE.name) for part in range(config.partitions)]
        ids = TopicIds(config.kafka, timeout_s=_ANSWER_S).of([*_RECORDED, USAGE.name])
        table_id = str(self._rows("live_table_id")[0][0])
        with LogEnds(config.kafka, group=f"{config.signals_group}-{table_id}", timeout_s=_ANSWER_S) as log:
            reaches = log.of(places)
            return LogView(ids, reaches, log.committed([place for place in places if place[0] == USAGE.name]))

    def of_the_log(self, view: LogView | None) -> tuple[ReaderLag, ReaderLag, ReaderLag]:
        """How far recorder, worker and second stage are: behind the log, or without it behind each other.

        Raises:
            LogUnavailable: the log does not say since when its messages wait.
        """
        return self._recorder(view), self._worker(view), self._second_stage(view)

    def _recorder(self, view: LogView | None) -> ReaderLag:
        def position(topic: str, partition: int, log_id: str) -> int:
            return self._stored.get((topic, partition, log_id), (0, 0))[0]

        unread = list(self._not_recorded()) if view is None else self._unread(view, _RECORDED, position)
        newest = self.newest_us
        until = "" if newest is None else f"last stored at {moment(newest)}"
        return ReaderLag("recorder", _since(unread), unread, until, facts={"stored_us": newest})

    def _worker(self, view: LogView | None) -> ReaderLag:
        def position(_topic: str, partition: int, log_id: str) -> int:
            return self._live.get((log_id, partition), (0, 0))[0]

        unread = list(self._not_counted()) if view is None else self._unread(view, (DECISIONS.name,), position)
        return ReaderLag("worker", _since(unread), unread, in_use=bool(self._live or unread))

    def _second_stage(self, view: LogView | None) -> ReaderLag:
        def position(topic: str, partition: int, _log_id: str) -> int:
            return view.committed.get((topic, partition), 0) if view else 0

        last_s = int(self._rows("lag_last_told")[0][0])
        in_use = last_s > 0 or bool(view and view.committed)
        behind_us, requests = self._not_told(last_s)
        unread = None if view is None else self._unread(view, (USAGE.name,), position) if in_use else []
        since = _since(unread or [])
        if in_use and behind_us:
            since = min(self.now_us - behind_us, since or self.now_us)
        until = f"{plural(requests, 'request')} of closed minutes not told to it" if in_use and requests else ""
        return ReaderLag("second stage", since, unread, until, in_use, {"requests_not_told": requests})

    def _not_told(self, last_s: int) -> tuple[int, int]:
        """By how much the first closed minute that the signals lack lies before what is counted; and their requests."""
        counted = self._rows("signals_lag", since_us=self.now_us - _COPIES_US)
        until_us = min((int(newest_us) for _, _, newest_us, _ in counted), default=self.now_us)
        to_s = max((until_us - _TELLING_US) // MINUTE_US, 0) * 60
        from_s = max(to_s - _TOLD_S, 0)
        first_s, requests = self._rows("lag_untold", from_s=from_s, to_s=to_s)[0]
        if not requests:
            return 0, 0
        # The whole span may lack, and more before it.
        whole_s = last_s if int(first_s) < from_s + 60 and 0 < last_s < from_s else int(first_s)
        return until_us - (whole_s + 60) * _US, int(requests)

    def settler(self) -> ReaderLag:
        """How far the settled totals are: since when a closed minute waits, and what of the journal is not heeded."""
        progress = self._tables.progress()
        backlog = Backlog(progress, grace_us=self._config.settle_grace_s * _US)
        unread = []
        for log in sorted((log_id, part) for topic, part, log_id in self._stored if topic == DECISIONS.name):
            position = backlog.positions.get(log, 0)
            news = self._tables.news(log, position)
            if news is not None:
                unread.append(Unread(DECISIONS.name, log[1], news[0] - position, None))
                backlog.note(log, *news)
        closed = sorted(backlog.due(self.now_us, len(backlog.dirty)))
        over = (self.now_us - self._config.settle_grace_s * _US) // MINUTE_US
        settled_us = min(backlog.dirty, default=over) * MINUTE_US if progress.positions else None
        until = "has settled nothing" if settled_us is None else f"settled up to {moment(settled_us)}"
        if closed:
            until += f"; {plural(len(closed), 'closed minute')} not settled, the first {moment(closed[0] * MINUTE_US)}"
        facts = {
            "settled_us": settled_us,
            "minutes_not_settled": len(closed),
            "first_not_settled_us": closed[0] * MINUTE_US if closed else None,
        }
        behind_us = backlog.behind_us(self.now_us)
        return ReaderLag("settler", self.now_us - behind_us if behind_us else None, unread, until, facts=facts)

    def copies(self) -> list[CopyHeard]:
        """The copies that were heard of lately and have not said that they stopped."""
        rows = self._rows("lag_copies", since_us=self.now_us - _COPIES_US)
        return [CopyHeard(str(name), int(sealed_us), int(shift_us)) for name, sealed_us, shift_us in rows]

    def letters(self) -> tuple[int, int]:
        """How many dead letters are open, and when the oldest was seen."""
        number, oldest_us = self._rows("open_letters")[0]
        return int(number), int(oldest_us)

    def replays(self) -> list[tuple[str, str, str]]:
        """Where replays work, who they are, and since when."""
        if not self._rows("lag_shadows"):
            return []
        found = self._rows("lag_replays", lapses_s=CLAIM_LAPSES_S)
        return [(str(database), str(who), str(since)) for database, who, since in found]

    def _unread(self, view: LogView, topics: Sequence[str], position: Callable[[str, int, str], int]) -> list[Unread]:
        """What lies between a reader's positions and the ends of the log; what the log no longer has is not counted."""
        waiting = {}
        for (topic, partition), (low, end) in view.reaches.items():
            at = max(position(topic, partition, view.log_ids.get(topic, "")), low)
            if topic in topics and at < end:
                waiting[topic, partition] = at
        if not waiting:
            return []
        with LogEnds(self._config.kafka, timeout_s=_ANSWER_S) as log:
            since = log.appended_us(waiting)
        return [Unread(*place, view.reaches[place].end - at, since.get(place)) for place, at in waiting.items()]

    def _not_recorded(self) -> Iterator[Unread]:
        for (log_id, partition), (live, version) in self._youngest().items():
            recorded, stored_us = self._stored.get((DECISIONS.name, partition, log_id), (0, 0))
            if live > recorded:
                # It may have been idle since it was stored last: what was counted since says when it was not.
                place = {
                    "partition": partition,
                    "version": version - live + recorded,
                    "from_s": max(0, stored_us // _US - 60),
                }
                counted = self._rows("lag_counted_since", **place)
                since_us = max(stored_us, int(counted[0][0]) * _US) if counted else None
                yield Unread(DECISIONS.name, partition, live - recorded, since_us)

    def _not_counted(self) -> Iterator[Unread]:
        for (topic, partition), log_id in self._newest.items():
            recorded, _ = self._stored[topic, partition, log_id]
            live, _ = self._live.get((log_id, partition), (0, 0))
            if topic == DECISIONS.name and live < recorded:
                named = {"topic": topic, "partition": partition, "log_id": log_id, "offset": live}
                since = self._rows("lag_stored_since", **named)
                yield Unread(topic, partition, recorded - live, int(since[0][0]) if since else None)

    def _youngest(self) -> dict[tuple[str, int], tuple[int, int]]:
        """Of each partition the log that the live totals have come to, as in `SettlingTables.live_progress`."""
        youngest: dict[int, tuple[str, int]] = {}
        for (log_id, partition), (_, version) in self._live.items():
            if version >= youngest.get(partition, ("", -1))[1]:
                youngest[partition] = (log_id, version)
        return {(log_id, part): self._live[log_id, part] for part, (log_id, _) in youngest.items()}

    def _rows(self, name: str, **parameters: Any) -> Sequence[tuple[Any, ...]]:
        return self._store.rows(self._queries[name].sql, parameters)


def _since(unread: Sequence[Unread]) -> int | None:
    return min((one.since_us for one in unread if one.since_us is not None), default=None)
