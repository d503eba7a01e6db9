"""Letters reach Kafka once it takes them, whatever the client reports meanwhile."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from confluent_kafka import KafkaError

from stream.config import StreamConfig
from stream.contract.topics import DECISIONS, GRANTS
from stream.courier import Courier
from stream.outbox import Letter, Outbox
from tests.unit.stream.fake_producer import FakeProducer, fault


class Bench:
    """A courier with an outbox of letters and a fake client."""

    def __init__(self, letters: int = 0) -> None:
        self.producers: list[FakeProducer] = []
        self.outbox = Outbox()
        self.delivered: list[Letter] = []
        self.refused: list[Letter] = []
        self.topics_made = 0
        self.courier = Courier(
            StreamConfig(),
            "gw-017",
            self.outbox,
            on_delivered=self.delivered.append,
            on_refused=self.refused.append,
            make_producer=self._make,
            make_topics=self._make_topics,
        )
        for number in range(letters):
            self.outbox.put(Letter(DECISIONS.name, b"k", b"%d" % number, [("a", b"b")], first_seq=number, decisions=1))

    @property
    def producer(self) -> FakeProducer:
        return self.producers[-1]

    def values(self) -> list[bytes]:
        return [message["value"] for message in self.producer.pending]

    def _make_topics(self, bootstrap: str, *, partitions: int, timeout_s: float) -> None:
        self.topics_made += 1

    def _make(self, settings: dict[str, Any]) -> FakeProducer:
        self.producers.append(FakeProducer(settings))
        return self.producers[-1]


def test_producer_is_idempotent_and_never_gives_up_by_itself() -> None:
    """Exactness and order at the broker, and one place that decides what is lost."""
    settings = Bench().producer.settings
    assert (True, 1) == (settings["enable.gapless.guarantee"], settings["max.in.flight.requests.per.connection"])
    assert (True, "all", 0, "lz4") == (
        settings["enable.idempotence"],
        settings["acks"],
        settings["message.timeout.ms"],
        settings["compression.type"],
    )


def test_letter_is_settled_only_by_the_delivery_report() -> None:
    """Handed to the client is not yet on the log."""
    bench = Bench(2)
    bench.courier.pump(now_s=0.0)
    assert ([b"0", b"1"], [], 2) == (bench.values(), bench.delivered, len(bench.outbox))
    bench.producer.deliver(1)
    assert ([b"0"], 1) == ([letter.value for letter in bench.delivered], len(bench.outbox))


def test_explicit_partition_is_kept_and_none_lets_the_key_choose() -> None:
    """Grants go by caller, decisions by copy."""
    bench = Bench(1)
    bench.outbox.put(Letter("t", b"k", b"g", [], partition=3))
    bench.courier.pump(now_s=0.0)
    assert [None, 3] == [message.get("partition") for message in bench.producer.pending]
    assert [("a", b"b")] == bench.producer.pending[0]["headers"]


def test_nothing_is_sent_before_the_topics_are_known() -> None:
    """A message to a topic that is absent could create it with the wrong partition count."""
    bench = Bench(1)
    bench.producer.is_away = True
    bench.courier.pump(now_s=0.0)
    assert ([], None, False) == (bench.values(), bench.courier.partitions, bench.courier.is_connected)
    bench.producer.is_away = False
    bench.courier.pump(now_s=0.5)
    assert [] == bench.values()
    bench.courier.pump(now_s=1.0)
    assert ([b"0"], 4) == (bench.values(), bench.courier.partitions)


def test_outage_is_told_once_and_its_end_as_well(caplog: pytest.LogCaptureFixture) -> None:
    """A line per attempt would drown the gateway's log; none would leave its operator blind."""
    bench = Bench(1)
    bench.producer.is_away = True
    with caplog.at_level(logging.INFO, "tallygate.stream"):
        for second in range(10):
            bench.courier.pump(now_s=float(second))
        bench.producer.is_away = False
        bench.courier.pump(now_s=10.0)
        bench.producer.deliver(1)
    assert ["WARNING", "INFO"] == [record.levelname for record in caplog.records]
    assert "127.0.0.1:19092 (TALLYGATE_KAFKA)" in caplog.records[0].getMessage()
    assert bench.courier.is_connected


def test_letter_that_the_client_gave_up_is_sent_again_after_a_pause() -> None:
    """An error of the moment must cost nothing but time."""
    bench = Bench(2)
    bench.courier.pump(now_s=0.0)
    bench.producer.fail(2, fault(KafkaError._TIMED_OUT))
    bench.courier.pump(now_s=0.1)
    bench.courier.pump(now_s=0.5)
    assert [] == bench.values()
    bench.courier.pump(now_s=1.2)
    assert [b"0", b"1"] == bench.values()


def test_later_letters_wait_for_one_that_failed() -> None:
    """Readers trust the order of a copy's blocks: one that passes another would make the other count for nothing."""
    bench = Bench(3)
    bench.courier.pump(now_s=0.0)
    old = bench.producer
    old.fail(1, fault(KafkaError.TOPIC_AUTHORIZATION_FAILED))
    bench.outbox.put(Letter(DECISIONS.name, b"k", b"3", [], first_seq=3, decisions=1))
    bench.courier.pump(now_s=0.1)
    assert (True, [], []) == (old.purged, old.pending, bench.values())
    bench.courier.pump(now_s=1.2)
    assert [b"0", b"1", b"2", b"3"] == bench.values()


def test_topic_that_takes_nothing_does_not_hold_up_the_others() -> None:
    """Grants that may not be written must not stop the decisions, nor say every second that all is well again."""
    bench = Bench(1)
    bench.outbox.put(Letter(GRANTS.name, b"k", b"g", []))
    bench.courier.pump(now_s=0.0)
    bench.producer.pending.reverse()
    bench.producer.fail(1, fault(KafkaError.TOPIC_AUTHORIZATION_FAILED))
    bench.courier.pump(now_s=0.1)
    bench.courier.pump(now_s=0.2)
    assert [b"0"] == bench.values()
    bench.producer.deliver(1)
    assert not bench.courier.is_connected
    bench.courier.pump(now_s=1.3)
    assert [b"g"] == bench.values()
    bench.producer.deliver(1)
    assert bench.courier.is_connected


def test_batch_that_is_too_long_is_sent_one_by_one(caplog: pytest.LogCaptureFixture) -> None:
    """A broker refuses the batch for the one message that is too long: the others must not be lost with it."""
    bench = Bench(3)
    bench.courier.pump(now_s=0.0)
    assert bench.producer.settings["batch.num.messages"] > 1
    bench.producer.fail(3, fault(KafkaError.MSG_SIZE_TOO_LARGE))
    bench.producer.die()
    bench.courier.pump(now_s=0.1)
    bench.courier.pump(now_s=1.2)
    assert (1, []) == (bench.producer.settings["batch.num.messages"], bench.refused)
    bench.producer.deliver(1)
    bench.producer.fail(1, fault(KafkaError.MSG_SIZE_TOO_LARGE))
    bench.courier.pump(now_s=1.3)
    bench.courier.pump(now_s=2.4)
    bench.producer.deliver(1)
    assert [b"1"] == [letter.value for letter in bench.refused]
    assert [b"0", b"2"] == [letter.value for letter in bench.delivered]
    assert 0 == len(bench.outbox)
    assert 1 == sum("messages go alone" in record.getMessage() for record in caplog.records)


def test_letter_for_a_partition_that_is_gone_is_refused() -> None:
    """The topic came back with fewer partitions: what was meant for the others must not be tried for ever."""
    bench = Bench()
    bench.outbox.put(Letter(GRANTS.name, b"k", b"g", [], partition=7))
    bench.courier.pump(now_s=0.0)
    bench.producer.fail(1, fault(KafkaError._UNKNOWN_PARTITION))
    assert ([b"g"], 0) == ([letter.value for letter in bench.refused], len(bench.outbox))


def test_topic_without_leaders_is_not_there_yet() -> None:
    """A topic that was only just created has no partitions to divide callers among."""
    bench = Bench(1)
    bench.producer.broken_topics = {GRANTS.name}
    bench.courier.pump(now_s=0.0)
    assert (None, 1, []) == (bench.courier.partitions, bench.topics_made, bench.values())
    bench.producer.broken_topics = set()
    bench.courier.pump(now_s=1.0)
    assert (4, [b"0"]) == (bench.courier.partitions, bench.values())


def test_client_that_cannot_be_made_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that is short of threads for a moment must not leave letters with a client that is gone."""
    bench = Bench(1)
    bench.courier.pump(now_s=0.0)
    bench.producer.die()
    monkeypatch.setattr(bench.courier, "_make_producer", _no_threads)
    with pytest.raises(RuntimeError):
        bench.courier.pump(now_s=0.1)
    monkeypatch.undo()
    bench.courier.pump(now_s=0.2)
    bench.courier.pump(now_s=1.3)
    assert (2, [b"0"]) == (len(bench.producers), bench.values())


def _no_threads(settings: dict[str, Any]) -> FakeProducer:
    raise RuntimeError("can't start new thread")


def test_fatal_error_brings_a_fresh_producer_that_sends_again() -> None:
    """After a fatal error an idempotent producer takes nothing; identity makes what is sent twice harmless."""
    bench = Bench(3)
    bench.courier.pump(now_s=0.0)
    bench.producer.deliver(1)
    old = bench.producer
    old.die()
    bench.courier.pump(now_s=0.1)
    assert (2, True, []) == (len(bench.producers), old.purged, bench.values())
    bench.courier.pump(now_s=1.2)
    assert [b"1", b"2"] == bench.values()
    bench.producer.deliver(2)
    assert [b"0", b"1", b"2"] == [letter.value for letter in bench.delivered]
    assert 0 == len(bench.outbox)


def test_late_report_of_the_old_producer_counts_once() -> None:
    """The old client may have delivered after all."""
    bench = Bench(1)
    bench.courier.pump(now_s=0.0)
    report = bench.producer.pending[0]["on_delivery"]
    bench.producer.die()
    bench.courier.pump(now_s=0.1)
    report(None, None)
    bench.courier.pump(now_s=1.2)
    assert (1, []) == (len(bench.delivered), bench.values())


def test_late_failure_of_the_old_producer_is_not_believed() -> None:
    """The letter is under way with the new client by then: sending it once more would only be noise."""
    bench = Bench(1)
    bench.courier.pump(now_s=0.0)
    report = bench.producer.pending[0]["on_delivery"]
    bench.producer.die()
    bench.courier.pump(now_s=0.1)
    bench.courier.pump(now_s=1.2)
    report(fault(KafkaError._PURGE_INFLIGHT), None)
    bench.courier.pump(now_s=9.0)
    assert [b"0"] == bench.values()


def test_full_client_queue_is_no_error() -> None:
    """What does not fit waits in the outbox, in order."""
    bench = Bench(5)
    bench.producer.room = 2
    bench.courier.pump(now_s=0.0)
    assert [b"0", b"1"] == bench.values()
    bench.producer.deliver(2)
    bench.courier.pump(now_s=0.1)
    assert [b"2", b"3"] == bench.values()


def test_refusal_by_the_client_itself_is_tried_again() -> None:
    """`produce` may raise at once, too."""
    bench = Bench(2)
    bench.producer.raises = fault(KafkaError._STATE)
    bench.courier.pump(now_s=0.0)
    bench.producer.raises = None
    bench.courier.pump(now_s=1.5)
    assert [b"0", b"1"] == bench.values()


def test_vanished_topic_is_looked_for_again() -> None:
    """A topic that was deleted under us comes back with an explicit partition count, or not at all."""
    bench = Bench(1)
    bench.courier.pump(now_s=0.0)
    bench.producer.fail(1, fault(KafkaError.UNKNOWN_TOPIC_OR_PART))
    bench.courier.pump(now_s=0.1)
    assert not bench.courier.is_connected
    assert [] == bench.values()
    bench.producer.partitions = 6
    bench.courier.pump(now_s=1.5)
    assert [b"0"] == bench.values()
    assert 6 == bench.courier.partitions
