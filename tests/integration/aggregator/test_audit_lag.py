"""``tallygate audit lag`` on a real database, and with a real log."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from confluent_kafka import Producer

from aggregator.audit.lag import reading
from aggregator.audit.lag.action import find
from aggregator.config import AggregatorConfig
from aggregator.replay.claim import Claim, make_claims
from aggregator.topic_ids import TopicIds
from aggregator.words import Answer
from stream.admin import ensure_topics
from stream.contract.topics import DECISIONS, USAGE
from tests.recordrows import record_control
from tests.services import KafkaService
from tests.settling import LOG_ID, SettlingScene, utc_us

pytestmark = pytest.mark.services

_US = 1_000_000


@pytest.fixture
def scene(database_dsn: str) -> Iterator[SettlingScene]:
    made = SettlingScene(database_dsn)
    for table in ("blocks", "control"):
        made.store.command(f"SYSTEM STOP TTL MERGES {table}")
    yield made
    made.close()


def _config(scene: SettlingScene, kafka: str = "127.0.0.1:9") -> AggregatorConfig:
    return AggregatorConfig.from_env(
        {"TALLYGATE_CLICKHOUSE": scene.dsn, "TALLYGATE_KAFKA": kafka, "TALLYGATE_PARTITIONS": "2"}
    )


def _behind(answer: Answer) -> dict[object, tuple[object, object]]:
    """Reader → seconds, messages."""
    facts = [one.facts for one in answer.findings if "reader" in one.facts]
    return {one["reader"]: (one["behind_s"], one["messages"]) for one in facts}


def _minute(scene: SettlingScene, table: str, at: str, offered: int, partition: int = 0, version: int = 1) -> None:
    """A minute of all callers together, as one of the two stages says it."""
    scene.store.command(
        f"INSERT INTO {table} (kind, minute, log_partition, version, offered) "
        f"SELECT 'fleet', toDateTime({{s:UInt32}}, 'UTC'), {partition}, {version}, {offered}",
        {"s": utc_us(at) // _US},
    )


def _mark(scene: SettlingScene, copy_id: str, at: str) -> None:
    """How far the live totals have counted a copy."""
    scene.store.command(
        "INSERT INTO live (kind, copy_id, epoch, version, sealed_at) "
        "SELECT 'copy', {copy_id:String}, 1, 1, fromUnixTimestamp64Micro({at:Int64}, 'UTC')",
        {"copy_id": copy_id, "at": utc_us(at)},
    )


def test_each_reader_is_measured_by_what_the_one_before_it_has(scene: SettlingScene) -> None:
    """Where the log cannot be asked, the record alone tells which of them stands."""
    assert find(scene.store, _config(scene)).agrees is None
    scene.flush(*scene.decisions(5, "2026-11-30T10:00"), stored_at="2026-11-30T10:01")
    scene.flush(*scene.decisions(5, "2026-11-30T10:03"), stored_at="2026-11-30T10:04")
    now_us = utc_us("2026-11-30T10:05")

    behind = find(scene.store, _config(scene), now_us=now_us)
    assert behind.agrees is False
    assert _behind(behind) == {
        "recorder": (0.0, 0),
        "worker": (240.0, 2),
        "second stage": (0.0, None),
        "settler": (210.0, 2),
    }
    assert "settler: 210 s behind, 2 messages (tallygate.decisions[0] 2 messages); has settled nothing; 2 closed" in (
        behind.text()
    )

    scene.store.command(
        "INSERT INTO live (kind, scope, log_partition, version) SELECT 'progress', {log:String}, 0, 5", {"log": LOG_ID}
    )
    scene.settle("2026-11-30T10:05")
    ahead = find(scene.store, _config(scene), now_us=now_us)
    assert _behind(ahead)["recorder"] == (0.0, 3), "nobody knows since when"
    _minute(scene, "live", "2026-11-30T10:03", 5, version=5)
    ahead = find(scene.store, _config(scene), now_us=now_us)
    assert _behind(ahead)["recorder"] == (60.0, 3), "since it stored last, and the worker has counted"
    assert _behind(ahead)["worker"] == _behind(ahead)["settler"] == (0.0, 0)
    assert "settler: 0 s behind, 0 messages; settled up to 2026-11-30T10:04:00.000000Z" in ahead.text()


def test_recorder_of_a_log_that_was_idle_for_hours_is_not_hours_behind(scene: SettlingScene) -> None:
    """The first message after a quiet night is counted a moment before it is on record: no cause to wake anybody."""
    scene.flush(*scene.decisions(5, "2026-11-30T10:00"), stored_at="2026-11-30T10:01")
    scene.settle("2026-11-30T10:05")
    progress = (
        "INSERT INTO live (kind, scope, log_partition, version) SELECT 'progress', {log:String}, 0, {next:UInt64}"
    )
    scene.store.command(progress, {"log": LOG_ID, "next": 2})

    lately = find(scene.store, _config(scene), now_us=utc_us("2026-11-30T22:00"))

    assert lately.agrees is not False
    assert _behind(lately)["recorder"] == (0.0, 1)

    _minute(scene, "live", "2026-11-30T21:59", 5, version=2)
    assert _behind(find(scene.store, _config(scene), now_us=utc_us("2026-11-30T22:02")))["recorder"] == (120.0, 1)


def test_second_stage_is_behind_by_the_first_closed_minute_that_it_lacks(scene: SettlingScene) -> None:
    """It states minutes, and the minute that is under way is always short of something."""
    now_us = utc_us("2026-11-30T10:05")
    scene.flush(*scene.decisions(1, "2026-11-30T10:04"), stored_at="2026-11-30T10:05")
    _mark(scene, "gw-1", "2026-11-30T10:05")
    for minute in ("10:00", "10:01", "10:02", "10:04"):
        _minute(scene, "live", f"2026-11-30T{minute}", 30)
        _minute(scene, "live", f"2026-11-30T{minute}", 10, partition=1)
    _minute(scene, "signals", "2026-11-30T10:00", 40)
    assert _behind(find(scene.store, _config(scene), now_us=now_us))["second stage"] == (180.0, None)

    _minute(scene, "signals", "2026-11-30T10:01", 40)
    _minute(scene, "signals", "2026-11-30T10:02", 39)
    answer = find(scene.store, _config(scene), now_us=now_us)
    assert _behind(answer)["second stage"] == (120.0, None)
    assert "second stage: 120 s behind; 1 request of closed minutes not told to it" in answer.text()

    _minute(scene, "signals", "2026-11-30T10:02", 40, partition=0)
    scene.store.command("OPTIMIZE TABLE signals FINAL")
    answer = find(scene.store, _config(scene), now_us=now_us)
    assert _behind(answer)["second stage"] == (0.0, None)


def test_replay_that_works_is_named(scene: SettlingScene) -> None:
    """It reads the database as a reader does, and makes others late."""
    make_claims(scene.store, scene.dsn.rsplit("/", 1)[1])
    claim = Claim(scene.dsn.rsplit("/", 1)[1], "run-1")
    claim.beat(scene.store)
    assert f"replay: into {scene.dsn.rsplit('/', 1)[1]} by process " in find(scene.store, _config(scene)).text()

    claim.let_go(scene.store)
    assert scene.dsn.rsplit("/", 1)[1] not in find(scene.store, _config(scene)).text()


def test_log_says_how_much_each_reader_has_not_taken(scene: SettlingScene, kafka_broker: KafkaService) -> None:
    """A recorder that stands with the worker beside it is found by the log alone."""
    ensure_topics(kafka_broker.bootstrap, partitions=2, timeout_s=60)
    producer = Producer({"bootstrap.servers": kafka_broker.bootstrap, "linger.ms": 200, "log_level": 0})
    written_us = time.time_ns() // 1_000
    for topic, partition in ((DECISIONS.name, 0), (DECISIONS.name, 0), (DECISIONS.name, 1), (USAGE.name, 1)):
        producer.produce(topic, b"message", b"gw-1", partition)
    assert 0 == producer.flush(30)
    (log_id,) = TopicIds(kafka_broker.bootstrap, timeout_s=30).of([DECISIONS.name]).values()
    scene.store.command(
        "INSERT INTO recorded (topic, log_partition, log_id, next_offset, stored_at) SELECT {topic:String}, 0, "
        "{log_id:String}, 1, fromUnixTimestamp64Micro({at:Int64}, 'UTC')",
        {"topic": DECISIONS.name, "log_id": log_id, "at": written_us},
    )
    _minute(scene, "signals", "2026-11-30T10:00", 40)
    config = _config(scene, kafka_broker.bootstrap)

    answer = find(scene.store, config, log=True, now_us=written_us + 100 * _US)
    assert answer.agrees is False
    assert answer.facts["behind"] == ["recorder", "worker", "second stage"]
    for reader, messages in (("recorder", 2), ("worker", 3), ("second stage", 1)):
        behind_s, found = _behind(answer)[reader]
        assert (found, behind_s) == (messages, pytest.approx(98, abs=4)), reader
    assert "tallygate.decisions[1] 1 message" in answer.text()


def test_log_that_does_not_answer_leaves_what_the_record_says(
    scene: SettlingScene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kafka is often the cause of the night; what is known without it is told all the same."""
    monkeypatch.setattr(reading, "_ANSWER_S", 0.5)
    scene.flush(*scene.decisions(5, "2026-11-30T10:00"), stored_at="2026-11-30T10:01")
    scene.settle("2026-11-30T10:05")

    answer = find(scene.store, _config(scene), log=True, now_us=utc_us("2026-11-30T10:02"), within_s=70)

    assert answer.agrees is None
    assert "cannot say: the log did not answer; by the record alone, the last was recorded 60 s ago" in answer.text()
    assert "log: Kafka at 127.0.0.1:9 (TALLYGATE_KAFKA) did not say" in answer.text()
    assert "worker: 60 s behind, 1 message" in answer.text()


def test_copies_that_stopped_are_not_late(scene: SettlingScene) -> None:
    """A release takes every copy away; only those that said nothing are worth a look."""
    now_us = utc_us("2026-11-30T10:05")
    for copy_id in ("gw-1", "gw-2"):
        scene.store.command(
            "INSERT INTO blocks (copy_id, epoch, sealed_at, shift_us) "
            "SELECT {copy_id:String}, 7, fromUnixTimestamp64Micro({at:Int64}, 'UTC'), 9000000",
            {"copy_id": copy_id, "at": utc_us("2026-11-30T10:02")},
        )
    record_control(scene.store, "copy_stopped", copy_id="gw-1", epoch=7, at_us=utc_us("2026-11-30T10:02"))

    text = find(scene.store, _config(scene), now_us=now_us).text()

    assert (
        "copies: 1 heard of in the last 10 minutes, 1 late (gw-2 180 s); 1 with a wrong clock, corrected (gw-2" in text
    )
