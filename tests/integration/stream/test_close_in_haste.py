"""A copy that is closed before everything is shipped, on real brokers: what is missing is named."""

from __future__ import annotations

import pytest

from stream.config import StreamConfig
from stream.producer import KafkaSink
from tests.processes import freeze, thaw, wait_until
from tests.services import KafkaService
from tests.verdicts import IDENTITY, verdicts


def test_frozen_broker_at_the_end_is_named_in_the_line(
    kafka_broker: KafkaService, caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing can be said on the log: the process's own log names first seq, count and cause, and the close ends."""
    sink = KafkaSink(StreamConfig(bootstrap=kafka_broker.bootstrap, flush_s=0.05), IDENTITY)
    for one in verdicts(100):
        sink.capture(one)
    wait_until(lambda: sink.stats.delivered == 100, 20.0)
    freeze(kafka_broker.pid)
    try:
        for one in verdicts(100, first_seq=100):
            sink.capture(one)
        sink.close(1.0)
    finally:
        thaw(kafka_broker.pid)
    assert (100, 100, 0) == (sink.stats.delivered, sink.stats.lost, sink.stats.queued)
    assert [(100, 100)] == [(one.first_seq, one.count) for one in sink.unrecorded]
    assert "100 from seq 100 to 199" in caplog.records[-1].getMessage()
