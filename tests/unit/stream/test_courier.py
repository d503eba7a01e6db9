"""Letters reach Kafka once it takes them, whatever the client reports meanwhile."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from confluent_kafka import KafkaError

from stream.config import StreamConfig
from stream.contract.topics import DECISIONS
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
        self.is_away = False
        self.courier = Courier(
            StreamConfig(),
            "gw-017",
            self.outbox,
            on_delivered=self.delivered.append,
            on_refused=self.refused.append,
            make_producer=self._make,
        )
        for number in range(letters):
            self.outbox.put(Letter(DECISIONS.name, b"k", b"%d" % number, [("a", b"b")], first_seq=number, decisions=1))

    @property
    def producer(self) -> FakeProducer:
        return self.producers[-1]

    def values(self) -> list[bytes]:
        return [message["value"] for message in self.producer.pending]

    def _make(self, settings: dict[str, Any]) -> FakeProducer:
        self.producers.append(FakeProducer(settings))
        return self.producers[-1]


def test_producer_is_idempotent_and_never_gives_up_by_itself() -> None:
    """Exactness at the broker, and one place that decides what is lost."""
    settings = Bench().producer.settings
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


def test_letter_that_no_broker_will_take_is_refused_and_the_rest_goes_on() -> None:
    """One hopeless message must neither be tried for ever nor vanish."""
    bench = Bench(2)
    bench.courier.pump(now_s=0.0)
    bench.producer.fail(1, fault(KafkaError.MSG_SIZE_TOO_LARGE))
    bench.producer.deliver(1)
    assert [b"0"] == [letter.value for letter in bench.refused]
    assert [b"1"] == [letter.value for letter in bench.delivered]
    assert 0 == len(bench.outbox)


def test_fatal_error_brings_a_fresh_producer_that_sends_again() -> None:
    """After a fatal error an idempotent producer takes nothing; identity makes what is sent twice harmless."""
    bench = Bench(3)
    bench.courier.pump(now_s=0.0)
    bench.producer.deliver(1)
    old = bench.producer
    old.settings["error_cb"](fault(KafkaError._FATAL, fatal=True))
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
    bench.producer.settings["error_cb"](fault(KafkaError._FATAL, fatal=True))
    bench.courier.pump(now_s=0.1)
    report(None, None)
    bench.courier.pump(now_s=1.2)
    assert (1, []) == (len(bench.delivered), bench.values())


def test_late_failure_of_the_old_producer_is_not_believed() -> None:
    """The letter is under way with the new client by then: sending it once more would only be noise."""
    bench = Bench(1)
    bench.courier.pump(now_s=0.0)
    report = bench.producer.pending[0]["on_delivery"]
    bench.producer.settings["error_cb"](fault(KafkaError._FATAL, fatal=True))
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
