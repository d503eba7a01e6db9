"""A log, a database and recorders as processes: what the recorder's integration tests stand on."""

from __future__ import annotations

import os
import sys
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition

from aggregator.migrate import migrate
from aggregator.store_clickhouse import ClickHouseStore
from stream.admin import ensure_topics
from stream.contract.topics import CONTROL, DECISIONS, GRANTS
from tallygate.engines.process import Child, Command, spawn
from tests.keeping import KEEP_ALL
from tests.logfill import Counted
from tests.processes import wait_until

PARTITIONS = 4
GROUP = "tallygate-recorder"
#: How long anything may take on a slow machine. Nothing waits for so long: it waits for what it names.
_LIMIT_S = 120.0
_ROOT = Path(__file__).parents[3]


class Recording:
    """One log and one database. Makes the topics and tables, starts recorders, and looks at both from outside."""

    def __init__(self, bootstrap: str, dsn: str, folder: Path) -> None:
        self.bootstrap = bootstrap
        self.dsn = dsn
        self._folder = folder
        self._started = 0
        self._sent = 0
        self.children: list[Child] = []
        ensure_topics(bootstrap, partitions=PARTITIONS, timeout_s=60)
        migrate(dsn)

    def start(self, **settings: str) -> Child:
        """Start a recorder; settings are given without their prefix, in small letters."""
        self._started += 1
        environ = {
            **{name: value for name, value in os.environ.items() if not name.startswith("TALLYGATE_")},
            "TALLYGATE_KAFKA": self.bootstrap,
            "TALLYGATE_CLICKHOUSE": self.dsn,
            "TALLYGATE_PARTITIONS": str(PARTITIONS),
            "TALLYGATE_SESSION_TIMEOUT_MS": "3000",
            **KEEP_ALL,
            **{f"TALLYGATE_{name.upper()}": value for name, value in settings.items()},
        }
        log = self._folder / f"recorder-{self._started}.log"
        child = spawn(Command("recorder", [sys.executable, "-m", "aggregator.recorder"], log, environ, _ROOT))
        self.children.append(child)
        return child

    def send(self, messages: Sequence[tuple[str, bytes]], *, topic: str = DECISIONS.name) -> None:
        """Send messages as a copy would: keyed, and returned from once they are stored."""
        producer = Producer({"bootstrap.servers": self.bootstrap, "acks": "all", "enable.idempotence": True})
        for key, value in messages:
            # A key's messages go to one partition, whatever the client's own rule is.
            producer.produce(topic, value, key.encode(), zlib.crc32(key.encode()) % PARTITIONS)
            producer.poll(0)
        left = producer.flush(60)
        assert not left, f"{left} messages were not delivered"
        self._sent += len(messages)

    def rows(self, sql: str, parameters: Mapping[str, object] | None = None) -> list[tuple[object, ...]]:
        """What a SELECT gives, on a fresh connection."""
        store = ClickHouseStore.connect(self.dsn)
        try:
            return list(store.rows(sql, parameters))
        finally:
            store.close()

    def number(self, sql: str) -> int:
        """What a SELECT of one number gives."""
        return int(str(self.rows(sql)[0][0]))

    def repeated(self) -> int:
        """Blocks that stand in the log again after their first time: what producers sent twice."""
        return self.number(
            "SELECT count() - uniqExact(copy_id, epoch, first_seq, block_hash) FROM blocks FINAL WHERE decisions > 0"
        )

    def conflicting(self) -> int:
        """Decisions that came under an identity that the record holds with other content."""
        return self.number("SELECT count() FROM conflicts FINAL")

    def decisions(self) -> int:
        """Decisions in the record, each identity once."""
        return self.number("SELECT count() FROM decisions FINAL")

    def by_caller(self) -> dict[str, Counted]:
        """The record's totals for each caller."""
        rows = self.rows("SELECT caller, count(), sum(allowed), sum(cost_tokens) FROM decisions FINAL GROUP BY caller")
        return {str(caller): Counted(*(int(str(number)) for number in numbers)) for caller, *numbers in rows}

    def by_cell(self) -> dict[tuple[str, str, int, int], int]:
        """The record's counts for each caller, scope, minute and outcome."""
        rows = self.rows(
            "SELECT caller, scope, toUnixTimestamp(toStartOfMinute(at)), toInt8(source) * 16 + toInt8(reason), count() "
            "FROM decisions FINAL GROUP BY ALL"
        )
        return {
            (str(caller), str(scope), int(str(minute)), int(str(code))): int(str(count))
            for caller, scope, minute, code, count in rows
        }

    def wait_for_all(self) -> None:
        """Return once everything that `send` sent is acknowledged: only then are the rows of every table stored."""

        def all_of_them() -> bool:
            # A broker that has just started does not know its groups yet.
            with suppress(KafkaException):
                return self.acknowledged() >= self._sent
            return False

        wait_until(all_of_them, _LIMIT_S, what=f"{self._sent} messages", poll_s=0.2)

    def wait_for(self, decisions: int, timeout_s: float = _LIMIT_S) -> None:
        """Return once the record holds so many decisions; rows of other tables may come a moment later."""
        wait_until(
            lambda: self.decisions() >= decisions, timeout_s, what=f"a record of {decisions} decisions", poll_s=0.2
        )

    def wait_for_log(self, child: Child, text: str, timeout_s: float = _LIMIT_S) -> None:
        """Return once a recorder has said something."""
        wait_until(lambda: text in child.log_path.read_text(), timeout_s, what=f"{text!r} in the log", poll_s=0.1)

    def acknowledged(self) -> int:
        """Messages of all topics that the group has acknowledged, from the beginning of the log."""
        with _consumer(self.bootstrap) as consumer:
            places = [
                TopicPartition(topic.name, partition)
                for topic in (DECISIONS, GRANTS, CONTROL)
                for partition in range(PARTITIONS)
            ]
            return sum(max(place.offset, 0) for place in consumer.committed(places, timeout=60))

    def acknowledge(self, offset: int) -> None:
        """Say in the group's name that it has read so far in each partition of the decisions."""
        with _consumer(self.bootstrap) as consumer:
            places = [TopicPartition(DECISIONS.name, partition, offset) for partition in range(PARTITIONS)]
            consumer.commit(offsets=places, asynchronous=False)

    def read(self, topic: str, count: int, timeout_s: float = _LIMIT_S) -> list[Message]:
        """The first messages of a topic, over all its partitions."""
        found: list[Message] = []
        with _consumer(self.bootstrap) as consumer:
            consumer.assign([TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)])

            def enough() -> bool:
                found.extend(message for message in consumer.consume(100, 0.2) if message.error() is None)
                return len(found) >= count

            wait_until(enough, timeout_s, what=f"{count} messages in {topic}")
        return found

    def stop(self) -> None:
        """End what was started."""
        for child in self.children:
            child.stop(timeout_s=60)


@contextmanager
def recording(bootstrap: str, dsn: str, folder: Path) -> Iterator[Recording]:
    """A recording whose recorders end with the block; shows what they said if it fails."""
    made = Recording(bootstrap, dsn, folder)
    try:
        yield made
    except BaseException:
        for child in made.children:
            sys.stderr.write(f"--- {child.log_path.name}\n{child.log_tail(40)}\n")
        raise
    finally:
        made.stop()


@contextmanager
def _consumer(bootstrap: str) -> Iterator[Consumer]:
    settings: Mapping[str, str | int | bool] = {
        "bootstrap.servers": bootstrap,
        "group.id": GROUP,
        "enable.auto.commit": False,
        "auto.offset.reset": "earliest",
        "log_level": 0,
    }
    consumer = Consumer(dict(settings))
    try:
        yield consumer
    finally:
        consumer.close()
