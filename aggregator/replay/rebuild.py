"""Runs the recorder and the settler, the very ones, on a shadow database until they have come as far as is asked.

Never writes into the database in use, never commits an offset of the recorder in use, and sends no dead letter twice.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from aggregator.config import AggregatorConfig
from aggregator.core.record.letters import DeadLetter
from aggregator.log_ends import LogEnds
from aggregator.recorder.dead_letters import DeadLetterTopic
from aggregator.recorder.erasures import Erasures
from aggregator.recorder.loop import Recorder
from aggregator.recorder.writer import Writer
from aggregator.settler.loop import Settler
from aggregator.settler.process import passes
from aggregator.sql import load_queries
from aggregator.store import ColumnStore, Store
from aggregator.store_clickhouse import ClickHouseStore
from stream.contract.topics import CONTROL, DECISIONS, GRANTS

_QUERIES = load_queries("aggregator.sql", "replay.sql")
_TOPICS = (DECISIONS.name, GRANTS.name, CONTROL.name)
_ANSWER_S = 600.0
_EVERY_S = 1.0
_TIMEOUT_S = 30.0
Progress = Callable[[str], None]
Place = tuple[str, int]


class _Unsent(DeadLetterTopic):
    """Dead letters of a replay stand in its table only: those who watch the topic have had them."""

    def send(self, letters: Sequence[DeadLetter]) -> None:
        """Send nothing."""


def log_ends(config: AggregatorConfig) -> tuple[dict[Place, int], bool]:
    """(topic, partition) → the first offset that is not written yet; and whether the log begins at its beginning.

    Raises:
        LogUnavailable: the broker does not say.
    """
    places = [(topic, partition) for topic in _TOPICS for partition in range(config.partitions)]
    with LogEnds(config.kafka, timeout_s=_TIMEOUT_S) as log:
        reaches = log.of(places)
    ends = {place: reach.end if reach.end > reach.low else 0 for place, reach in reaches.items()}
    return ends, all(reach.low == 0 for reach in reaches.values())


def journaled(store: Store) -> dict[tuple[str, int, str], int]:
    """(topic, partition, id of the log) → the first offset that is not on record.

    Raises:
        StoreUnavailable, StoreRefused: it could not be asked.
    """
    rows = store.rows(_QUERIES["journaled"].sql)
    return {(str(topic), int(part), str(log_id)): int(end) for topic, part, log_id, end in rows}


def holds(rebuilt: Mapping[tuple[str, int, str], int], in_use: Mapping[tuple[str, int, str], int]) -> bool:
    """Whether one journal reaches as far as another in every log: then its record lacks nothing of the other's.

    A log of another id, or of none because it was read before ids were written down, is another log: the topic may have
    been made anew, and offsets say nothing of what it held before.
    """
    return all(rebuilt.get(log, 0) >= end for log, end in in_use.items())


def record(
    config: AggregatorConfig, ends: Mapping[Place, int], log: logging.Logger, progress: Progress,
    *, unix_us: Callable[[], int], monotonic_s: Callable[[], float],
) -> None:  # fmt: skip
    """Record the log into the database of `config`, up to these offsets.

    Raises:
        StoreRefused, LogUnavailable: see `Recorder.run`.
    """
    writer = Writer(
        lambda: ClickHouseStore.open(config.clickhouse), _Unsent(config.kafka, log), log, unix_us=unix_us,
        erasures=Erasures(monotonic_s),
    )  # fmt: skip
    recorder = Recorder(config, writer, log, unix_us=unix_us)
    done = threading.Event()
    store = ClickHouseStore.open(config.clickhouse)
    try:
        due_s = monotonic_s()
        while True:
            recorder.step()
            if monotonic_s() < due_s:
                continue
            due_s = monotonic_s() + _EVERY_S
            stored = {(str(topic), int(part)): int(end) for topic, part, end in store.rows(_QUERIES["stored_ends"].sql)}
            left = sum(max(end - stored.get(place, 0), 0) for place, end in ends.items())
            progress(f"recorded {recorder.recorded_decisions:,} decisions, {left:,} messages left")
            if not left:
                break
    finally:
        done.set()
        recorder.run(done)
        store.close()


def settle(
    config: AggregatorConfig, log: logging.Logger, progress: Progress, *, unix_us: Callable[[], int],
    from_us: int | None = None,
) -> int:  # fmt: skip
    """Settle every closed minute of the database of `config`; returns how many. Arguments: see `Settler`.

    Raises:
        StoreRefused, StoreUnavailable: see `Settler.round`.
    """
    opened: list[ColumnStore] = []

    def open_store() -> ColumnStore:
        opened.append(ClickHouseStore.open(config.clickhouse, answer_timeout_s=_ANSWER_S))
        return opened[-1]

    settler = Settler(config, open_store, passes(), log, unix_us=unix_us, from_us=from_us)
    try:
        more = True
        while more:
            more = settler.round()
            progress(f"settled {settler.settled_minutes:,} minutes")
    finally:
        for store in opened:
            store.close()
    return settler.settled_minutes


def apart(config: AggregatorConfig, database: str) -> AggregatorConfig:
    """The same settings for a database of another name, with a consumer group of its own."""
    group = f"{config.recorder_group[:60]}-replay-{database}"
    return replace(config, clickhouse=replace(config.clickhouse, database=database), recorder_group=group)
