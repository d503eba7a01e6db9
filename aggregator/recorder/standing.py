"""Where the recorder stands: which logs have the topics' names now, and how far the record has them.

Asked whenever partitions are given to this reader. Never writes anything.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass

from aggregator.config import ClickHouseDsn
from aggregator.core.record.journal import stored_ends
from aggregator.sql import load_queries
from aggregator.store import Store
from aggregator.store_clickhouse import ClickHouseStore
from aggregator.topic_ids import TopicIds

_STORED_ENDS = load_queries("aggregator.sql", "record.sql")["stored_ends"].sql
#: It is asked for in the thread that reads, which must notice a stop in time.
_ANSWER_S = 2.0


@dataclass(frozen=True, slots=True)
class Standing:
    """What is known of the log at one moment.

    Attributes:
        log_ids: topic → the id of the log that has its name.
        stored_until: (topic, partition) → how far that log is stored by the journal; absent if nothing of it is.
    """

    log_ids: Mapping[str, str]
    stored_until: Mapping[tuple[str, int], int]


class Standpoint:
    """Finds out where the recorder stands. Used by the thread that reads.

    Args:
        topics: what is read.
        topic_ids: asks the broker.
        open_store: opens the database; a fresh handle each time, for it is asked rarely.
    """

    def __init__(self, topics: Sequence[str], topic_ids: TopicIds, open_store: Callable[[], Store]) -> None:
        self._topics = topics
        self._topic_ids = topic_ids
        self._open_store = open_store

    def find(self) -> Standing:
        """Ask both.

        Raises:
            LogUnavailable, StoreUnavailable: one did not answer; ask again.
        """
        log_ids = self._topic_ids.of(self._topics)
        with closing(self._open_store()) as store:
            rows = store.rows(_STORED_ENDS)
        ends = [(str(topic), int(partition), str(log_id), int(end)) for topic, partition, log_id, end in rows]
        return Standing(log_ids, stored_ends(ends, log_ids))


def standpoint(kafka: str, clickhouse: ClickHouseDsn, topics: Sequence[str]) -> Standpoint:
    """The standpoint of a recorder of this log and database."""

    def open_store() -> Store:
        return ClickHouseStore.open(clickhouse, connect_timeout_s=_ANSWER_S, answer_timeout_s=_ANSWER_S)

    return Standpoint(topics, TopicIds(kafka, timeout_s=_ANSWER_S), open_store)
