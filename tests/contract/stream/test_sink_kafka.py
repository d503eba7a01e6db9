"""The sink contract on real brokers."""

from __future__ import annotations

import pytest

from enforcer.sink import Sink
from stream.config import StreamConfig
from stream.producer import KafkaSink
from tests.contract.sink import Kept, SinkContract, SinkRig
from tests.contract.stream.log_kept import kept_of
from tests.log_reader import read_log
from tests.services import KafkaService
from tests.verdicts import IDENTITY


class KafkaRig(SinkRig):
    """A sink on a broker, and a reader of its topics."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._sink = KafkaSink(StreamConfig(bootstrap=bootstrap), IDENTITY)

    @property
    def sink(self) -> Sink:
        return self._sink

    def kept(self, decisions: int) -> Kept:
        log = read_log(self._bootstrap, lambda log: len(log.identities()) >= decisions)
        return kept_of(log)


class TestKafkaSink(SinkContract):
    """On Apache Kafka and on the embedded broker."""

    @pytest.fixture
    def rig(self, kafka_broker: KafkaService) -> SinkRig:
        return KafkaRig(kafka_broker.bootstrap)
